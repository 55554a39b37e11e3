//! The service's API: its CPU per call, one-row writes against pgbench on the same cluster, what many shards cost, and how
//! soon it is there.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use omgservers_protocol::{Call, admin, developer, player, support};
use serde_json::json;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::bare::Bare;
use crate::machine::{self, cpu_time};
use crate::platform::{Host, Platform};
use crate::report::{Report, Target, median};
use crate::{Arguments, pgbench, shards, up};

const CONNECTIONS: u32 = 8;
/// Calls of one connection in one run: about half a second of CPU altogether, 50 times the kernel's resolution.
const CALLS: u32 = 1_500;
pub(crate) const WRITES: u32 = 300;
const RUN_WAIT: Duration = Duration::from_secs(120);

/// What the same costs Nakama on such a machine: recorded in `docs/benchmarks.md`, not measured here.
const NAKAMA: &str = "Nakama, recorded";
const NAKAMA_CALL_US: f64 = 93.0;
const NAKAMA_REGISTER_US: f64 = 600.0;
const NAKAMA_LOG_IN_US: f64 = 400.0;

/// A kind of call that is measured: its name in the report, the calls of a run, the reference and the target.
type Kind<'a> = (&'static str, Load<'a>, u32, Option<(&'a str, f64)>, Target);

pub(crate) async fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    report.say("starting the service on a durable Postgres");
    let platform = Platform::start(arguments, &Host::Process).await?;
    let (admin, support) = (platform.admin_token().await?, platform.support_token().await?);
    let studio = platform.studio().await?;
    let load = |route, token, body| Load {
        address: &platform.service_address,
        route,
        token,
        body,
    };
    let log_in = json!({"user_id": studio.user_id, "password": studio.password}).to_string();
    let details = json!({"tenant": studio.tenant}).to_string();
    let kinds: [Kind<'_>; 4] = [
        (
            "CPU of the service per token-checked call",
            load(admin::GenerateId::ROUTE, &admin, "{}"),
            CALLS,
            Some((NAKAMA, NAKAMA_CALL_US)),
            Target::ValueAtMost(45.0),
        ),
        (
            "CPU of the service per new developer",
            load(support::CreateDeveloper::ROUTE, &support, "{}"),
            WRITES,
            Some((NAKAMA, NAKAMA_REGISTER_US)),
            Target::ValueAtMost(250.0),
        ),
        (
            "CPU of the service per log in",
            load(developer::CreateToken::ROUTE, "", &log_in),
            CALLS / 4,
            Some((NAKAMA, NAKAMA_LOG_IN_US)),
            Target::ValueAtMost(150.0),
        ),
        (
            "CPU of the service per details of a tenant",
            load(developer::GetTenantDetails::ROUTE, &studio.token, &details),
            CALLS / 4,
            None,
            Target::None,
        ),
    ];
    let write = load(player::CreateUser::ROUTE, "", "{}");
    let bare = Bare::start(platform.folder()).await?;
    let least = Load {
        address: &bare.address,
        ..load(admin::GenerateId::ROUTE, &admin, "{}")
    };
    let database = platform.database_url()?;
    let pid = platform.service.pid();
    report.add(
        "memory of the idle service",
        machine::memory_mb(pid)?,
        "MB",
        None,
        Target::ValueAtMost(60.0),
    );

    report.say("warming up");
    for (_, load, calls, ..) in &kinds {
        load.run(calls / 4).await?;
    }
    least.run(CALLS / 4).await?;
    write.run(WRITES / 4).await?;
    pgbench::run(platform.folder(), &database, CONNECTIONS, WRITES / 4).await?;
    let mut costs: [Vec<f64>; 4] = Default::default();
    let mut least_costs = Vec::new();
    let (mut writes, mut write_costs, mut references) = (Vec::new(), Vec::new(), Vec::new());
    for run in 1..=arguments.runs {
        report.say(&format!("run {run} of {}", arguments.runs));
        for ((_, load, calls, ..), costs) in kinds.iter().zip(&mut costs) {
            let before = cpu_time(pid)?;
            load.run(*calls).await?;
            costs.push(per_call_us(cpu_time(pid)? - before, *calls));
        }
        let before = cpu_time(bare.process.pid())?;
        least.run(CALLS).await?;
        least_costs.push(per_call_us(cpu_time(bare.process.pid())? - before, CALLS));
        let before = cpu_time(pid)?;
        let took = write.run(WRITES).await?;
        write_costs.push(per_call_us(cpu_time(pid)? - before, WRITES));
        writes.push(f64::from(CONNECTIONS * WRITES) / took.as_secs_f64());
        references.push(pgbench::run(platform.folder(), &database, CONNECTIONS, WRITES).await?);
    }
    report.add(
        "token-checked call against a server that only answers",
        median(costs[0].clone()),
        "µs",
        Some(("bare hyper", median(least_costs))),
        Target::None,
    );
    for ((figure, _, _, reference, target), costs) in kinds.into_iter().zip(costs) {
        report.add(figure, median(costs), "µs", reference, target);
    }
    let pgbench = ("pgbench, same statements", median(references));
    report.add(
        "one-row writes by 8 connections",
        median(writes),
        "1/s",
        Some(pgbench),
        Target::RatioAtLeast(0.6),
    );
    report.add(
        "CPU of the service per one-row write",
        median(write_costs),
        "µs",
        None,
        Target::None,
    );
    drop(platform);
    shards::run(arguments, report).await?;
    up::run(report)
}

pub(crate) fn per_call_us(cpu: Duration, calls: u32) -> f64 {
    cpu.as_secs_f64() * 1e6 / f64::from(CONNECTIONS * calls)
}

/// Calls on connections that stay open, each call after the answer to the one before.
pub(crate) struct Load<'a> {
    pub(crate) address: &'a str,
    pub(crate) route: &'static str,
    /// Empty: nobody in particular.
    pub(crate) token: &'a str,
    pub(crate) body: &'a str,
}

impl Load<'_> {
    /// Runs so many calls on each connection; the time does not include connecting.
    pub(crate) async fn run(&self, calls: u32) -> Result<Duration> {
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            let stream = TcpStream::connect(self.address).await?;
            stream.set_nodelay(true)?;
            let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
            tokio::spawn(connection);
            connections.push(sender);
        }
        let begun = Instant::now();
        let mut tasks = JoinSet::new();
        for mut sender in connections {
            let mut request = Request::post(self.route)
                .header(HOST, self.address)
                .header(CONTENT_TYPE, "application/json");
            if !self.token.is_empty() {
                request = request.header(AUTHORIZATION, format!("Bearer {}", self.token));
            }
            let request = request.body(Full::new(Bytes::copy_from_slice(self.body.as_bytes())))?;
            tasks.spawn(async move {
                for _ in 0..calls {
                    sender.ready().await?;
                    let answer = sender.send_request(request.clone()).await?;
                    let status = answer.status();
                    let body = answer.into_body().collect().await?.to_bytes();
                    ensure!(
                        status.is_success(),
                        "refused with {status}: {}",
                        String::from_utf8_lossy(&body)
                    );
                }
                Ok(())
            });
        }
        let all = async {
            while let Some(ended) = tasks.join_next().await {
                ended.context("a connection panicked")??;
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(RUN_WAIT, all)
            .await
            .context("the calls do not end")??;
        Ok(begun.elapsed())
    }
}
