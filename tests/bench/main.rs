//! Measures what the platform costs and how it compares: `./dev bench NAME`, listed without a NAME. Every bench runs
//! against a reference that is measured in the same run, unless that is a physical limit or a recorded figure;
//! `docs/benchmarks.md` explains each figure.

mod api;
mod bare;
mod dispatcher;
mod echo;
mod machine;
mod nginx;
mod pgbench;
mod platform;
mod report;
mod shards;
mod shooter;
mod start;
mod up;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use report::Report;

/// What there is, in the order of `all`.
const BENCHES: [(&str, &str); 4] = [
    (
        "api",
        "CPU of the service per call, writes against pgbench, many shards, memory, time to start (package: postgresql)",
    ),
    (
        "dispatcher",
        "CPU per WebSocket round trip, player to runtime and back, against nginx (package: nginx-light)",
    ),
    (
        "shooter",
        "time of a tick, bytes per player, growth with the number of bodies",
    ),
    (
        "start",
        "a player's click to the first frame of a match, against docker run (package: docker.io; needs root)",
    ),
];

/// Measures something about OMGSERVERS.
#[derive(Parser)]
#[command(name = "bench")]
pub(crate) struct Arguments {
    /// What to measure; `all` for everything. Without it: what there is.
    name: Option<String>,
    /// One line of JSON per figure, as soon as it is there.
    #[arg(long)]
    json: bool,
    /// Runs of each side, in turns; the figures are their medians.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Folder with the programs of the platform. Unset: where this program is.
    #[arg(long, env = "OMGSERVERS_TEST_BIN_DIR")]
    programs: Option<PathBuf>,
    /// Image of the shooter, as an archive with a static program.
    #[arg(long, env = "OMGSERVERS_TEST_SHOOTER_ARCHIVE")]
    shooter_archive: Option<PathBuf>,
    /// Of the server that this program is as a reference.
    #[arg(long, hide = true)]
    port: Option<u16>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut report = Report::new(arguments.json);
    let ended = match arguments.name.as_deref() {
        None => {
            report.list(&BENCHES);
            Ok(())
        }
        Some("all") => {
            let mut ended = Ok(());
            for (name, _) in BENCHES {
                ended = ended.and(measure(name, &arguments, &mut report).await);
            }
            ended
        }
        // As a game server that the platform started.
        Some(echo::NAME) => echo::run_runtime().await,
        Some(bare::NAME) => bare::serve(arguments.port).await,
        Some(name) => measure(name, &arguments, &mut report).await,
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(cause) => {
            report.fail(&cause);
            ExitCode::FAILURE
        }
    }
}

async fn measure(name: &str, arguments: &Arguments, report: &mut Report) -> Result<()> {
    report.begin(name);
    match name {
        "api" => api::run(arguments, report).await?,
        "dispatcher" => dispatcher::run(arguments, report).await?,
        "shooter" => shooter::run(arguments, report)?,
        "start" => start::run(arguments, report).await?,
        unknown => anyhow::bail!("there is no bench `{unknown}`; without a name they are listed"),
    }
    report.end();
    Ok(())
}
