//! Logs to the console, for programs of the platform.

use std::io::IsTerminal as _;

use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer};

/// This project's crates.
pub(crate) const OWN: [&str; 6] = [
    "omgservers_protocol",
    "omgservers_service",
    "omgservers_dispatcher",
    "omgservers_runtime_sdk",
    "shooter_runtime",
    "omgctl",
];

/// Crates that carry HTTP.
const TRAFFIC: [&str; 7] = ["bollard", "h2", "hyper", "hyper_util", "reqwest", "tonic", "tower_http"];

/// What is logged.
#[derive(Debug, Clone, Copy)]
pub struct Logs<'a> {
    /// Level of this project's crates.
    pub app: &'a str,
    /// Level of the crates that carry HTTP, if it is not that of the rest.
    pub traffic: Option<&'a str>,
    /// Level of the rest.
    pub root: &'a str,
    /// As JSON lines.
    pub json: bool,
}

impl Logs<'_> {
    pub(crate) fn filter(&self) -> Result<EnvFilter, String> {
        let own = OWN.iter().map(|name| (name, self.app));
        let traffic = TRAFFIC.iter().filter_map(|name| Some((name, self.traffic?)));
        let filter = own
            .chain(traffic)
            .fold(self.root.to_lowercase(), |filter, (name, level)| {
                format!("{filter},{name}={}", level.to_lowercase())
            });
        EnvFilter::builder()
            .parse(&filter)
            .map_err(|cause| format!("bad log level: {cause}"))
    }

    pub(crate) fn lines<S>(&self) -> Box<dyn Layer<S> + Send + Sync>
    where
        S: tracing::Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
    {
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            .with_ansi(std::io::stderr().is_terminal());
        if self.json {
            lines.json().boxed()
        } else {
            lines.with_target(false).boxed()
        }
    }
}

/// Starts logging: `level` for this project's crates, `root` for the rest, as JSON lines if asked. Once per process.
pub fn start(root: &str, level: &str, json: bool) -> Result<(), String> {
    let logs = Logs {
        app: level,
        traffic: None,
        root,
        json,
    };
    let started = tracing_subscriber::registry()
        .with(logs.filter()?)
        .with(logs.lines())
        .try_init();
    started.map_err(|cause| cause.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_level_is_refused_and_a_good_one_may_be_in_capitals() {
        let logs = |app| Logs {
            app,
            traffic: Some("INFO"),
            root: "WARN",
            json: false,
        };
        let filter = logs("DEBUG").filter().unwrap().to_string();
        assert!(
            filter.contains("omgservers_service=debug") && filter.contains("hyper=info"),
            "{filter}"
        );
        assert!(logs("LOUD").filter().is_err());
    }
}
