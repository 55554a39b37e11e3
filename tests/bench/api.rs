//! The service's API: its CPU per token-checked call, and one-row writes against pgbench on the same cluster.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use omgservers_protocol::{Call, admin, support};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::machine::cpu_time;
use crate::platform::{Host, Platform};
use crate::report::{Report, Target, median};
use crate::{Arguments, pgbench};

const CONNECTIONS: u32 = 8;
/// Calls of one connection in one run: about half a second of CPU altogether, 50 times the kernel's resolution.
const CALLS: u32 = 1_500;
const WRITES: u32 = 300;
const RUN_WAIT: Duration = Duration::from_secs(120);

/// Nakama's CPU per authenticated call: recorded in `docs/benchmarks.md`, not measured here.
const NAKAMA_CALL_US: f64 = 93.0;

pub(crate) async fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    report.say("starting the service on a durable Postgres");
    let platform = Platform::start(arguments, &Host::Process).await?;
    let checked = Load {
        address: &platform.service_address,
        route: admin::GenerateId::ROUTE,
        token: &platform.admin_token().await?,
    };
    let write = Load {
        address: &platform.service_address,
        route: support::CreateTenant::ROUTE,
        token: &platform.support_token().await?,
    };
    let database = platform.database_url()?;
    let pid = platform.service.pid();

    report.say("warming up");
    checked.run(CALLS / 4).await?;
    write.run(WRITES / 4).await?;
    pgbench::run(platform.folder(), &database, CONNECTIONS, WRITES / 4).await?;
    let (mut costs, mut writes, mut write_costs, mut references) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for run in 1..=arguments.runs {
        report.say(&format!("run {run} of {}", arguments.runs));
        let before = cpu_time(pid)?;
        checked.run(CALLS).await?;
        costs.push(per_call_us(cpu_time(pid)? - before, CALLS));

        let before = cpu_time(pid)?;
        let took = write.run(WRITES).await?;
        write_costs.push(per_call_us(cpu_time(pid)? - before, WRITES));
        writes.push(f64::from(CONNECTIONS * WRITES) / took.as_secs_f64());
        references.push(pgbench::run(platform.folder(), &database, CONNECTIONS, WRITES).await?);
    }
    let nakama = ("Nakama, recorded", NAKAMA_CALL_US);
    report.add(
        "CPU of the service per token-checked call",
        median(costs),
        "µs",
        Some(nakama),
        Target::ValueAtMost(45.0),
    );
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
    Ok(())
}

fn per_call_us(cpu: Duration, calls: u32) -> f64 {
    cpu.as_secs_f64() * 1e6 / f64::from(CONNECTIONS * calls)
}

/// Calls without arguments on connections that stay open, each call after the answer to the one before.
struct Load<'a> {
    address: &'a str,
    route: &'static str,
    token: &'a str,
}

impl Load<'_> {
    /// Runs so many calls on each connection; the time does not include connecting.
    async fn run(&self, calls: u32) -> Result<Duration> {
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
            let request = Request::post(self.route)
                .header(HOST, self.address)
                .header(AUTHORIZATION, format!("Bearer {}", self.token))
                .header(CONTENT_TYPE, "application/json")
                .body(Full::new(Bytes::from_static(b"{}")))?;
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
