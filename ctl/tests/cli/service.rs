//! As much of the service's HTTP contract as the command line needs: users with fixed passwords, a little state that
//! survives a restart, refusals for names that ask for them.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::local_run::stand_in as local_run;
use crate::replies::{self, CREATED, page};

#[derive(Clone)]
pub(crate) struct Service {
    file: Arc<PathBuf>,
    lock: Arc<Mutex<()>>,
}

/// A key that lacks every scope.
const KEY_FOR_NOTHING: &str = "Bearer omgk.700.901.x";

/// What it remembers, by name.
pub(crate) type World = BTreeMap<String, Value>;

impl Service {
    /// State and the list of calls are kept in that folder.
    pub(crate) fn new(folder: &Path) -> Self {
        Self {
            file: Arc::new(folder.join("world.json")),
            lock: Arc::default(),
        }
    }

    pub(crate) fn router(self) -> Router {
        Router::new().fallback(answer).with_state(self)
    }

    /// Serves on a free port in a thread of its own, until the test ends.
    pub(crate) fn start(self) -> SocketAddr {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                axum::serve(listener, self.router()).await.unwrap();
            });
        });
        address
    }

    /// Operations that were asked for, in order.
    pub(crate) fn calls(&self) -> Vec<String> {
        let world = self.read();
        let calls = world
            .get("calls")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        calls.iter().map(|call| call.as_str().unwrap().to_owned()).collect()
    }

    /// Changes what it remembers, from outside.
    pub(crate) fn change(&self, change: impl FnOnce(&mut World)) {
        let _guard = self.lock.lock().unwrap();
        let mut world = self.read();
        change(&mut world);
        self.write(&world);
    }

    /// At once or not at all: tests read while it answers.
    fn write(&self, world: &World) {
        let new = self.file.with_extension("new");
        std::fs::write(&new, serde_json::to_vec(world).unwrap()).unwrap();
        std::fs::rename(new, &*self.file).unwrap();
    }

    pub(crate) fn read(&self) -> World {
        std::fs::read(&*self.file)
            .map(|content| serde_json::from_slice(&content).unwrap())
            .unwrap_or_default()
    }
}

/// Somebody who says the same to everybody, until the test ends.
pub(crate) fn always(response: String) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let _ = connection.read(&mut [0; 4_096]);
            let _ = connection.write_all(format!("{response}\r\nconnection: close\r\n\r\n<html>").as_bytes());
        }
    });
    address
}

pub(crate) type Answer = Result<Value, (u16, &'static str, &'static str)>;

async fn answer(State(service): State<Service>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let _guard = service.lock.lock().unwrap();
    let path = uri.path();
    let Some((area, operation)) = path
        .strip_prefix("/service/v1/entrypoint/")
        .and_then(|path| path.split_once("/request/"))
    else {
        return StatusCode::NOT_FOUND.into_response();
    };
    // A form is the only body that is no JSON.
    let call: Value = if operation == "upload-files-archive" {
        std::fs::write(service.file.with_file_name("uploaded"), &body).unwrap();
        let form = String::from_utf8_lossy(&body);
        let field = |name: &str| {
            let value = form.split_once(&format!("name=\"{name}\"\r\n\r\n")).unwrap().1;
            value.split_once("\r\n").unwrap().0.to_owned()
        };
        json!({"tenant": field("tenant"), "version": field("tenantVersionId")})
    } else {
        serde_json::from_slice(&body).unwrap()
    };
    let token = headers
        .get("authorization")
        .map(|value| value.to_str().unwrap().to_owned());
    let mut world = service.read();
    let accepted = [
        format!("Bearer token.of.{area}"),
        format!("Bearer {}", replies::KEY),
        KEY_FOR_NOTHING.to_owned(),
    ];
    let answer = if operation == "create-token" {
        log_in(&world, &call)
    } else if world.contains_key("expired") && area == "developer" {
        if world["expired"] != "always" {
            world.remove("expired");
        }
        Err((401, "WRONG_CREDENTIALS", "the token has expired"))
    } else if token
        .as_ref()
        .is_some_and(|token| token.starts_with("Bearer token.of.") && !accepted.contains(token))
    {
        let message = format!("this operation is for the role `{area}`");
        Err((403, "PERMISSION_NOT_FOUND", &*message.leak()))
    } else if !token.as_ref().is_some_and(|token| accepted.contains(token)) {
        Err((401, "WRONG_CREDENTIALS", "the token is not valid"))
    } else if token.is_some_and(|token| token == KEY_FOR_NOTHING) {
        Err((403, "PERMISSION_NOT_FOUND", "the scope of the key is missing"))
    } else if world.contains_key("deleted") {
        Err((401, "USER_NOT_FOUND", "the user is deleted"))
    } else if operation == "change-password" && call["password"] != password(&world, area) {
        Err((401, "WRONG_CREDENTIALS", "the password is wrong"))
    } else if operation == "change-password" {
        world.insert(format!("password {area}"), call["new_password"].clone());
        Ok(json!({}))
    } else if operation == "renew-token" {
        Ok(json!({"raw_token": format!("token.of.{area}")}))
    } else if let Some(answer) = local_run::answer(&mut world, operation, &call) {
        answer
    } else {
        operate(&mut world, operation, &call)
    };
    if operation != "interchange-local-run" {
        let calls = world.entry("calls".to_owned()).or_insert(json!([]));
        calls.as_array_mut().unwrap().push(json!(format!("{area} {operation}")));
    }
    service.write(&world);
    match answer {
        Ok(reply) => axum::Json(reply).into_response(),
        Err((status, qualifier, message)) => {
            let body = axum::Json(json!({"qualifier": qualifier, "message": message}));
            (StatusCode::from_u16(status).unwrap(), body).into_response()
        }
    }
}

