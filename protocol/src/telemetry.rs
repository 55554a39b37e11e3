//! Logs to the console, for programs of the platform.

use std::io::IsTerminal as _;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

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

/// A level of logs by its name, in capitals or not.
pub fn level(name: &str) -> Result<LevelFilter, String> {
    match name.to_ascii_uppercase().as_str() {
        "OFF" => Ok(LevelFilter::OFF),
        "ERROR" => Ok(LevelFilter::ERROR),
        "WARN" => Ok(LevelFilter::WARN),
        "INFO" => Ok(LevelFilter::INFO),
        "DEBUG" => Ok(LevelFilter::DEBUG),
        "TRACE" => Ok(LevelFilter::TRACE),
        _ => Err(format!(
            "the level of logs is OFF, ERROR, WARN, INFO, DEBUG or TRACE, not `{name}`"
        )),
    }
}

/// What is logged.
#[derive(Debug, Clone, Copy)]
pub struct Logs {
    /// Level of this project's crates.
    pub app: LevelFilter,
    /// Level of the crates that carry HTTP, if it is not that of the rest.
    pub traffic: Option<LevelFilter>,
    /// Level of the rest.
    pub root: LevelFilter,
    /// As JSON lines.
    pub json: bool,
}

impl Logs {
    pub(crate) fn filter(&self) -> Targets {
        let own = OWN.iter().map(|name| (*name, self.app));
        let traffic = TRAFFIC.iter().filter_map(|name| Some((*name, self.traffic?)));
        Targets::new().with_default(self.root).with_targets(own.chain(traffic))
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

/// Starts logging: level `own` for this project's crates, `root` for the rest, as JSON lines if asked. Once per process.
pub fn start(root: &str, own: &str, json: bool) -> Result<(), String> {
    let logs = Logs {
        app: level(own)?,
        traffic: None,
        root: level(root)?,
        json,
    };
    let started = tracing_subscriber::registry()
        .with(logs.filter())
        .with(logs.lines())
        .try_init();
    started.map_err(|cause| cause.to_string())
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn a_bad_level_is_refused_and_a_good_one_may_be_in_capitals() {
        let logs = Logs {
            app: level("DEBUG").unwrap(),
            traffic: Some(level("info").unwrap()),
            root: level("Warn").unwrap(),
            json: false,
        };
        let filter = logs.filter();
        let is_shown = |target, level| filter.would_enable(target, &level);
        assert!(is_shown("omgservers_service::api", Level::DEBUG) && !is_shown("omgservers_service", Level::TRACE));
        assert!(is_shown("hyper", Level::INFO) && !is_shown("hyper", Level::DEBUG));
        assert!(is_shown("sqlx", Level::WARN) && !is_shown("sqlx", Level::INFO));
        for bad in ["LOUD", "", "3", "info,sqlx=debug"] {
            assert!(level(bad).unwrap_err().contains(bad));
        }
    }
}
