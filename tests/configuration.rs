//! Settings in earnest: a database over TLS, secrets from files, names of other versions, defaults that are refused.

use std::path::Path;
use std::process::{Child, Command};

use harness::{Installation, Options, Server, cluster, eventually, free_port};
use omgservers_protocol::client::Client;
use omgservers_protocol::text::Text;
use omgservers_protocol::{admin, support};
use omgservers_service::Service;
use omgservers_service::auth::Tokens;
use omgservers_service::config::Config;
use sqlx::Connection as _;

/// A Postgres server that takes nothing but TLS and passwords. Ends with the story.
struct Postgres {
    process: Child,
    port: u16,
}

impl Postgres {
    /// With a certificate for `localhost`, whose authority is `ca.pem` in the folder.
    async fn start(folder: &Path) -> Self {
        let port = free_port();
        let script = r#"
            openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.pem
            openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=stranger -keyout stranger.key -out stranger.pem
            openssl req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout server.key -out server.csr
            printf 'subjectAltName=DNS:localhost\n' >names
            openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.pem
            programs=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)
            printf 'pass/w@rd' >password
            mkdir data socket
            as=
            if [ "$(id -u)" = 0 ]; then
              user=$(id -u postgres >/dev/null 2>&1 && echo postgres || echo nobody)
              chmod 755 . && chown "$user" data socket server.key password
              as="setpriv --reuid=$(id -u $user) --regid=$(id -g $user) --clear-groups"
            fi
            chmod 600 server.key
            $as env PATH="$programs:$PATH" initdb -D data -U omg -A scram-sha-256 --pwfile=password --no-sync
            printf 'hostssl all all all scram-sha-256\n' | $as tee data/pg_hba.conf >/dev/null
            exec $as "$programs/postgres" -D data -p "$1" -k "$PWD/socket" -c listen_addresses=localhost -c fsync=off \
              -c ssl=on -c ssl_cert_file="$PWD/server.pem" -c ssl_key_file="$PWD/server.key"
        "#;
        let log = std::fs::File::create(folder.join("postgres.log")).expect("a log file");
        let process = Command::new("sh")
            .args(["-euc", script, "sh", &port.to_string()])
            .current_dir(folder)
            .stdout(log.try_clone().expect("the log is shared"))
            .stderr(log)
            .spawn()
            .expect("sh starts");
        let postgres = Self { process, port };
        eventually("Postgres answers over TLS", || async {
            let url = postgres.url(folder, "ca.pem", "omg:pass%2Fw%40rd@", "postgres");
            let mut connection = sqlx::PgConnection::connect(&url).await.ok()?;
            sqlx::query("create database omg").execute(&mut connection).await.ok()?;
            connection.close().await.ok()
        })
        .await;
        postgres
    }

    fn url(&self, folder: &Path, authority: &str, user: &str, database: &str) -> String {
        let (port, authority) = (self.port, folder.join(authority));
        let authority = authority.display();
        format!("postgres://{user}localhost:{port}/{database}?sslmode=verify-full&sslrootcert={authority}")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // SIGQUIT: at once, with all its children.
        Command::new("kill")
            .args(["-QUIT", &self.process.id().to_string()])
            .status()
            .ok();
        self.process.wait().ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_database_is_reached_over_tls_with_secrets_from_files_and_names_of_later_versions() {
    rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let inside = |name: &str| folder.path().join(name).display().to_string();
    let postgres = Postgres::start(folder.path()).await;
    std::fs::write(inside("token.pem"), Tokens::generate_key().expect("a key")).expect("the key is written");
    std::fs::write(inside("secrets.key"), "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=").expect("it is written");
    std::fs::write(inside("admin"), "correct horse\n").expect("the password is written");
    let start = |authority: &str, certificate: &str| {
        let settings = [
            ("OMGSERVERS_DATA_DIRECTORY", inside("data")),
            (
                "OMGSERVERS_DATABASE_URL",
                postgres.url(folder.path(), authority, "", "omg"),
            ),
            ("OMGSERVERS_DATABASE_USERNAME", "omg".to_owned()),
            ("OMGSERVERS_DATABASE_PASSWORD_FILE", inside("password")),
            ("OMGSERVERS_DATABASE_MAX_CONNECTIONS", "10".to_owned()),
            ("OMGSERVERS_TOKEN_PRIVATE_KEY", format!("file:{}", inside("token.pem"))),
            ("OMGSERVERS_SECRETS_KEY", inside("secrets.key")),
            ("OMGSERVERS_BOOTSTRAP_ENABLED", "true".to_owned()),
            ("OMGSERVERS_BOOTSTRAP_ADMIN_USER_PASSWORD_FILE", inside("admin")),
            ("OMGSERVERS_SLOTS_COUNT", "2".to_owned()),
            ("OMGSERVERS_PRIVATE_KEY_LOCATION", format!("file:{}", inside("ca.key"))),
            ("OMGSERVERS_CERT_LOCATION", inside(certificate)),
            ("OMGSERVERS_BROKER_HOST", "rabbit".to_owned()),
            ("OMGSERVERS_BROKER_PASSWORD", "hare".to_owned()),
        ];
        let settings: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
        Server::start("service", folder.path(), &settings)
    };
    let (code, log) = start("stranger.pem", "ca.pem").ended().await;
    assert_eq!(code, Some(1), "{log}");
    assert!(
        log.contains("certificate") && !log.contains("OMGSERVERS_SERVER_X5C is"),
        "{log}"
    );
    let (code, log) = start("ca.pem", "stranger.pem").ended().await;
    assert_eq!(code, Some(1), "{log}");
    assert!(
        log.contains("OMGSERVERS_SERVER_X5C is not a certificate of OMGSERVERS_SERVER_PRIVATE_KEY"),
        "{log}"
    );

    let service = start("ca.pem", "ca.pem").ready().await;
    let url = postgres.url(folder.path(), "ca.pem", "omg:pass%2Fw%40rd@", "omg");
    let mut connection = sqlx::PgConnection::connect(&url).await.expect("Postgres answers");
    let (all, encrypted): (i64, i64) = sqlx::query_as(
        "select count(*), count(*) filter (where ssl) from pg_stat_ssl join pg_stat_activity using (pid) \
         where application_name = 'omgservers-service'",
    )
    .fetch_one(&mut connection)
    .await
    .expect("Postgres knows");
    assert!(
        all > 0 && all == encrypted,
        "{encrypted} of {all} connections are encrypted"
    );
    let shards: i64 = sqlx::query_scalar("select count(*) from system.shard")
        .fetch_one(&mut connection)
        .await
        .expect("an index");
    assert_eq!(shards, 2);
    connection.close().await.ok();
    let call = admin::CreateToken {
        user: text("admin"),
        password: text("correct horse"),
    };
    let client = Client::new(&service.base).expect("the address is plain HTTP");
    client.send(&call).await.expect("the admin logs in");

    let log = service.stop().await;
    assert_eq!(log.matches("have no effect").count(), 1, "{log}");
    assert!(
        log.contains("OMGSERVERS_BROKER_HOST, OMGSERVERS_BROKER_PASSWORD"),
        "{log}"
    );
    for secret in ["hare", "correct horse", "pass/w@rd", "pass%2Fw%40rd"] {
        assert!(!log.contains(secret), "{log}");
    }
}

fn text(text: &str) -> Text {
    Text::new(text).expect("a short text")
}

async fn refusal(config: Config) -> String {
    match Service::start(config).await {
        Ok(_) => panic!("the service started"),
        Err(cause) => format!("{cause:#}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn default_secrets_are_refused_with_an_external_database() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, content: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).expect("it is written");
        Some(path.display().to_string())
    };
    let mut config = Config::for_tests(folder.path().join("data"));
    config.database_url = Some(cluster().await.database().await);
    config.bootstrap_enabled = true;
    config.bootstrap_support_user_password = Some("support".into());
    let heard = refusal(config.clone()).await;
    assert!(heard.contains("OMGSERVERS_BOOTSTRAP_SUPPORT_USER_PASSWORD"), "{heard}");
    config.bootstrap_support_user_password = Some("qJ3hVt8z".into());
    let heard = refusal(config.clone()).await;
    assert!(heard.contains("OMGSERVERS_TOKEN_PRIVATE_KEY"), "{heard}");
    config.token_private_key = write("token.pem", &Tokens::generate_key().expect("a key"));
    let heard = refusal(config.clone()).await;
    assert!(heard.contains("OMGSERVERS_SECRETS_KEY"), "{heard}");
    config.secrets_key = write("secrets.key", "c2hvcnQ=");
    let heard = refusal(config.clone()).await;
    assert!(heard.contains("32 bytes") && !heard.contains("c2hvcnQ="), "{heard}");

    // Nobody has brought the schemas up to date yet.
    config.secrets_key = write("secrets.key", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=");
    config.schema_enabled = false;
    let heard = refusal(config.clone()).await;
    assert!(
        heard.contains("OMGSERVERS_INITIALIZATION_DATABASE_SCHEMA_ENABLED"),
        "{heard}"
    );
    config.schema_enabled = true;
    let service = Service::start(config.clone())
        .await
        .expect("with proper secrets it starts");
    service.stop().await.expect("it stops");
    config.schema_enabled = false;
    let service = Service::start(config).await.expect("the schemas are up to date");
    service.stop().await.expect("it stops");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_leaves_the_work_to_others_still_answers() {
    let installation = Installation::start(Options {
        configure: |config| config.relay_job_enabled = false,
        ..Options::default()
    })
    .await;
    let support = installation.support().await;
    let made = support.send(&support::CreateTenant {}).await;
    assert!(made.is_ok(), "{made:?}");
    installation.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_users_are_made_with_one_connection_to_each_shard() {
    let installation = Installation::start(Options {
        shards: 2,
        configure: |config| {
            config.database_max_connections = 6;
            config.bootstrap_registry_user_password = Some("registry".into());
            config.bootstrap_builder_user_password = Some("builder".into());
            config.bootstrap_service_user_password = Some("service".into());
        },
        ..Options::default()
    })
    .await;
    // Each logs in by the door of any role.
    for user in ["admin", "support", "registry", "builder", "service", "dispatcher"] {
        let call = admin::CreateToken {
            user: text(user),
            password: text(user),
        };
        installation.client().send(&call).await.expect("the user is there");
    }
    installation.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_setting_that_makes_no_sense_stops_the_start_by_its_name() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let refused = async |program: &str, name: &str, value: &str| {
        let (code, log) = Server::start(program, folder.path(), &[(name, value)]).ended().await;
        assert_eq!(code, Some(1), "{log}");
        assert!(log.contains(name), "{log}");
    };
    refused("service", "OMGSERVERS_SLOTS_COUNT", "many").await;
    refused("service", "OMGSERVERS_LOGGING_ROOT_LOGS_LEVEL", "LOUD").await;
    refused("service", "OMGSERVERS_DATABASES_2__URL", "postgres://b/omg").await;
    refused("dispatcher", "OMGSERVERS_DISPATCHER_USER_PASSWORD", "").await;
}
