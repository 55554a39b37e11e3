//! What is too long, too deep or made of bytes that no database keeps: refused in every field, and the servers serve on.

use std::time::Duration;

use harness::{Installation, Options, Studio};
use omgservers_protocol::token::Role;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::post;
use crate::http::{try_post_bytes, try_post_form};
use crate::routes::{For, Scene, address, table, zip_with_a_file};

/// All that requests can change.
async fn everything(installation: &Installation) -> Vec<String> {
    let mut tables = Vec::new();
    for table in [
        "tenant",
        "account",
        "api_key",
        "alias",
        "project",
        "stage",
        "version",
        "image",
        "files_archive",
        "deployment",
        "audit",
        "tenant_permission",
        "project_permission",
        "stage_permission",
        "stage_variable",
        "local_run",
        "client",
        "player",
    ] {
        tables.push(installation.dump(table).await);
    }
    tables
}

/// Every text in a document, each in turn replaced by another.
fn variants(body: &Value, text: &str) -> Vec<Value> {
    fn places(value: &Value, path: String, found: &mut Vec<String>) {
        match value {
            Value::String(_) => found.push(path),
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    places(item, format!("{path}/{index}"), found);
                }
            }
            Value::Object(fields) => {
                for (name, field) in fields {
                    places(field, format!("{path}/{name}"), found);
                }
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    places(body, String::new(), &mut found);
    let replace = |path: &String| {
        let mut body = body.clone();
        *body.pointer_mut(path).expect("it was just there") = json!(text);
        body
    };
    found.iter().map(replace).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn zero_bytes_and_endless_texts_are_refused_in_every_field_of_every_operation() {
    let installation = Installation::start(Scene::lasting()).await;
    let scene = Scene::set(&installation).await;
    let tokens = &installation.services[0].app().tokens;
    let token = |role: Role| match role {
        Role::Developer => tokens.for_user(scene.studio.user, role, 0),
        Role::Player => scene.player_token.clone(),
        _ => tokens.for_user(omgservers_protocol::id::UserId(77), role, 0),
    };
    let mut requests: Vec<(&str, Option<Role>, Value)> = Vec::new();
    for row in table(&scene) {
        let role = match row.who {
            For::Anybody => None,
            For::Only(role) => Some(role),
        };
        requests.push((row.operation, role, row.body));
    }
    for (operation, role, body) in crate::fuzz::rich(&scene) {
        // What players and runtimes say to each other, and a game's own settings, are any JSON.
        if !operation.contains("interchange") && operation != "developer/create-version" {
            requests.push((operation, Some(role), body));
        }
    }
    let before = everything(&installation).await;
    for (operation, role, body) in requests {
        let token = role.map(token);
        let url = format!("{}{}", installation.base, address(operation));
        let long = "x".repeat(100_000);
        for body in ["a\u{0}b", &long].iter().flat_map(|text| variants(&body, text)) {
            let answer = if operation.ends_with("upload-files-archive") {
                try_post_form(&url, token.as_deref(), &body, ("version.zip", zip_with_a_file())).await
            } else {
                try_post_bytes(&url, token.as_deref(), body.to_string().into_bytes()).await
            };
            let answer = answer.expect("an answer");
            // Any text has a shard, and whether a host answers is found out by asking.
            let is_fine = operation.ends_with("calculate-shard") || operation.ends_with("ping-docker-host");
            let mut shown = body.to_string();
            shown.truncate(300);
            assert!(
                is_fine || (400..500).contains(&answer.status),
                "{operation} {shown}: {} {}",
                answer.status,
                answer.body
            );
        }
    }
    assert_eq!(everything(&installation).await, before);
    installation.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_look_like_something_else_are_names_or_refused() {
    let installation = Installation::start(Options::default()).await;
    let studio = Studio::open(&installation).await;
    let tokens = &installation.services[0].app().tokens;
    let support = tokens.for_user(omgservers_protocol::id::UserId(77), Role::Support, 0);
    let (tenant, project, stage, user) = (studio.tenant, studio.project, studio.stage, studio.user);
    let area = format!("{}/service/v1/entrypoint/support/request", installation.base);
    let operations = [
        ("create-tenant-alias", json!({"tenant_id": tenant})),
        ("create-project-alias", json!({"tenant": tenant, "project_id": project})),
        ("create-stage-alias", json!({"tenant": tenant, "stage_id": stage})),
        ("create-developer-alias", json!({"user_id": user})),
    ];
    let (ok, invalid, taken) = (
        (200, ""),
        (400, "VALIDATION_CONSTRAINT_VIOLATED"),
        (400, "DB_CONSTRAINT_VIOLATED"),
    );
    for (operation, body) in &operations {
        for (alias, expected) in [
            (json!("123"), invalid),
            (json!(123), invalid),
            (json!("-5"), invalid),
            (json!(""), invalid),
            (json!("a\u{0}"), invalid),
            (json!({"a": 1}), (400, "WRONG_REQUEST")),
            (json!("'; drop table tenant; --"), ok),
            (json!("'; drop table tenant; --"), taken),
            (json!("../../etc/passwd"), ok),
            (json!("💥 \u{202e}%s$1{{7*7}}"), ok),
            (json!("99999999999999999999"), ok),
        ] {
            let mut body = body.clone();
            body["alias"] = alias;
            let answer = post(&format!("{area}/{operation}"), Some(&support), &body).await;
            assert_eq!(
                (answer.status, answer.qualifier.as_str()),
                expected,
                "{operation} {body}: {}",
                answer.body
            );
        }
    }
    // Strange names lead where they should.
    for name in [
        "'; drop table tenant; --",
        "../../etc/passwd",
        "💥 \u{202e}%s$1{{7*7}}",
        "99999999999999999999",
    ] {
        let body = json!({"tenant": name, "project": name});
        let answer = post(&format!("{area}/list-stages"), Some(&support), &body).await;
        assert!(answer.body.contains(&format!("\"{stage}\"")), "{name}: {}", answer.body);
    }
    installation.stop().await;
}

/// Writes a request by hand and reads whatever comes, until the other side is done.
async fn speak(address: &str, parts: &[&[u8]]) -> String {
    let mut socket = TcpStream::connect(address).await.expect("somebody listens");
    for part in parts {
        // Whoever has heard enough may hang up.
        if socket.write_all(part).await.is_err() {
            break;
        }
    }
    let mut said = Vec::new();
    let reading = socket.read_to_end(&mut said);
    tokio::time::timeout(Duration::from_secs(30), reading)
        .await
        .expect("it ends")
        .ok();
    String::from_utf8_lossy(&said).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn free_documents_are_free_to_a_certain_depth() {
    let installation = Installation::start(Scene::lasting()).await;
    let scene = Scene::set(&installation).await;
    let tokens = &installation.services[0].app().tokens;
    let (client, tenant, project) = (scene.client, scene.studio.tenant, scene.studio.project);
    let developer = tokens.for_user(scene.studio.user, Role::Developer, 0);
    let runtime = tokens.for_runtime(scene.runtime, 0);
    for (depth, expected) in [(50, 200), (200, 400), (100_000, 400)] {
        let deep = format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        let message = format!(
            r#"{{"client_id":"{client}","consumed_messages":[],"outgoing_messages":[{{"id":1,"qualifier":"CLIENT_OUTGOING_MESSAGE","body":{{"data":{deep}}}}}]}}"#
        );
        let command = format!(
            r#"{{"consumed_commands":[],"outgoing_commands":[{{"qualifier":"SET_PROFILE","body":{{"client_id":"{client}","profile":{deep}}}}}]}}"#
        );
        let version =
            format!(r#"{{"tenant":"{tenant}","project":"{project}","config":{{"modes":[],"user_data":{deep}}}}}"#);
        for (operation, token, body) in [
            ("player/interchange", &scene.player_token, message),
            ("runtime/interchange", &runtime, command),
            ("developer/create-version", &developer, version),
        ] {
            let url = format!("{}{}", installation.base, address(operation));
            let answer = try_post_bytes(&url, Some(token), body.into_bytes())
                .await
                .expect("an answer");
            assert_eq!(answer.status, expected, "{operation} {depth}: {}", answer.body);
        }
    }
    installation.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_without_end_and_bottomless_documents_are_refused_and_the_servers_serve_on() {
    let installation = Installation::start(Options::default()).await;
    let path = "/service/v1/entrypoint/player/request/ping-service";
    let start = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    let megabyte = vec![b'a'; 1 << 20];
    let dispatcher = installation.base.trim_start_matches("http://").to_owned();
    for address in [dispatcher, installation.service_address(0).to_string()] {
        let mut parts: Vec<&[u8]> = vec![start.as_bytes(), b"x-long: "];
        parts.extend(std::iter::repeat_n(megabyte.as_slice(), 10));
        parts.push(b"\r\n\r\n");
        let said = speak(&address, &parts).await;
        assert!(
            said.is_empty() || said.starts_with("HTTP/1.1 4"),
            "a long header: {said}"
        );
        let many = "x-many: 1\r\n".repeat(5_000);
        let said = speak(&address, &[start.as_bytes(), many.as_bytes(), b"\r\n"]).await;
        assert!(
            said.is_empty() || said.starts_with("HTTP/1.1 4"),
            "many headers: {said}"
        );
        let said = speak(&address, &[b"\0\xff\xfe nonsense\r\n\r\n"]).await;
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 4"), "nonsense: {said}");

        let url = format!("http://{address}{path}");
        for (open, close) in [("[", "]"), (r#"{"message":"#, "}")] {
            let deep = format!("{}1{}", open.repeat(20_000), close.repeat(20_000));
            for body in [
                deep.clone(),
                format!(r#"{{"message":{deep}}}"#),
                format!(r#"{{"message":"ping","more":{deep}}}"#),
            ] {
                let answer = try_post_bytes(&url, None, body.into_bytes()).await.expect("an answer");
                assert_eq!(answer.status, 400, "{}", answer.body);
            }
        }
        let answer = post(&url, None, &json!({"message": "ping"})).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    installation.stop().await;
}
