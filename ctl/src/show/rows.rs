//! What is listed, line by line.

use omgservers_protocol::admin::{FailedJob, Host, Instance, Shard, User};
use omgservers_protocol::audit::{AuditRecord, UsageRecord};
use omgservers_protocol::developer::{
    Alias, ApiKey, ClientStatus, Deployment, FilesArchive, Image, MatchmakerRefRow, PermissionRow, Project,
    ProjectPermissionRow, Stage, StagePermissionRow, StageVariable, Tenant, TenantPermissionRow, VenueStatus, Version,
    VersionOfProject,
};

use crate::table::Row;

/// The heading of each kind of row, and its columns.
macro_rules! rows {
    ($($row:ty, $heading:literal, $this:ident { $($title:literal = $cell:expr),* $(,)? })*) => {$(
        impl Row for $row {
            const HEADING: &'static str = $heading;
            const TITLES: &'static [&'static str] = &[$($title),*];

            fn cells(&self) -> Vec<String> {
                let $this = self;
                vec![$($cell.to_string()),*]
            }
        }
    )*};
}

rows! {
    Tenant, "Tenants", row { "ID" = row.id, "ALIASES" = names(&row.aliases), "CREATED" = row.created }
    Project, "Projects", row { "ID" = row.id, "ALIASES" = names(&row.aliases), "CREATED" = row.created }
    Stage, "Stages", row { "ID" = row.id, "ALIASES" = names(&row.aliases), "CREATED" = row.created }
    Version, "Versions", row { "ID" = row.id, "CREATED" = row.created }
    VersionOfProject, "Versions", row { "ID" = row.id, "CREATED" = row.created }
    Deployment, "Deployments", row {
        "ID" = row.id, "VERSION" = row.version_id, "CREATED" = row.created, "DELETED" = or_nothing(&row.deleted),
    }
    Image, "Images", row { "FOR" = row.qualifier, "IMAGE" = row.image_id, "CREATED" = row.created }
    FilesArchive, "Files archives", row {
        "ID" = row.id, "FILES" = row.files, "BYTES" = row.bytes, "CREATED" = row.created, "SHA256" = row.sha256,
    }
    VenueStatus, "Lobbies and matches", row {
        "ID" = row.id,
        "KIND" = row.qualifier,
        "MODE" = or_nothing(&row.mode),
        "STATE" = row.state,
        "PLAYERS" = row.players,
        "RUNTIME" = row.runtime_id,
        "CREATED" = row.created,
        "REASON" = or_nothing(&row.reason),
    }
    MatchmakerRefRow, "Matchmakers", row { "ID" = row.matchmaker_id, "CREATED" = row.created }
    ClientStatus, "Players", row {
        "CLIENT" = row.client_id,
        "USER" = row.user_id,
        "IN" = or_nothing(&row.venue_id),
        "KIND" = or_nothing(&row.qualifier),
        "MODE" = or_nothing(&row.mode),
        "GROUP" = or_nothing(&row.group),
        "WAITS FOR" = row.wanted_mode.as_deref().unwrap_or(if row.venue_id.is_none() { "a lobby" } else { "" }),
    }
    StageVariable, "Variables", row {
        "NAME" = row.name,
        "VALUE" = row.value.as_deref().unwrap_or("(secret)"),
        "MODIFIED" = row.modified,
    }
    TenantPermissionRow, "Permissions", row {
        "DEVELOPER" = row.user_id, "PERMISSION" = row.permission, "CREATED" = row.created,
    }
    ProjectPermissionRow, "Permissions", row {
        "DEVELOPER" = row.user_id, "PERMISSION" = row.permission, "CREATED" = row.created,
    }
    StagePermissionRow, "Permissions", row {
        "DEVELOPER" = row.user_id, "PERMISSION" = row.permission, "CREATED" = row.created,
    }
    PermissionRow, "Permissions", row {
        "DEVELOPER" = row.user_id,
        "NAME" = or_nothing(&row.user_alias),
        "PERMISSION" = row.permission,
        "CREATED" = row.created,
    }
    ApiKey, "Keys", row {
        "ID" = row.id,
        "NAME" = row.name,
        "TENANT" = row.tenant_id,
        "PROJECT" = or_nothing(&row.project_id),
        "SCOPES" = row.scopes.iter().map(|scope| scope.as_str()).collect::<Vec<_>>().join(", "),
        "EXPIRES" = row.expires,
    }
    User, "Users", row {
        "ID" = row.id,
        "ROLE" = row.role,
        "ALIASES" = row.aliases.join(", "),
        "CREATED" = row.created,
        "DELETED" = if row.deleted { "yes" } else { "" },
    }
    AuditRecord, "Audit records", row {
        "CREATED" = row.created,
        "USER" = row.user_id,
        "NAME" = or_nothing(&row.user_alias),
        "ROLE" = row.role,
        "KEY" = or_nothing(&row.api_key_id),
        "OPERATION" = row.operation,
        "TENANT" = or_nothing(&row.tenant_id),
        "TARGET" = or_nothing(&row.target),
        "DETAIL" = or_nothing(&row.detail),
    }
    UsageRecord, "Usage", row {
        "DAY" = row.day,
        "RUNTIME S" = row.runtime_seconds,
        "CPU S" = row.cpu_seconds,
        "MEMORY MB S" = row.memory_mb_seconds,
        "PLAYER S" = row.player_seconds,
        "RUNTIMES MAX" = row.runtimes_max,
        "PLAYERS MAX" = row.players_max,
    }
    Shard, "Shards", row { "SHARD" = row.shard_index, "DATABASE" = row.database, "BYTES" = row.bytes }
    FailedJob, "Failed jobs", row {
        "SHARD" = row.shard_index,
        "KIND" = row.kind,
        "KEY" = row.key,
        "ATTEMPTS" = row.attempts,
        "SINCE" = row.since,
        "NEXT" = row.retry_at,
        "ERROR" = row.error,
    }
    Instance, "Instances", row {
        "INSTANCE" = row.instance_id, "ALIVE" = if row.alive { "yes" } else { "no" }, "UNTIL" = row.until,
    }
    Host, "Hosts", row {
        "ID" = row.id,
        "ADDRESS" = row.docker_daemon_uri,
        "CONNECTED" = if row.connected { "yes" } else { "no" },
        "CPU" = format!("{}/{}", row.cpu_used, i64::from(row.cpu_count) * 100),
        "MEMORY MB" = format!("{}/{}", row.memory_used, row.memory_size),
        "CONTAINERS" = format!("{}/{}", row.containers, row.max_containers),
        "CREATED" = row.created,
    }
}

/// The names of something, in one cell.
pub(super) fn names(aliases: &[Alias]) -> String {
    let names: Vec<_> = aliases.iter().map(|alias| alias.value.as_str()).collect();
    names.join(", ")
}

fn or_nothing(value: &Option<impl ToString>) -> String {
    value.as_ref().map(ToString::to_string).unwrap_or_default()
}