fn log_in(world: &World, call: &Value) -> Answer {
    let user = call
        .get("user")
        .or(call.get("user_id"))
        .and_then(Value::as_str)
        .unwrap();
    // As the service does, whoever knows a password gets a token of their own role, at every door.
    let role = match user {
        "admin" | "support" => user,
        user if user == "700" || world.contains_key(&format!("developer {user}")) => "developer",
        _ => return Err((404, "OBJECT_NOT_FOUND", format!("user `{user}` not found").leak())),
    };
    match call["password"] == password(world, role) {
        true => Ok(json!({"raw_token": format!("token.of.{role}")})),
        false => Err((401, "WRONG_CREDENTIALS", "the password is wrong")),
    }
}

fn password(world: &World, area: &str) -> Value {
    match (world.get(&format!("password {area}")), area) {
        (Some(changed), _) => changed.clone(),
        (None, "developer") => json!("developer-password"),
        (None, area) => json!(area),
    }
}

/// The names that something was given.
fn aliases(world: &World, kind: &str, id: &str) -> Value {
    let names = world.iter().filter_map(|(key, value)| {
        let name = key.strip_prefix(kind)?.strip_prefix(' ')?;
        (value == id).then(|| json!({"id": "7", "created": CREATED, "qualifier": "X", "entity_id": id, "value": name}))
    });
    names.collect()
}

