//! The service as a process of its own, to be killed and started again, on a Postgres that keeps what it acknowledged and
//! that can be killed too.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use omgservers_service::auth::Tokens;
use omgservers_service::postgres::{Embedded, EmbeddedSettings};
use sqlx::Connection as _;
use tempfile::TempDir;

use crate::fleet::{is_alive, signal};
use crate::{eventually, program};

/// A durable cluster with a folder around it, and the keys that all services on it share.
pub struct Durable {
    postgres: Option<Embedded>,
    url: String,
    folder: TempDir,
    pub shards: u16,
    pub tokens: Tokens,
}

impl Durable {
    pub async fn start(shards: u16) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("omg-durable")
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .tempdir()
            .expect("a temporary folder");
        let key = Tokens::generate_key().expect("a key");
        std::fs::write(folder.path().join("token.pem"), &key).expect("the key is written");
        let secrets = "c2VjcmV0cyBvZiBzdGFnZXMgYXJlIHNlYWxlZCBzbyE=";
        std::fs::write(folder.path().join("secrets.key"), secrets).expect("the key is written");
        let settings = EmbeddedSettings {
            directory: folder.path().join("pg"),
            durable: true,
            max_connections: 100,
        };
        let postgres = Embedded::start(settings).await.expect("Postgres starts");
        Self {
            url: postgres.url(),
            postgres: Some(postgres),
            folder,
            shards,
            tokens: Tokens::new(&key, "omgservers", 3_600).expect("the key is good"),
        }
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Kills the database as a power cut would; it is started again at once.
    pub async fn crash(&self) {
        let postgres = self.postgres.as_ref().expect("it runs until the end");
        let pid = u32::try_from(postgres.pid()).expect("a process number");
        signal(pid, "KILL");
        eventually("Postgres was started again", || async {
            (u32::try_from(postgres.pid()) != Ok(pid)).then_some(())
        })
        .await;
    }

    /// A connection of one's own, past the service.
    pub async fn connect(&self) -> sqlx::PgConnection {
        eventually("Postgres answers", || async {
            sqlx::PgConnection::connect(&self.url).await.ok()
        })
        .await
    }

    /// Names of the schemas of all shards.
    pub fn schemas(&self) -> impl Iterator<Item = String> + use<> {
        (0..self.shards).map(|shard| format!("shard_{shard:05}"))
    }

    /// What a query gives in every shard, which is `$schema` in it.
    pub async fn query<T>(&self, query: &str) -> Vec<T>
    where
        T: for<'r> sqlx::FromRow<'r, sqlx::postgres::PgRow> + Send + Unpin,
    {
        let mut database = self.connect().await;
        let mut rows = Vec::new();
        for schema in self.schemas() {
            let query = sqlx::AssertSqlSafe(query.replace("$schema", &schema));
            let more: Vec<T> = sqlx::query_as(query)
                .fetch_all(&mut database)
                .await
                .expect("the query is right");
            rows.extend(more);
        }
        database.close().await.ok();
        rows
    }

    /// The schema of the shard of this key.
    pub fn schema_of(&self, key: i64) -> String {
        let shard = omgservers_service::db::shard_of(&key.to_string(), self.shards).index();
        format!("shard_{shard:05}")
    }

    /// Statements in the shard of this key, past the service.
    pub async fn execute_at(&self, key: i64, script: &str) {
        let schema = self.schema_of(key);
        self.execute(&format!("set search_path to {schema}; {script}")).await;
    }

    /// The same in every shard.
    pub async fn execute_everywhere(&self, script: &str) {
        for schema in self.schemas() {
            self.execute(&format!("set search_path to {schema}; {script}")).await;
        }
    }

    pub async fn execute(&self, script: &str) {
        let mut database = self.connect().await;
        sqlx::raw_sql(sqlx::AssertSqlSafe(script.to_owned()))
            .execute(&mut database)
            .await
            .expect("the script is right");
        database.close().await.ok();
    }

    pub async fn stop(mut self) {
        if let Some(postgres) = self.postgres.take() {
            postgres.stop().await.expect("Postgres stops");
        }
    }
}

