//! The documents a developer hands in: what a version needs, and how a deployment is run.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::Json;
use crate::id::{LobbyId, MatchId, MatchmakerId};

/// Modes of a version, and groups of a mode.
const MODES_MAX: usize = 100;

/// The modes of a game and whatever else its runtimes should know.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct VersionConfig {
    pub modes: Vec<ModeConfig>,
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub user_data: Option<Json>,
}

/// One kind of match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ModeConfig {
    pub name: String,
    pub min_players: u32,
    pub max_players: u32,
    pub groups: Vec<GroupConfig>,
}

/// One side of a match, such as a team.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GroupConfig {
    pub name: String,
    pub min_players: u32,
    pub max_players: u32,
}

impl VersionConfig {
    pub fn mode(&self, name: &str) -> Option<&ModeConfig> {
        self.modes.iter().find(|mode| mode.name == name)
    }

    /// What is wrong with it, if anything.
    pub fn check(&self) -> Result<(), String> {
        if self.modes.len() > MODES_MAX {
            return Err(format!("a version has at most {MODES_MAX} modes"));
        }
        let mut names = HashSet::new();
        for (index, mode) in self.modes.iter().enumerate() {
            let name = &mode.name;
            let named = |name: &str| !name.trim().is_empty() && name.chars().count() <= 64 && !name.contains('\0');
            if !named(name) {
                return Err(format!(
                    "the name of mode {index} must not be blank, and have at most 64 characters"
                ));
            }
            if !names.insert(name) {
                return Err(format!("mode `{name}` is there twice"));
            }
            if mode.groups.is_empty() || mode.groups.len() > MODES_MAX {
                return Err(format!("mode `{name}` needs 1 to {MODES_MAX} groups"));
            }
            if mode.max_players == 0 || mode.min_players > mode.max_players {
                return Err(format!(
                    "mode `{name}` needs 1 ≤ max_players and min_players ≤ max_players"
                ));
            }
            let mut groups = HashSet::new();
            for group in &mode.groups {
                if !named(&group.name) {
                    return Err(format!(
                        "a group name of mode `{name}` is blank or longer than 64 characters"
                    ));
                }
                if !groups.insert(&group.name) {
                    return Err(format!("group `{}` of mode `{name}` is there twice", group.name));
                }
                if group.min_players == 0 || group.min_players > group.max_players {
                    let group = &group.name;
                    return Err(format!(
                        "group `{group}` of mode `{name}` needs 1 ≤ min_players ≤ max_players"
                    ));
                }
            }
            let sum =
                |count: fn(&GroupConfig) -> u32| mode.groups.iter().map(|group| u64::from(count(group))).sum::<u64>();
            if sum(|group| group.min_players) > u64::from(mode.max_players) {
                return Err(format!(
                    "the groups of mode `{name}` need more players than the mode allows"
                ));
            }
            if sum(|group| group.max_players) < u64::from(mode.min_players) {
                return Err(format!(
                    "the groups of mode `{name}` hold fewer players than the mode needs"
                ));
            }
        }
        Ok(())
    }
}

/// How a deployment is run. Everything is optional.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct DeploymentConfig {
    /// Lobbies that are kept running, with players or without.
    pub min_lobbies: u32,
    pub max_lobbies: u32,
    pub lobby: LobbyConfigOf,
    #[serde(rename = "match")]
    pub match_: MatchConfigOf,
    pub matchmaker: MatchmakerConfigOf,
}