fn operate(world: &mut World, operation: &str, call: &Value) -> Answer {
    for name in ["tenant", "project", "stage"] {
        match call.get(name).and_then(Value::as_str) {
            Some("forbidden") => return Err((403, "PERMISSION_NOT_FOUND", "a permission is missing")),
            Some("broken") => return Err((500, "INTERNAL_EXCEPTION_OCCURRED", "internal error")),
            Some("away") => return Err((503, "INTERNAL_EXCEPTION_OCCURRED", "no instance of the service answers")),
            Some("poor") => return Err((403, "QUOTA_EXCEEDED", "the tenant may not have more runtimes")),
            Some(alias) if alias.parse::<i64>().is_err() && !world.contains_key(&format!("{name} {alias}")) => {
                return Err((404, "OBJECT_NOT_FOUND", format!("{name} `{alias}` not found").leak()));
            }
            _ => {}
        }
    }
    let alias = |kind: &str, id: &str| json!([{"id": "7", "created": CREATED, "qualifier": kind, "entity_id": id, "value": "a-name"}]);
    let stage = json!({"id": "301", "tenant_id": "100", "project_id": "200", "created": CREATED, "aliases": alias("STAGE", "301")});
    let deployments = world.get("deployments").cloned().unwrap_or(json!([]));
    let reason = world.get("reason").cloned().unwrap_or_default();
    let lobby = if reason.is_null() { "OPEN" } else { "PENDING" };
    let grant = |permission: &str, level: &str| json!({"id": "8", "tenant_id": "100", level: "1", "created": CREATED, "user_id": "700", "permission": permission});
    Ok(match operation {
        "generate-id" => json!({"id": "790000000000000001"}),
        "create-tenant" => json!({"id": "100"}),
        "create-tenant-alias" | "create-project-alias" | "create-stage-alias" | "create-developer-alias" => {
            let alias = call["alias"].as_str().unwrap();
            if alias == "taken" {
                return Err((400, "DB_CONSTRAINT_VIOLATED", "the alias is there already"));
            }
            let kind = operation
                .strip_prefix("create-")
                .and_then(|rest| rest.strip_suffix("-alias"))
                .unwrap();
            let id = ["tenant_id", "project_id", "stage_id", "user_id"].map(|name| call.get(name).cloned());
            world.insert(format!("{kind} {alias}"), id.into_iter().flatten().next().unwrap());
            json!({})
        }
        "create-developer" => json!({"user_id": "700", "password": "developer-password"}),
        operation if operation.ends_with("-permissions") && operation.starts_with("create-") => {
            // Whoever has the number 701 has everything already.
            let has = call["user_id"] == "701" || call["stage"] == "deleted";
            world.insert(operation.to_owned(), call["permissions_to_create"].clone());
            json!({"created_permissions": if has { json!([]) } else { call["permissions_to_create"].clone() }})
        }
        operation if operation.ends_with("-permissions") && operation.starts_with("delete-") => {
            json!({"deleted_permissions": call["permissions_to_delete"]})
        }
        "list-projects" if call["tenant"] == "999" => {
            return Err((404, "OBJECT_NOT_FOUND", "tenant `999` not found"));
        }
        "create-project" => {
            world.insert("made".to_owned(), json!(["300"]));
            json!({"project_id": "200", "stage_id": "300"})
        }
        "create-stage" => {
            world.insert("made".to_owned(), json!(["300", "301"]));
            json!({"stage_id": "301"})
        }
        "create-version" => json!({"version_id": "400"}),
        "create-image" => json!({"created": true}),
        "upload-files-archive" if call["version"].as_str().unwrap().parse::<i64>().is_err() => {
            return Err((400, "WRONG_REQUEST", "that is not the id of a version"));
        }
        "deploy-version" if call["version_id"] == "404" => {
            return Err((409, "WRONG_VERSION_STATE", "the version has no image"));
        }
        "deploy-version" if call["version_id"] == "403" => {
            return Err((
                403,
                "WRONG_REQUEST",
                "the version and the stage belong to different projects",
            ));
        }
        "deploy-version" => {
            let id = format!("50{}", deployments.as_array().unwrap().len());
            let row = json!({"id": id, "tenant_id": "100", "stage_id": "301", "version_id": "400", "created": CREATED});
            world.insert("deployments".to_owned(), json!([row]));
            json!({"deployment_id": id})
        }
        "get-tenant-details" => json!({"details": {
            "tenant": {"id": "100", "created": CREATED, "aliases": alias("TENANT", "100")},
            "permissions": [grant("PROJECT_MANAGER", "x"), grant("TENANT_VIEWER", "x")],
            "projects": [{"id": "200", "tenant_id": "100", "created": CREATED, "aliases": []}]}}),
        "get-project-details" => json!({"details": {
            "project": {"id": "200", "tenant_id": "100", "created": CREATED, "aliases": []},
            "permissions": [grant("VERSION_MANAGER", "project_id")],
            "stages": [stage],
            "versions": [{"id": "400", "created": CREATED, "project_id": "200"}]}}),
        "get-stage-details" => json!({"details": {
            "stage": stage, "permissions": [grant("DEPLOYMENT_MANAGER", "stage_id")], "deployments": deployments,
            "maintenance": world.get("maintenance").cloned().unwrap_or_default()}}),
        "set-stage-maintenance" => {
            let message = call["message"].as_str();
            let closed = message.map(|message| json!({"message": message, "since": CREATED}));
            world.insert("maintenance".to_owned(), closed.unwrap_or_default());
            json!({})
        }
        "list-projects" => {
            let made = world.contains_key("made");
            let row = json!({"id": "200", "tenant_id": "100", "created": CREATED, "aliases": aliases(world, "project", "200")});
            page(if made { vec![row] } else { vec![] }, call)
        }
        "list-stages" => {
            let made = world.get("made").and_then(Value::as_array).cloned().unwrap_or_default();
            let row = |id: &Value| {
                let names = aliases(world, "stage", id.as_str().unwrap());
                json!({"id": id, "tenant_id": "100", "project_id": "200", "created": CREATED, "aliases": names})
            };
            page(made.iter().map(row).collect(), call)
        }
        "list-deployments" => page(deployments.as_array().unwrap().clone(), call),
        "get-version-details" => json!({"details": {
            "version": {"id": "400", "tenant_id": "100", "project_id": "200", "created": CREATED},
            "build_requests": [],
            "images": [{"id": "9", "tenant_id": "100", "version_id": "400", "created": CREATED, "qualifier": "UNIVERSAL", "image_id": "shooter:dev"}]}}),
        "get-deployment-details" => json!({"details": {
            "deployment": {"id": "500", "tenant_id": "100", "stage_id": "301", "version_id": "400", "created": CREATED},
            "lobby_refs": [], "matchmaker_refs": [{"id": "650", "created": CREATED, "matchmaker_id": "650"}],
            "venues": [
                {"id": "600", "qualifier": "LOBBY", "mode": null, "state": lobby, "runtime_id": "1", "players": 2, "reason": reason, "created": CREATED},
                {"id": "601", "qualifier": "MATCH", "mode": "duel", "state": "PENDING", "runtime_id": "2", "players": 0, "reason": "no host has room", "created": CREATED}]}}),
        "get-deployment-config" if call["deployment_id"] == "999" => {
            return Err((404, "OBJECT_NOT_FOUND", "deployment `999` not found"));
        }
        "delete-lobby" if call["lobby_id"] == "999" => return Err((404, "OBJECT_NOT_FOUND", "lobby `999` not found")),
        "reset-password" if call["user"] == "nobody" => {
            return Err((404, "OBJECT_NOT_FOUND", "user `nobody` not found"));
        }
        operation if operation.starts_with("delete-") => {
            let gone = ["tenant", "id"]
                .iter()
                .any(|name| call.get(*name) == Some(&json!("999")));
            json!({"deleted": !gone})
        }
        operation => match replies::reply(operation, call) {
            Some(reply) => reply,
            None => panic!("nobody should ask for {operation}"),
        },
    })
}
