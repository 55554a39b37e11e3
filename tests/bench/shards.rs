//! What many shards cost: an installation of 64 shards in two databases against one of a single shard, both on one cluster
//! and with the same calls. And how soon a service is there when its database is.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use omgservers_protocol::client::Client;
use omgservers_protocol::text::Text;
use omgservers_protocol::{Call, player, support};
use omgservers_service::auth::Tokens;
use omgservers_service::postgres::{Embedded, EmbeddedSettings};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tempfile::TempDir;

use crate::Arguments;
use crate::api::{Load, WRITES, per_call_us};
use crate::machine::{self, Process, cpu_time};
use crate::platform::{programs, wait_until_ready};
use crate::report::{Report, Target, median};

const PASSWORD: &str = "bench-password";
/// What an instance may hold of each database: the default.
const CONNECTIONS_MAX: f64 = 40.0;

/// A service on databases of the cluster.
struct Instance<'a> {
    folder: &'a TempDir,
    name: &'static str,
    shards: u32,
    databases: Vec<String>,
}

struct Running {
    process: Process,
    address: String,
    ready_after: Duration,
}

impl Instance<'_> {
    async fn start(&self, arguments: &Arguments) -> Result<Running> {
        let inside = |name: &str| self.folder.path().join(name);
        let (port, management) = (machine::free_port()?, machine::free_port()?);
        let path = |name: &str| inside(name).display().to_string();
        let mut environment = vec![
            ("OMGSERVERS_HTTP_ADDRESS", "127.0.0.1".to_owned()),
            ("OMGSERVERS_HTTP_PORT", port.to_string()),
            ("OMGSERVERS_MANAGEMENT_PORT", management.to_string()),
            ("OMGSERVERS_DATA_DIRECTORY", path(self.name)),
            ("OMGSERVERS_SERVER_SHARD_COUNT", self.shards.to_string()),
            ("OMGSERVERS_DATABASE_URL", self.databases[0].clone()),
            ("OMGSERVERS_TOKEN_PRIVATE_KEY", path("token.pem")),
            ("OMGSERVERS_SECRETS_KEY", path("secrets.key")),
            ("OMGSERVERS_BOOTSTRAP_ENABLED", "true".to_owned()),
            ("OMGSERVERS_BOOTSTRAP_SUPPORT_USER_PASSWORD", PASSWORD.to_owned()),
            ("OMGSERVERS_RATE_LIMIT_ADDRESS", "0".to_owned()),
            ("OMGSERVERS_RATE_LIMIT_USER", "0".to_owned()),
        ];
        if let Some(second) = self.databases.get(1) {
            environment.push(("OMGSERVERS_DATABASES_1__URL", second.clone()));
        }
        let program = programs(arguments)?.join("omgservers-service");
        let begun = Instant::now();
        let mut process = Process::start(&program, &[], &environment, &inside(&format!("{}.log", self.name)))?;
        wait_until_ready(&mut process, management).await?;
        Ok(Running {
            process,
            address: format!("127.0.0.1:{port}"),
            ready_after: begun.elapsed(),
        })
    }
}

pub(crate) async fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    report.say("starting a durable Postgres for many shards and for one");
    let folder = tempfile::Builder::new().prefix("omg-bench").tempdir()?;
    std::fs::write(folder.path().join("token.pem"), Tokens::generate_key()?)?;
    std::fs::write(
        folder.path().join("secrets.key"),
        "c2VjcmV0cyBvZiBzdGFnZXMgYXJlIHNlYWxlZCBzbyE=",
    )?;
    let cluster = Embedded::start(EmbeddedSettings {
        directory: folder.path().join("postgres"),
        durable: true,
        max_connections: 200,
    })
    .await
    .context("Postgres does not start")?;
    let mut connection = PgConnection::connect(&cluster.url()).await?;
    let mut databases = Vec::new();
    for name in ["one", "left", "right"] {
        let create = AssertSqlSafe(format!("create database bench_{name}"));
        sqlx::query(create).execute(&mut connection).await?;
        databases.push(cluster.url().replacen("/omg?", &format!("/bench_{name}?"), 1));
    }
    let one = Instance {
        folder: &folder,
        name: "one",
        shards: 1,
        databases: databases[..1].to_vec(),
    };
    let many = Instance {
        folder: &folder,
        name: "many",
        shards: 64,
        databases: databases[1..].to_vec(),
    };
    let (one_running, many_running) = (one.start(arguments).await?, many.start(arguments).await?);

    let tokens = [support_token(&one_running).await?, support_token(&many_running).await?];
    let mut costs = [Vec::new(), Vec::new()];
    let mut connections = 0;
    for run in 0..=arguments.runs {
        for ((running, token), costs) in [&one_running, &many_running].iter().zip(&tokens).zip(&mut costs) {
            let load = |route, token| Load {
                address: &running.address,
                route,
                token,
                body: "{}",
            };
            let before = cpu_time(running.process.pid())?;
            load(player::CreateUser::ROUTE, "").run(WRITES).await?;
            load(support::CreateTenant::ROUTE, token).run(WRITES).await?;
            // The first is for warming up.
            if run > 0 {
                costs.push(per_call_us(cpu_time(running.process.pid())? - before, 2 * WRITES));
            }
        }
        let used: i64 = sqlx::query_scalar(
            "select coalesce(max(used), 0) from (select count(*) as used from pg_stat_activity \
             where datname in ('bench_left', 'bench_right') group by datname) as per_database",
        )
        .fetch_one(&mut connection)
        .await?;
        connections = connections.max(used);
    }
    let [one_cost, many_cost] = costs.map(median);
    report.add(
        "CPU of the service per write, 64 shards in 2 databases",
        many_cost,
        "µs",
        Some(("1 shard in 1 database", one_cost)),
        Target::RatioAtMost(1.3),
    );
    #[expect(clippy::cast_precision_loss, reason = "there are a few dozen connections")]
    report.add(
        "connections of an instance to a database of 32 shards",
        connections as f64,
        "",
        Some(("the configured bound", CONNECTIONS_MAX)),
        Target::RatioAtMost(1.0),
    );
    drop((one_running, many_running));

    let mut starts = Vec::new();
    let one = Instance {
        shards: 1,
        databases: databases[..1].to_vec(),
        ..one
    };
    for _ in 0..arguments.runs {
        starts.push(one.start(arguments).await?.ready_after.as_secs_f64() * 1_000.0);
    }
    report.add(
        "start of the service to ready, warm database",
        median(starts),
        "ms",
        None,
        Target::ValueAtMost(1_000.0),
    );
    connection.close().await?;
    cluster.stop().await?;
    Ok(())
}

async fn support_token(running: &Running) -> Result<String> {
    let text = |value: &str| Text::new(value).context("a short text");
    let call = support::CreateToken {
        user: text("support")?,
        password: text(PASSWORD)?,
    };
    Ok(Client::new(&format!("http://{}", running.address))?
        .send(&call)
        .await?
        .raw_token)
}
