//! Settings: those of the process, from its environment, and those of the game, from the version's `user_data`.

use clap::Parser;
use omgservers_runtime_sdk::Json;
use serde::Deserialize;
use shooter_simulation::{Mode, Rules, TICK_RATE};

/// The shooter: lobby and match in one image. The platform says which by `OMGSERVERS_RUNTIME_QUALIFIER`.
#[derive(Debug, Clone, Parser)]
#[command(name = "shooter-runtime", version)]
pub struct ProcessConfig {
    /// Level of this program's own log lines.
    #[arg(long, env = "OMGSERVERS_LOGGING_APP_LOGS_LEVEL", default_value = "INFO")]
    pub log_level: String,
    /// Level of all other log lines.
    #[arg(long, env = "OMGSERVERS_LOGGING_ROOT_LOGS_LEVEL", default_value = "WARN")]
    pub log_level_root: String,
    /// Write log lines as JSON.
    #[arg(long, env = "OMGSERVERS_LOGGING_JSON", default_value_t = false)]
    pub log_json: bool,
}

/// `user_data` of the version config. Everything is optional; numbers are brought into their limits.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct GameConfig {
    pub bots: Bots,
    /// Kills that win.
    pub frag_limit: u16,
    pub time_limit_s: u32,
    /// From the end of a match to the way back to the lobby.
    pub closing_s: u32,
    /// How long a body waits for a lost connection.
    pub grace_s: u32,
}

/// Bodies up to which bots fill a match.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Bots {
    pub duel: u16,
    pub arena: u16,
}

impl Default for Bots {
    fn default() -> Self {
        Self { duel: 0, arena: 12 }
    }
}

impl Default for GameConfig {
    fn default() -> Self {
        Self {
            bots: Bots::default(),
            frag_limit: 20,
            time_limit_s: 300,
            closing_s: 8,
            grace_s: 15,
        }
    }
}

/// More bots make a match no better and a snapshot no smaller.
const BOTS_MAX: u16 = 64;

impl GameConfig {
    /// The defaults, with the reason, where the document cannot be read.
    pub fn parse(user_data: Option<&Json>) -> (Self, Option<serde_json::Error>) {
        let read = match user_data.map(|json| json.get()) {
            None | Some("null") => Ok(Self::default()),
            Some(text) => serde_json::from_str::<Self>(text),
        };
        match read {
            Ok(config) => (config.within_limits(), None),
            Err(cause) => (Self::default(), Some(cause)),
        }
    }

    fn within_limits(mut self) -> Self {
        self.bots.duel = self.bots.duel.min(BOTS_MAX);
        self.bots.arena = self.bots.arena.min(BOTS_MAX);
        self.frag_limit = self.frag_limit.clamp(1, 1_000);
        self.time_limit_s = self.time_limit_s.clamp(5, 3_600);
        self.closing_s = self.closing_s.clamp(1, 60);
        self.grace_s = self.grace_s.clamp(1, 300);
        self
    }

    pub fn bots(&self, mode: Mode) -> u16 {
        match mode {
            Mode::Duel => self.bots.duel,
            Mode::Arena => self.bots.arena,
        }
    }

    pub fn rules(&self) -> Rules {
        Rules {
            frag_limit: self.frag_limit,
            time_limit: self.time_limit_s * TICK_RATE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> (GameConfig, bool) {
        let json = serde_json::value::RawValue::from_string(text.to_owned()).unwrap();
        let (config, cause) = GameConfig::parse(Some(&json));
        (config, cause.is_some())
    }

    #[test]
    fn everything_is_optional() {
        assert_eq!(parse("{}"), (GameConfig::default(), false));
        assert_eq!(parse("null"), (GameConfig::default(), false));
        assert_eq!(GameConfig::parse(None).0, GameConfig::default());
        let (config, _) = parse(r#"{"bots":{"arena":3},"frag_limit":5,"theme":"ice"}"#);
        assert_eq!((config.bots.duel, config.bots.arena, config.frag_limit), (0, 3, 5));
    }

    #[test]
    fn senseless_numbers_are_brought_into_limits_and_senseless_documents_ignored() {
        let (config, _) = parse(r#"{"bots":{"arena":60000},"frag_limit":0,"time_limit_s":0,"closing_s":9999}"#);
        assert_eq!((config.bots.arena, config.frag_limit), (64, 1));
        assert_eq!((config.time_limit_s, config.closing_s), (5, 60));
        assert_eq!(parse(r#"{"bots":12}"#), (GameConfig::default(), true));
    }

    #[test]
    fn the_documents_of_this_folder_are_accepted_by_the_platform() {
        use omgservers_protocol::config::{DeploymentConfig, VersionConfig};
        let version: VersionConfig = serde_json::from_str(include_str!("../version.json")).unwrap();
        assert_eq!(version.check(), Ok(()));
        for mode in Mode::ALL {
            assert!(version.mode(mode.name()).is_some(), "{mode:?}");
        }
        let (_, cause) = GameConfig::parse(version.user_data.as_ref());
        assert!(cause.is_none(), "{cause:?}");
        let deployment: DeploymentConfig = serde_json::from_str(include_str!("../deployment.json")).unwrap();
        assert_eq!(deployment.check(&version), Ok(()));
    }
}
