//! An installation inside the test's process: services on databases of their own, and a dispatcher in front.

use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use clap::Parser as _;
use omgservers_dispatcher::Server;
use omgservers_protocol::client::Client;
use omgservers_protocol::token::Role;
use omgservers_service::Service;
use omgservers_service::auth::Tokens;
use omgservers_service::config::{Config, HostConfig};
use omgservers_service::postgres::{Embedded, EmbeddedSettings};
use sqlx::Connection as _;
use tempfile::TempDir;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

/// The cluster that all stories of this process share. Throw-away: it may lose data at a crash.
pub struct Cluster {
    url: String,
    next: AtomicU32,
}

static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();

pub async fn cluster() -> &'static Cluster {
    CLUSTER
        .get_or_init(|| async {
            let folder = tempfile::Builder::new()
                .prefix("omg-cluster")
                .tempdir()
                .expect("a temporary folder")
                .keep();
            let settings = EmbeddedSettings {
                directory: folder.join("pg"),
                durable: false,
                max_connections: 400,
            };
            let embedded = Embedded::start(settings).await.expect("Postgres starts");
            clean_up_at_exit(embedded.pid(), &folder);
            let url = embedded.url();
            // Statics are not dropped; the process started above ends it.
            std::mem::forget(embedded);
            Cluster {
                url,
                next: AtomicU32::new(0),
            }
        })
        .await
}

/// A process that waits for this one to end, however it does, then stops the cluster and removes its folder.
fn clean_up_at_exit(pid: i32, folder: &Path) {
    let script = "trap '' INT TERM; cat >/dev/null; kill -INT \"$0\"; while kill -0 \"$0\" 2>/dev/null; do sleep 0.1; done; rm -rf -- \"$1\"";
    let child = Command::new("sh")
        .args(["-c", script, &pid.to_string()])
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .expect("sh starts");
    // Its standard input stays open as long as this process lives.
    std::mem::forget(child);
}

impl Cluster {
    /// A new, empty database.
    pub async fn database(&self) -> String {
        let name = format!("story_{}", self.next.fetch_add(1, Ordering::Relaxed));
        let mut connection = sqlx::PgConnection::connect(&self.url)
            .await
            .expect("the cluster answers");
        sqlx::query(sqlx::AssertSqlSafe(format!("create database {name}")))
            .execute(&mut connection)
            .await
            .expect("a database is created");
        connection.close().await.ok();
        self.url.replacen("/omg?", &format!("/{name}?"), 1)
    }
}

/// How an installation is made.
#[derive(Clone)]
pub struct Options {
    pub shards: u16,
    pub databases: usize,
    pub instances: usize,
    /// Address of the host that runtimes run on.
    pub host: String,
    pub configure: fn(&mut Config),
}

impl Default for Options {
    fn default() -> Self {
        Self {
            shards: 8,
            databases: 1,
            instances: 1,
            host: "process://".into(),
            configure: |_| {},
        }
    }
}

pub struct Installation {
    pub services: Vec<Service>,
    dispatcher: tokio::task::JoinHandle<anyhow::Result<()>>,
    stop_dispatcher: CancellationToken,
    /// Address of the dispatcher: the one that everybody uses.
    pub base: String,
    folder: TempDir,
}