impl Default for DeploymentConfig {
    fn default() -> Self {
        Self {
            min_lobbies: 1,
            max_lobbies: 16,
            lobby: LobbyConfigOf::default(),
            match_: MatchConfigOf::default(),
            matchmaker: MatchmakerConfigOf::default(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct LobbyConfigOf {
    /// Players in one lobby.
    pub max_assignments: u32,
    /// Milliseconds of CPU per 100 ms; 0 is the installation's default.
    pub cpu_limit: u32,
    /// Megabytes; 0 is the installation's default.
    pub memory_limit: u32,
}

impl Default for LobbyConfigOf {
    fn default() -> Self {
        Self {
            max_assignments: 128,
            cpu_limit: 0,
            memory_limit: 0,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct MatchConfigOf {
    pub cpu_limit: u32,
    pub memory_limit: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct MatchmakerConfigOf {
    pub max_matches: u32,
    /// Per mode, by its name.
    pub modes: std::collections::BTreeMap<String, SpareMatches>,
}

impl Default for MatchmakerConfigOf {
    fn default() -> Self {
        Self {
            max_matches: 256,
            modes: Default::default(),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct SpareMatches {
    /// Empty matches that are kept ready.
    pub min_matches: u32,
}

impl DeploymentConfig {
    /// What is wrong with it for this version, if anything.
    pub fn check(&self, version: &VersionConfig) -> Result<(), String> {
        if self.min_lobbies > self.max_lobbies || self.max_lobbies == 0 || self.max_lobbies > 1_000 {
            return Err("the deployment needs min_lobbies ≤ max_lobbies, and max_lobbies from 1 to 1000".into());
        }
        if self.lobby.max_assignments == 0 {
            return Err("lobby.max_assignments must be at least 1".into());
        }
        if self.matchmaker.max_matches > 100_000 {
            return Err("matchmaker.max_matches must be at most 100000".into());
        }
        if let Some(name) = self.matchmaker.modes.keys().find(|name| version.mode(name).is_none()) {
            return Err(format!("the version has no mode `{name}`"));
        }
        let spares: u64 = self
            .matchmaker
            .modes
            .values()
            .map(|spare| u64::from(spare.min_matches))
            .sum();
        if spares > u64::from(self.matchmaker.max_matches) {
            return Err("the min_matches of all modes together exceed max_matches".into());
        }
        Ok(())
    }
}

/// What kind of runtime it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RuntimeQualifier {
    Lobby,
    Match,
}

impl RuntimeQualifier {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lobby => "LOBBY",
            Self::Match => "MATCH",
        }
    }
}

/// What a runtime is told about itself; players see it too.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RuntimeConfig {
    pub lobby_config: Option<LobbyRef>,
    pub match_config: Option<MatchRef>,
    pub version_config: VersionConfig,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LobbyRef {
    pub lobby_id: LobbyId,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MatchRef {
    pub matchmaker_id: MatchmakerId,
    pub match_id: MatchId,
    /// The mode's name. Old SDKs do not look at it.
    #[serde(default)]
    pub mode: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(config: serde_json::Value) -> Result<(), String> {
        serde_json::from_value::<VersionConfig>(config).unwrap().check()
    }

    #[test]
    fn a_mode_must_be_playable() {
        let mode = |min: u32, max: u32, group_min: u32, group_max: u32| {
            serde_json::json!({"modes": [{"name": "duel", "min_players": min, "max_players": max,
                "groups": [{"name": "red", "min_players": group_min, "max_players": group_max}]}]})
        };
        assert_eq!(check(mode(1, 2, 1, 2)), Ok(()));
        assert_eq!(check(serde_json::json!({"modes": []})), Ok(()));
        for broken in [
            mode(3, 2, 1, 2),
            mode(1, 2, 2, 1),
            mode(1, 2, 3, 3),
            mode(2, 2, 1, 1),
            mode(0, 0, 1, 1),
        ] {
            assert!(check(broken.clone()).is_err(), "{broken}");
        }
    }

    #[test]
    fn names_are_there_once_and_there_is_an_end_to_them() {
        let groups = |names: &[String]| -> Vec<serde_json::Value> {
            let group = |name| serde_json::json!({"name": name, "min_players": 1, "max_players": 1});
            names.iter().map(group).collect()
        };
        let mode = |name: &str, names: &[String]| serde_json::json!({"name": name, "min_players": 1, "max_players": 100, "groups": groups(names)});
        let names = |count: usize| (0..count).map(|n| n.to_string()).collect::<Vec<_>>();
        let modes = |modes: Vec<serde_json::Value>| check(serde_json::json!({"modes": modes}));
        assert_eq!(modes(vec![mode("a", &names(100)), mode("b", &names(1))]), Ok(()));
        let many = |count| names(count).iter().map(|name| mode(name, &names(1))).collect();
        assert_eq!(modes(many(100)), Ok(()));
        for (broken, reason) in [
            (vec![mode("a", &names(101))], "needs 1 to 100 groups"),
            (many(101), "at most 100 modes"),
            (
                vec![mode("a", &names(1)), mode("a", &names(1))],
                "mode `a` is there twice",
            ),
            (
                vec![mode("a", &["x".into(), "x".into()])],
                "group `x` of mode `a` is there twice",
            ),
        ] {
            let refused = modes(broken).unwrap_err();
            assert!(refused.contains(reason), "{refused}");
        }
    }
}
