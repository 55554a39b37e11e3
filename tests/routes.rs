//! Nobody gets in: every operation is tried as nobody, with a bad token, as every role, as a developer of another tenant
//! and as one who lacks the permission. An operation that is not in the table fails the story.

use std::collections::BTreeMap;

use harness::{Installation, Options, Studio, game_config};
use omgservers_protocol::id::{ClientId, DeploymentId, VersionId};
use omgservers_protocol::player;
use omgservers_protocol::token::Role;
use serde_json::{Value, json};

use crate::http::{Answer, post};

/// Who may call an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    Anybody,
    Only(Role),
}

struct Row {
    operation: &'static str,
    who: For,
    /// What the right caller says, and hears.
    body: Value,
    right: (u16, &'static str),
    /// What a developer of another tenant hears, saying the same.
    stranger: (u16, &'static str),
    /// What a developer of this tenant without the permission hears.
    lacking: (u16, &'static str),
}

const OK: (u16, &str) = (200, "");
const NO_PERMISSION: (u16, &str) = (403, "PERMISSION_NOT_FOUND");
const NOT_FOUND: (u16, &str) = (404, "OBJECT_NOT_FOUND");

struct Scene {
    studio: Studio,
    version: VersionId,
    deployment: DeploymentId,
    client: ClientId,
}

fn table(scene: &Scene) -> Vec<Row> {
    let Scene {
        studio,
        version,
        deployment,
        client,
    } = scene;
    let (tenant, project, stage) = (studio.tenant, studio.project, studio.stage);
    let mut rows = Vec::new();
    let mut anybody = |operation, body, right| {
        rows.push(Row {
            operation,
            who: For::Anybody,
            body,
            right,
            stranger: right,
            lacking: right,
        });
    };
    anybody("admin/create-token", json!({"user": "admin", "password": "admin"}), OK);
    anybody(
        "support/create-token",
        json!({"user": "support", "password": "wrong"}),
        (401, "WRONG_CREDENTIALS"),
    );
    anybody(
        "dispatcher/create-token",
        json!({"user": "nobody", "password": "x"}),
        NOT_FOUND,
    );
    anybody(
        "developer/create-token",
        json!({"user_id": studio.user, "password": studio.password}),
        OK,
    );
    anybody(
        "runtime/create-token",
        json!({"runtime_id": "1", "password": "x"}),
        NOT_FOUND,
    );
    anybody("player/ping-service", json!({"message": "ping"}), OK);
    anybody("player/create-user", json!([]), OK);
    anybody(
        "player/create-token",
        json!({"user_id": "1", "password": "x"}),
        NOT_FOUND,
    );

    let mut only = |role, operation, body, right| {
        rows.push(Row {
            operation,
            who: For::Only(role),
            body,
            right,
            stranger: NO_PERMISSION,
            lacking: NO_PERMISSION,
        });
    };
    only(Role::Admin, "admin/generate-id", json!({}), OK);
    only(Role::Support, "support/create-tenant", json!({}), OK);
    only(
        Role::Support,
        "support/create-tenant-alias",
        json!({"tenant_id": tenant, "alias": "acme"}),
        OK,
    );
    only(Role::Support, "support/create-developer", json!({}), OK);
    only(
        Role::Support,
        "support/create-tenant-permissions",
        json!({"tenant": tenant, "user_id": studio.user, "permissions_to_create": ["TENANT_VIEWER"]}),
        OK,
    );
    only(Role::Support, "support/delete-tenant", json!({"tenant": "1"}), OK);
    only(
        Role::Player,
        "player/create-client",
        json!({"tenant": tenant, "project": project, "stage": stage}),
        OK,
    );
    let interchange = json!({"client_id": client, "outgoing_messages": [], "consumed_messages": []});
    only(Role::Player, "player/interchange", interchange, OK);
    only(
        Role::Player,
        "player/renew-connection",
        json!({"client_id": client}),
        (404, "RUNTIME_NOT_FOUND"),
    );
    only(
        Role::Runtime,
        "runtime/interchange",
        json!({"outgoing_commands": [], "consumed_commands": []}),
        (404, "RUNTIME_NOT_FOUND"),
    );
    only(Role::Dispatcher, "dispatcher/report", json!({"events": []}), OK);

    // `stranger` differs where a thing is looked up in the caller's own words before the permission is.
    let mut developer = |operation, body| {
        rows.push(Row {
            operation,
            who: For::Only(Role::Developer),
            body,
            right: OK,
            stranger: NO_PERMISSION,
            lacking: NO_PERMISSION,
        });
    };
    developer("developer/get-tenant-details", json!({"tenant": tenant}));
    developer("developer/create-project", json!({"tenant": tenant}));
    developer(
        "developer/create-project-alias",
        json!({"tenant": tenant, "project_id": project, "alias": "shooter"}),
    );
    developer(
        "developer/get-project-details",
        json!({"tenant": tenant, "project": project}),
    );
    developer("developer/create-stage", json!({"tenant": tenant, "project": project}));
    developer(
        "developer/create-stage-alias",
        json!({"tenant": tenant, "stage_id": stage, "alias": "prod"}),
    );
    developer(
        "developer/get-stage-details",
        json!({"tenant": tenant, "project": project, "stage": stage}),
    );
    developer(
        "developer/create-version",
        json!({"tenant": tenant, "project": project, "config": {"modes": []}}),
    );
    developer(
        "developer/get-version-details",
        json!({"tenant": tenant, "version_id": version}),
    );
    developer(
        "developer/create-image",
        json!({"tenant": tenant, "project": project, "version": version, "qualifier": "LOBBY", "image": "game:2"}),
    );
    developer(
        "developer/deploy-version",
        json!({"tenant": tenant, "project": project, "stage": stage, "version_id": version}),
    );
    developer(
        "developer/get-deployment-details",
        json!({"tenant": tenant, "deployment_id": deployment}),
    );
    developer(
        "developer/delete-deployment",
        json!({"tenant": tenant, "id": deployment}),
    );
    developer(
        "developer/delete-version",
        json!({"tenant": tenant, "version_id": version}),
    );
    developer(
        "developer/delete-stage",
        json!({"tenant": tenant, "project": project, "stage": stage}),
    );
    developer(
        "developer/delete-project",
        json!({"tenant": tenant, "project": project}),
    );
    rows
}

fn address(operation: &str) -> String {
    let (area, name) = operation.split_once('/').expect("area/name");
    format!("/service/v1/entrypoint/{area}/request/{name}")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_refuses_everybody_else() {
    let installation = Installation::start(Options::default()).await;
    let studio = Studio::open(&installation).await;
    let version = studio.version(game_config(), "game:1").await;
    let deployment = studio.deploy(version, None).await;
    let (player_token, client) = sign_up(&installation, &studio).await;
    let scene = Scene {
        studio,
        version,
        deployment,
        client,
    };

    let mut tokens: BTreeMap<&str, (Role, String)> = BTreeMap::new();
    let app = installation.services[0].app();
    let some = omgservers_protocol::id::UserId(77);
    for role in [
        Role::Admin,
        Role::Support,
        Role::Dispatcher,
        Role::Registry,
        Role::Builder,
        Role::Service,
    ] {
        tokens.insert(role.as_str(), (role, app.tokens.for_user(some, role)));
    }
    tokens.insert("player", (Role::Player, player_token));
    tokens.insert(
        "runtime",
        (
            Role::Runtime,
            app.tokens.for_runtime(omgservers_protocol::id::RuntimeId(77)),
        ),
    );
    tokens.insert(
        "developer",
        (Role::Developer, app.tokens.for_user(scene.studio.user, Role::Developer)),
    );
    let stranger = Studio::open(&installation).await;
    let stranger_token = app.tokens.for_user(stranger.user, Role::Developer);
    let (lacking, ..) = Studio::hire(&installation).await;
    let lacking_token = app.tokens.for_user(lacking, Role::Developer);
    // A token for a socket opens no operation.
    let socket_token = app
        .tokens
        .for_player_socket(client, omgservers_protocol::id::RuntimeId(77));

    let rows = table(&scene);
    for row in &rows {
        let url = format!("{}{}", installation.base, address(row.operation));
        let check = async |who: &str, token: Option<&str>, expected: (u16, &str)| {
            let Answer { status, qualifier, .. } = post(&url, token, &row.body).await;
            assert_eq!((status, qualifier.as_str()), expected, "{} as {who}", row.operation);
        };
        if let For::Only(allowed) = row.who {
            check("nobody", None, (401, "WRONG_CREDENTIALS")).await;
            check("a forger", Some("not.a.token"), (401, "WRONG_CREDENTIALS")).await;
            check("a socket", Some(&socket_token), (401, "WRONG_CREDENTIALS")).await;
            for (name, (role, token)) in &tokens {
                if *role != allowed {
                    check(name, Some(token), NO_PERMISSION).await;
                }
            }
            check("a developer of another tenant", Some(&stranger_token), row.stranger).await;
            check("a developer without the permission", Some(&lacking_token), row.lacking).await;
        } else {
            check("nobody", None, row.right).await;
        }
    }
    // Only now, since some of it deletes: the right caller is let in.
    for row in &rows {
        let token = match row.who {
            For::Anybody => None,
            For::Only(role) => Some(tokens[role.as_str()].1.as_str()),
        };
        let url = format!("{}{}", installation.base, address(row.operation));
        let answer = post(&url, token, &row.body).await;
        assert_eq!(
            (answer.status, answer.qualifier.as_str()),
            row.right,
            "{} as the right caller: {}",
            row.operation,
            answer.body
        );
    }
    let listed: Vec<String> = rows.iter().map(|row| address(row.operation)).collect();
    for route in omgservers_service::api::addresses() {
        assert!(
            listed.iter().any(|listed| listed == route),
            "{route} is not in the table"
        );
    }
    installation.stop().await;
}

async fn sign_up(installation: &Installation, studio: &Studio) -> (String, ClientId) {
    let client = installation.client();
    let user = client.send(&player::CreateUser {}).await.expect("a player");
    let password = omgservers_protocol::text::Text::new(user.password).expect("a password");
    let token = client
        .send(&player::CreateToken {
            user_id: user.user_id,
            password,
        })
        .await
        .expect("a token")
        .raw_token;
    let name = |id: i64| omgservers_protocol::text::Text::new(id.to_string()).expect("an id");
    let call = player::CreateClient {
        tenant: name(studio.tenant.get()),
        project: name(studio.project.get()),
        stage: name(studio.stage.get()),
    };
    let made = client.with_token(token.clone()).send(&call).await.expect("a client");
    (token, made.client_id)
}

#[tokio::test(flavor = "multi_thread")]
async fn things_of_another_tenant_are_not_found_by_their_ids() {
    let installation = Installation::start(Options::default()).await;
    let (own, other) = (Studio::open(&installation).await, Studio::open(&installation).await);
    let version = other.version(game_config(), "game:1").await;
    let deployment = other.deploy(version, None).await;
    let token = installation.services[0]
        .app()
        .tokens
        .for_user(own.user, Role::Developer);
    let (tenant, project, stage) = (own.tenant, own.project, own.stage);
    for (operation, body, expected) in [
        (
            "get-version-details",
            json!({"tenant": tenant, "version_id": version}),
            NOT_FOUND,
        ),
        ("delete-version", json!({"tenant": tenant, "id": version}), NOT_FOUND),
        (
            "get-deployment-details",
            json!({"tenant": tenant, "deployment_id": deployment}),
            NOT_FOUND,
        ),
        (
            "delete-deployment",
            json!({"tenant": tenant, "id": deployment}),
            NOT_FOUND,
        ),
        (
            "create-stage-alias",
            json!({"tenant": tenant, "stage_id": other.stage, "alias": "x"}),
            NOT_FOUND,
        ),
        (
            "create-project-alias",
            json!({"tenant": tenant, "project_id": other.project, "alias": "x"}),
            NOT_FOUND,
        ),
        (
            "get-project-details",
            json!({"tenant": tenant, "project": other.project}),
            NO_PERMISSION,
        ),
        (
            "create-stage",
            json!({"tenant": tenant, "project": other.project}),
            NO_PERMISSION,
        ),
        (
            "delete-project",
            json!({"tenant": tenant, "project": other.project}),
            (200, ""),
        ),
        (
            "create-image",
            json!({"tenant": tenant, "project": project, "version": version, "qualifier": "UNIVERSAL", "image": "evil:1"}),
            NOT_FOUND,
        ),
        (
            "deploy-version",
            json!({"tenant": tenant, "project": project, "stage": stage, "version_id": version}),
            (409, "WRONG_VERSION_STATE"),
        ),
    ] {
        let url = format!(
            "{}/service/v1/entrypoint/developer/request/{operation}",
            installation.base
        );
        let answer = post(&url, Some(&token), &body).await;
        assert_eq!(
            (answer.status, answer.qualifier.as_str()),
            expected,
            "{operation}: {}",
            answer.body
        );
    }
    // Nothing of the other tenant was touched.
    assert_eq!(other.deployment(deployment).await.deployment.id, deployment);
    installation.stop().await;
}
