//! One identifier type per entity. In JSON an id is a decimal string; a number is understood too.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[cfg_attr(feature = "sqlx", derive(sqlx::Type), sqlx(transparent))]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(value_type = String, pattern = "^[0-9]+$"))]
        pub struct $name(pub i64);

        impl $name {
            /// The bare number, which is also the shard key of entities that are their own.
            pub fn get(self) -> i64 {
                self.0
            }
        }

        impl From<i64> for $name {
            fn from(id: i64) -> Self {
                Self(id)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = std::num::ParseIntError;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse().map(Self)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(IdVisitor).map(Self)
            }
        }
    )*};
}

ids!(
    /// A studio.
    TenantId,
    /// A game of a tenant.
    ProjectId,
    /// A place of a project where one version is live, such as `prod`.
    StageId,
    /// One build of a game with its configuration.
    VersionId,
    /// A version running on a stage.
    DeploymentId,
    /// The image of a version.
    ImageId,
    /// Somebody with a password: operator, developer or player.
    UserId,
    /// A user on one stage, with a profile.
    PlayerId,
    /// One connection of a player to a deployment.
    ClientId,
    /// A message to a client.
    MessageId,
    /// The queue of players that wait for a lobby of one deployment.
    QueueId,
    /// Where players of one deployment gather.
    LobbyId,
    /// Puts players of one deployment into matches.
    MatchmakerId,
    /// A game that players are in.
    MatchId,
    /// One running game server.
    RuntimeId,
    /// A command to a runtime.
    CommandId,
    /// A set of hosts.
    PoolId,
    /// A machine that runs runtimes.
    HostId,
    /// A permission that was granted.
    PermissionId,
    /// A name of an entity.
    AliasId,
    /// The files of a version that an image is to be built from.
    FilesArchiveId,
    /// A key for programs that act for a developer.
    ApiKeyId,
    /// One entry of the audit log.
    AuditId,
    /// A developer's machine on which a stage's runtimes run for a while.
    LocalRunId,
);

struct IdVisitor;

impl Visitor<'_> for IdVisitor {
    type Value = i64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an id: a decimal string or a whole number")
    }

    fn visit_i64<E: de::Error>(self, id: i64) -> Result<i64, E> {
        Ok(id)
    }

    fn visit_u64<E: de::Error>(self, id: u64) -> Result<i64, E> {
        i64::try_from(id).map_err(|_| E::custom("id out of range"))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<i64, E> {
        text.parse()
            .map_err(|_| E::custom(format_args!("`{text}` is not an id")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_from_text_and_number_and_written_as_text() {
        for input in ["\"245515657456648192\"", "245515657456648192"] {
            let id: TenantId = serde_json::from_str(input).unwrap();
            assert_eq!(serde_json::to_string(&id).unwrap(), "\"245515657456648192\"");
        }
        for input in ["\"x\"", "1.5", "null", "\"\"", "99999999999999999999"] {
            assert!(serde_json::from_str::<TenantId>(input).is_err(), "{input}");
        }
    }
}