impl Drop for Durable {
    /// After a failed story: nobody starts it again from here on, and its folder is about to go.
    fn drop(&mut self) {
        if self.postgres.take().is_none() {
            return;
        }
        let note = self.folder.path().join("pg/data/postmaster.pid");
        for _ in 0..100 {
            let Some(pid) = std::fs::read_to_string(&note)
                .ok()
                .and_then(|note| note.lines().next()?.trim().parse().ok())
            else {
                return;
            };
            signal(pid, "QUIT");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
}

/// One instance of the service.
pub struct ServiceProcess {
    child: Child,
    name: String,
    environment: Vec<(String, String)>,
    log: PathBuf,
    management: String,
    /// Where it answers.
    pub base: String,
}

impl ServiceProcess {
    /// Starts an instance on this database and waits until it serves.
    pub async fn start(durable: &Durable, name: &str, settings: &[(&str, &str)]) -> Self {
        let folder = durable.folder();
        let (port, management_port) = (crate::free_port(), crate::free_port());
        let base = format!("http://127.0.0.1:{port}");
        let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
        let host = "BOOTSTRAP_DEFAULT_POOL_DOCKER_HOSTS_0__";
        let mut environment: Vec<(String, String)> = [
            ("DATABASE_URL", durable.url.clone()),
            ("DATABASE_MAX_CONNECTIONS", "20".to_owned()),
            ("SERVER_SHARD_COUNT", durable.shards.to_string()),
            ("DATA_DIRECTORY", path(name)),
            ("TOKEN_PRIVATE_KEY", path("token.pem")),
            ("SECRETS_KEY", path("secrets.key")),
            ("HTTP_ADDRESS", "127.0.0.1".to_owned()),
            ("HTTP_PORT", port.to_string()),
            ("MANAGEMENT_PORT", management_port.to_string()),
            ("SERVER_URI", base.clone()),
            ("BOOTSTRAP_ENABLED", "true".to_owned()),
            (&format!("{host}DOCKER_DAEMON_URI"), "process://".to_owned()),
            (&format!("{host}CPU_COUNT"), "8".to_owned()),
            (&format!("{host}MEMORY_SIZE"), "8000".to_owned()),
            (&format!("{host}MAX_CONTAINERS"), "8".to_owned()),
            // One story asks as one user.
            ("RATE_LIMIT_USER", "0".to_owned()),
        ]
        .map(|(name, value)| (format!("OMGSERVERS_{name}"), value))
        .into();
        environment.extend(
            settings
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
        );
        let log = folder.join(format!("{name}.log"));
        let service = Self {
            child: launch(&environment, &log),
            name: name.to_owned(),
            environment,
            log,
            management: format!("http://127.0.0.1:{management_port}/health/ready"),
            base,
        };
        service.ready().await;
        service
    }

    async fn ready(&self) {
        let client = reqwest::Client::builder()
            .no_proxy()
            .tls_certs_only([])
            .build()
            .expect("a client");
        eventually(&format!("the service `{}` is ready", self.name), || async {
            assert!(
                is_alive(self.child.id()),
                "the service `{}` ended:\n{}",
                self.name,
                self.log()
            );
            let answer = client.get(&self.management).send().await.ok()?;
            answer.status().is_success().then_some(())
        })
        .await;
    }

    /// What it said, over all its lives.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Kills it as the kernel would that has run out of memory. Of no effect on one that is dead.
    pub fn kill(&mut self) {
        self.child.kill().ok();
        self.child.wait().expect("a child can be waited for");
    }

    /// Sends it a signal, such as `STOP`.
    pub fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    pub fn is_alive(&self) -> bool {
        is_alive(self.child.id())
    }

    /// Changes a setting for the next start.
    pub fn set(&mut self, name: &str, value: &str) {
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    /// Starts it again after it was killed, without waiting until it serves.
    pub fn launch(&mut self) {
        self.child = launch(&self.environment, &self.log);
    }

    /// Starts it again if it has ended by itself, as whoever runs it would: without a database it does not start.
    pub fn revive(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
            self.launch();
        }
    }

    /// Starts it again after it was killed.
    pub async fn restart(&mut self) {
        self.launch();
        self.ready().await;
    }
}

impl Drop for ServiceProcess {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking()
            && let Some(folder) = self.log.parent()
        {
            crate::keep("durability", folder);
        }
    }
}

fn launch(environment: &[(String, String)], log: &Path) -> Child {
    let log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(log)
        .expect("a log file");
    Command::new(program("omgservers-service"))
        .env_clear()
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("the log is shared"))
        .stderr(log)
        .spawn()
        .expect("the service starts")
}
