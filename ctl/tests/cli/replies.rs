//! Replies of the service that are always the same, by operation.

use serde_json::{Value, json};

/// A key of a developer.
pub(crate) const KEY: &str = "omgk.700.900.secret";

pub(crate) const CREATED: &str = "2025-01-23T10:20:30Z";

/// A page of these, as the call asks for it. The token is the number of rows before.
pub(crate) fn page(items: Vec<Value>, call: &Value) -> Value {
    let from: usize = call["page_token"].as_str().map_or(0, |token| token.parse().unwrap());
    let size = call["page_size"].as_u64().unwrap_or(50) as usize;
    let rest = &items[from..];
    let next = (rest.len() > size).then(|| (from + size).to_string());
    json!({"items": &rest[..size.min(rest.len())], "next_page_token": next})
}

pub(crate) fn reply(operation: &str, call: &Value) -> Option<Value> {
    let venue = |kind: &str, id: &str, mode: Value| {
        json!({"id": id, "qualifier": kind, "mode": mode, "state": "OPEN", "runtime_id": "1", "players": 2,
            "reason": null, "created": CREATED})
    };
    let listed = match operation {
        "list-tenants" => vec![
            json!({"id": "100", "created": CREATED, "aliases": [
                {"id": "7", "created": CREATED, "qualifier": "TENANT", "entity_id": "100", "value": "acme"}]}),
            json!({"id": "101", "created": CREATED, "aliases": []}),
            json!({"id": "102", "created": CREATED, "aliases": []}),
        ],
        "list-developers" | "list-users" => vec![
            json!({"id": "700", "role": "developer", "aliases": ["alice"], "created": CREATED, "deleted": false}),
            json!({"id": "701", "role": "developer", "aliases": [], "created": CREATED, "deleted": true}),
        ],
        "list-permissions" => {
            let permission = match (call.get("project"), call.get("stage")) {
                (_, Some(_)) => "STAGE_VIEWER",
                (Some(_), None) => "PROJECT_VIEWER",
                (None, None) => "TENANT_VIEWER",
            };
            vec![
                json!({"id": "8", "created": CREATED, "user_id": "700", "user_alias": "ada", "permission": permission}),
            ]
        }
        "list-usage" => vec![
            json!({"day": "2025-01-23", "runtime_seconds": 7200, "cpu_seconds": 3600,
            "memory_mb_seconds": 921_600, "player_seconds": 500, "runtimes_max": 3, "players_max": 12}),
        ],
        "list-audit-records" => vec![
            json!({"id": "1", "created": CREATED, "user_id": "700", "user_alias": "ada", "role": "developer",
                "api_key_id": "900", "operation": "deploy-version", "tenant_id": "100", "target": "500", "detail": "version 400"}),
            json!({"id": "2", "created": CREATED, "user_id": "2", "role": "support",
                "api_key_id": null, "operation": "create-tenant", "tenant_id": null, "target": null, "detail": null}),
        ],
        "list-shards" => vec![json!({"shard_index": 0, "database": 0, "bytes": 1_048_576})],
        "list-instances" => vec![
            json!({"instance_id": 0, "alive": true, "until": CREATED}),
            json!({"instance_id": 1, "alive": false, "until": CREATED}),
        ],
        "list-hosts" => vec![
            json!({"id": "50", "docker_daemon_uri": "unix:///var/run/docker.sock", "connected": true,
            "cpu_count": 8, "memory_size": 4096, "max_containers": 64, "cpu_used": 250, "memory_used": 1024,
            "containers": 3, "created": CREATED}),
        ],
        "list-failed-jobs" => vec![
            json!({"shard_index": 3, "kind": "cell", "key": "500", "attempts": 7, "error": "the config is damaged",
            "since": CREATED, "retry_at": CREATED}),
        ],
        "list-api-keys" => vec![
            json!({"id": "900", "name": "ci", "tenant_id": "100", "project_id": "200",
            "scopes": ["READ", "DEPLOY"], "created": CREATED, "expires": "2025-12-31T00:00:00Z"}),
        ],
        "list-versions" => vec![json!({"id": "400", "tenant_id": "100", "project_id": "200", "created": CREATED})],
        "list-files-archives" => vec![
            json!({"id": "950", "tenant_id": "100", "version_id": "400", "created": CREATED,
            "bytes": 1234, "files": 5, "sha256": "e3b0c442"}),
        ],
        "list-images" => vec![
            json!({"id": "9", "tenant_id": "100", "version_id": "400", "created": CREATED,
            "qualifier": "UNIVERSAL", "image_id": "shooter:dev"}),
        ],
        "list-stage-variables" => vec![
            json!({"name": "MOTD", "value": "hello", "secret": false, "modified": CREATED}),
            json!({"name": "DB_PASSWORD", "value": null, "secret": true, "modified": CREATED}),
        ],
        "list-lobbies" => vec![venue("LOBBY", "600", json!(null))],
        "list-matches" => vec![venue("MATCH", "601", json!("duel"))],
        "list-clients" => vec![
            json!({"client_id": "800", "user_id": "700", "venue_id": "601", "qualifier": "MATCH", "mode": "duel",
            "group": "red", "wanted_mode": null}),
            json!({"client_id": "801", "user_id": "702", "venue_id": "600", "qualifier": "LOBBY", "mode": null,
            "group": null, "wanted_mode": "duel"}),
            json!({"client_id": "802", "user_id": "703", "venue_id": null, "qualifier": null, "mode": null,
            "group": null, "wanted_mode": null}),
        ],
        _ => return other(operation, call),
    };
    Some(page(listed, call))
}

fn other(operation: &str, call: &Value) -> Option<Value> {
    Some(match operation {
        "bcrypt-hash" => json!({"hash": "$2a$10$abcdefghijklmnopqrstuv"}),
        "calculate-shard" => json!({"shard_index": 3, "server_uri": "http://gateway:8080"}),
        "ping-docker-host" => {
            let answers = call["docker_daemon_uri"] != "tcp://nobody:2375";
            json!({"successful": answers, "from_server": "http://gateway:8080"})
        }
        "reset-password" | "reset-developer-password" => json!({"user_id": "700", "password": "another-password"}),
        "get-tenant-quotas" => json!({
            "quotas": {"runtimes": 10, "cpu": null, "memory": 4096, "players": null},
            "in_use": {"runtimes": 3, "cpu": 300, "memory": 1536, "players": 12}}),
        "set-tenant-quotas" | "create-lobby-request" | "create-matchmaker-request" => json!({}),
        "create-api-key" => json!({"id": "900", "api_key": KEY}),
        "set-stage-variable" => json!({"created": call["name"] != "OLD"}),
        "get-version-config" => json!({"config": {"modes": [{"name": "duel", "min_players": 2, "max_players": 2,
            "groups": [{"name": "players", "min_players": 2, "max_players": 2}]}], "user_data": {"zeta": 1, "alpha": [1, 2]}}}),
        "get-deployment-config" => json!({"config": {"min_lobbies": 2}}),
        "upload-files-archive" => json!({"files_archive_id": "950"}),
        _ => return None,
    })
}