impl Installation {
    pub async fn start(options: Options) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("omg-story")
            .tempdir()
            .expect("a temporary folder");
        let key = folder.path().join("token.pem");
        std::fs::write(&key, Tokens::generate_key().expect("a key")).expect("the key is written");
        let secrets = folder.path().join("secrets.key");
        std::fs::write(&secrets, "c2VjcmV0cyBvZiBzdGFnZXMgYXJlIHNlYWxlZCBzbyE=").expect("the key is written");
        let cluster = cluster().await;
        let mut urls = Vec::new();
        for _ in 0..options.databases {
            urls.push(cluster.database().await);
        }
        let port = crate::free_port();
        let base = format!("http://127.0.0.1:{port}");
        let mut services = Vec::new();
        for _ in 0..options.instances {
            let mut config = Config::for_tests(folder.path().join("data"));
            config.shard_count = options.shards;
            config.database_url = Some(urls[0].clone());
            config.more_database_urls = urls[1..].to_vec();
            config.database_max_connections = 24;
            config.token_private_key = Some(key.to_string_lossy().into_owned());
            config.secrets_key = Some(secrets.to_string_lossy().into_owned());
            config.allow_default_secrets = true;
            config.server_uri = base.clone();
            config.image_files_enabled = true;
            config.bootstrap_enabled = true;
            config.bootstrap_admin_user_password = Some("admin".into());
            config.bootstrap_support_user_password = Some("support".into());
            config.bootstrap_dispatcher_user_password = Some("dispatcher".into());
            config.bootstrap_hosts = vec![HostConfig {
                uri: options.host.clone(),
                cpu_count: 64,
                memory_mb: 64_000,
                max_containers: 64,
            }];
            if !options.host.starts_with("process") {
                // Seen from a container, this machine has another name.
                config.runtimes_overriding_enabled = true;
                config.runtimes_overriding_uri = format!("http://host.docker.internal:{port}");
            }
            (options.configure)(&mut config);
            services.push(Service::start(config).await.expect("the service starts"));
        }
        let addresses: Vec<String> = services
            .iter()
            .map(|service| format!("http://{}", service.address()))
            .collect();
        let (stop_dispatcher, dispatcher) = start_dispatcher(port, &addresses).await;
        Self {
            services,
            dispatcher,
            stop_dispatcher,
            base,
            folder,
        }
    }

    /// A typed client of nobody, at the public address.
    pub fn client(&self) -> Client {
        Client::new(&self.base).expect("the address is plain HTTP")
    }

    /// The address of one service, past the dispatcher.
    pub fn service_address(&self, index: usize) -> SocketAddr {
        self.services[index].address()
    }

    pub async fn admin(&self) -> Client {
        self.operator("admin", Role::Admin).await
    }

    pub async fn support(&self) -> Client {
        self.operator("support", Role::Support).await
    }

    /// With a token as a log-in would give it, whatever was done to the password and however often it was guessed.
    async fn operator(&self, name: &str, role: Role) -> Client {
        let app = self.services[0].app();
        let mut tx = app.db.begin(0).await.expect("a transaction");
        let id: i64 = sqlx::query_scalar("select entity_id from alias where qualifier = 'USER' and value = $1")
            .bind(name)
            .fetch_one(&mut *tx)
            .await
            .expect("the user was made at the start");
        drop(tx);
        let mut tx = app.db.begin(id).await.expect("a transaction");
        let epoch: i64 = sqlx::query_scalar("select epoch from account where id = $1")
            .bind(id)
            .fetch_one(&mut *tx)
            .await
            .expect("the user has an account");
        self.client().with_token(app.tokens.for_user(id.into(), role, epoch))
    }

    /// Everything in a table of all shards, as text.
    pub async fn dump(&self, table: &str) -> String {
        let app = self.services[0].app();
        let mut text = String::new();
        for shard in app.db.shards() {
            let mut tx = app.db.begin_in(shard).await.expect("a transaction");
            let query = sqlx::AssertSqlSafe(format!("select row_to_json(rows)::text from {table} as rows"));
            let rows: Vec<String> = sqlx::query_scalar(query).fetch_all(&mut *tx).await.expect("rows");
            text += &rows.join("\n");
        }
        text
    }

    /// A folder for the story's own files; gone with the installation.
    pub fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    pub async fn stop(mut self) {
        self.stop_dispatcher.cancel();
        let ended = (&mut self.dispatcher).await.expect("the dispatcher does not panic");
        ended.expect("the dispatcher stops");
        for service in std::mem::take(&mut self.services) {
            service.stop().await.expect("the service stops");
        }
    }
}

impl Drop for Installation {
    /// Game servers outlive their service; here they end with the story, also with one that failed.
    fn drop(&mut self) {
        let running = self.folder.path().join("data/processes/running");
        for entry in std::fs::read_dir(running).into_iter().flatten().filter_map(Result::ok) {
            let state = std::fs::read_to_string(entry.path().join("state.json")).unwrap_or_default();
            let state: serde_json::Value = serde_json::from_str(&state).unwrap_or_default();
            if let Some(pid) = state["process"][0].as_u64().and_then(|pid| u32::try_from(pid).ok()) {
                crate::fleet::signal(pid, "KILL");
            }
        }
    }
}

pub(crate) fn text(value: &str) -> omgservers_protocol::text::Text {
    omgservers_protocol::text::Text::new(value).expect("a short text")
}

async fn start_dispatcher(
    port: u16,
    services: &[String],
) -> (CancellationToken, tokio::task::JoinHandle<anyhow::Result<()>>) {
    let config = omgservers_dispatcher::Config::parse_from([
        "omgservers-dispatcher",
        "--http-address",
        "0.0.0.0",
        "--http-port",
        &port.to_string(),
        "--management-port",
        "0",
        "--user-password",
        "dispatcher",
        "--service-uri",
        &services.join(","),
    ]);
    let server = Server::bind(config).await.expect("the dispatcher binds");
    let stop = CancellationToken::new();
    (stop.clone(), tokio::spawn(server.serve(stop)))
}
