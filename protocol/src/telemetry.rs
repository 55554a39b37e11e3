//! Logs to the console, for the servers.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

/// Starts logging: `level` for this project's crates, `root` for the rest, as JSON lines if asked. Once per process.
pub fn start(root: &str, level: &str, json: bool) -> Result<(), String> {
    let own = [
        "omgservers_service",
        "omgservers_dispatcher",
        "omgservers_runtime_sdk",
        "shooter_runtime",
        "omgctl",
    ];
    let filter = own.iter().fold(root.to_lowercase(), |filter, name| {
        format!("{filter},{name}={}", level.to_lowercase())
    });
    let filter = EnvFilter::builder()
        .parse(&filter)
        .map_err(|cause| format!("bad log level: {cause}"))?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let started = if json {
        lines.json().try_init()
    } else {
        lines.with_target(false).try_init()
    };
    started.map_err(|cause| cause.to_string())
}
