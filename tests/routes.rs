//! Nobody gets in: every operation is tried as nobody, with a bad token, as every role, as a developer of another tenant
//! and as one who lacks the permission. An operation that is not in the table fails the story.

use std::collections::BTreeMap;

use harness::{Installation, Options, Studio, game_config};
use omgservers_protocol::id::{ClientId, DeploymentId, LobbyId, MatchmakerId, RuntimeId, UserId, VersionId};
use omgservers_protocol::text::Text;
use omgservers_protocol::token::Role;
use omgservers_protocol::{player, support};
use serde_json::{Value, json};

use crate::http::{Answer, post, post_form};

/// Who may call an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    Anybody,
    Only(Role),
}

pub(crate) struct Row {
    pub(crate) operation: &'static str,
    pub(crate) who: For,
    /// What the right caller says, and hears.
    pub(crate) body: Value,
    right: (u16, &'static str),
    /// What a developer of another tenant hears, saying the same.
    stranger: (u16, &'static str),
    /// What a developer of this tenant without the permission hears.
    lacking: (u16, &'static str),
}

const OK: (u16, &str) = (200, "");
const NO_PERMISSION: (u16, &str) = (403, "PERMISSION_NOT_FOUND");
const WRONG_CREDENTIALS: (u16, &str) = (401, "WRONG_CREDENTIALS");
const NOT_FOUND: (u16, &str) = (404, "OBJECT_NOT_FOUND");

/// Operations of developers that the first API had.
const OLD: [&str; 20] = [
    "get-tenant-details",
    "create-project",
    "create-project-alias",
    "get-project-details",
    "delete-project",
    "create-stage",
    "create-stage-alias",
    "get-stage-details",
    "delete-stage",
    "create-version",
    "upload-files-archive",
    "get-version-details",
    "delete-version",
    "deploy-version",
    "get-deployment-details",
    "delete-deployment",
    "create-lobby-request",
    "delete-lobby",
    "create-matchmaker-request",
    "delete-matchmaker",
];

/// What the operations of the table are about.
pub(crate) struct Scene {
    pub(crate) studio: Studio,
    pub(crate) version: VersionId,
    pub(crate) deployment: DeploymentId,
    pub(crate) lobby: LobbyId,
    pub(crate) matchmaker: MatchmakerId,
    pub(crate) runtime: RuntimeId,
    pub(crate) client: ClientId,
    pub(crate) player_token: String,
    /// Developers nobody needs any more.
    pub(crate) spare: [UserId; 2],
}

impl Scene {
    /// An installation in which a player may be silent for as long as the story takes.
    pub(crate) fn lasting() -> Options {
        Options {
            configure: |config| config.clients_inactive_interval_s = 3600,
            ..Options::default()
        }
    }

    /// A studio with one of everything.
    pub(crate) async fn set(installation: &Installation) -> Self {
        let studio = Studio::open(installation).await;
        // It waits for a machine that never comes: its lobby stays as it is.
        let version = studio.version(game_config(), "local://").await;
        let deployment = studio.deploy(version, None).await;
        let (player_token, client) = sign_up(installation, &studio).await;
        let (lobby, matchmaker, runtime) =
            harness::eventually("the deployment has a lobby and a matchmaker", || async {
                let details = studio.deployment(deployment).await;
                Some((
                    details.lobby_refs.first()?.lobby_id,
                    details.matchmaker_refs.first()?.matchmaker_id,
                    details.venues.first()?.runtime_id,
                ))
            })
            .await;
        // The platform has said all it has to say: from here on only requests change something.
        let own = format!("{client},");
        harness::eventually("the player was told to wait in the lobby", || async {
            let clients = installation.dump("client").await;
            let mut rows = clients.split(r#"{"id":"#);
            let row = rows.find(|row| row.starts_with(&own))?;
            row.contains(r#""generation":1,"#).then_some(())
        })
        .await;
        let spare = [Studio::hire(installation).await.0, Studio::hire(installation).await.0];
        Self {
            studio,
            version,
            deployment,
            lobby,
            matchmaker,
            runtime,
            client,
            player_token,
            spare,
        }
    }

    /// The right token for each role. That of the runtime is one of nobody: the lobby shall stay as it is.
    async fn tokens(&self, installation: &Installation) -> BTreeMap<&'static str, (Role, String)> {
        let app = installation.services[0].app();
        let some = UserId(77);
        let mut tokens = BTreeMap::new();
        for (role, client) in [
            (Role::Admin, installation.admin().await),
            (Role::Support, installation.support().await),
        ] {
            let token = client.token().expect("it logged in").to_owned();
            tokens.insert(role.as_str(), (role, token));
        }
        for role in [Role::Dispatcher, Role::Registry, Role::Builder, Role::Service] {
            tokens.insert(role.as_str(), (role, app.tokens.for_user(some, role, 0)));
        }
        tokens.insert("player", (Role::Player, self.player_token.clone()));
        tokens.insert("runtime", (Role::Runtime, app.tokens.for_runtime(RuntimeId(77), 0)));
        let developer = app.tokens.for_user(self.studio.user, Role::Developer, 0);
        tokens.insert("developer", (Role::Developer, developer));
        tokens
    }
}

#[expect(clippy::too_many_lines, reason = "one row per operation")]
pub(crate) fn table(scene: &Scene) -> Vec<Row> {
    let Scene {
        studio,
        version,
        deployment,
        lobby,
        matchmaker,
        client,
        spare,
        ..
    } = scene;
    let (tenant, project, stage, user) = (studio.tenant, studio.project, studio.stage, studio.user);
    let on_project = json!({"tenant": tenant, "project": project});
    let on_stage = json!({"tenant": tenant, "project": project, "stage": stage});
    let on_version = json!({"tenant": tenant, "version_id": version});
    let on_deployment = json!({"tenant": tenant, "deployment_id": deployment});
    let with = |base: &Value, more: Value| {
        let mut body = base.clone();
        let more = more.as_object().expect("fields").clone();
        body.as_object_mut().expect("fields").extend(more);
        body
    };
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
    let wrong_password = json!({"password": "wrong", "new_password": "new"});
    anybody("admin/create-token", json!({"user": "admin", "password": "admin"}), OK);
    anybody(
        "support/create-token",
        json!({"user": "support", "password": "wrong"}),
        WRONG_CREDENTIALS,
    );
    anybody(
        "dispatcher/create-token",
        json!({"user": "nobody", "password": "x"}),
        NOT_FOUND,
    );
    anybody(
        "developer/create-token",
        json!({"user_id": user, "password": studio.password}),
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
    only(Role::Admin, "admin/renew-token", json!({}), OK);
    only(
        Role::Admin,
        "admin/change-password",
        wrong_password.clone(),
        WRONG_CREDENTIALS,
    );
    only(Role::Admin, "admin/reset-password", json!({"user": spare[0]}), OK);
    only(Role::Admin, "admin/generate-id", json!({}), OK);
    only(Role::Admin, "admin/bcrypt-hash", json!({"value": "secret"}), OK);
    only(Role::Admin, "admin/calculate-shard", json!({"shard_key": "a/b"}), OK);
    only(
        Role::Admin,
        "admin/ping-docker-host",
        json!({"docker_daemon_uri": "unix:///nowhere/docker.sock"}),
        (500, "INTERNAL_EXCEPTION_OCCURRED"),
    );
    for list in [
        "admin/list-shards",
        "admin/list-instances",
        "admin/list-hosts",
        "admin/list-failed-jobs",
        "admin/list-users",
        "admin/list-audit-records",
    ] {
        only(Role::Admin, list, json!({"page_size": 3}), OK);
    }
    only(Role::Support, "support/renew-token", json!({}), OK);
    only(
        Role::Support,
        "support/change-password",
        wrong_password.clone(),
        WRONG_CREDENTIALS,
    );
    only(Role::Support, "support/create-tenant", json!({}), OK);
    only(
        Role::Support,
        "support/create-tenant-alias",
        json!({"tenant_id": tenant, "alias": "acme"}),
        OK,
    );
    only(Role::Support, "support/list-tenants", json!({}), OK);
    only(
        Role::Support,
        "support/set-tenant-quotas",
        json!({"tenant": tenant, "quotas": {"runtimes": 100}}),
        OK,
    );
    only(
        Role::Support,
        "support/get-tenant-quotas",
        json!({"tenant": tenant}),
        OK,
    );
    only(Role::Support, "support/list-usage", json!({"tenant": tenant}), OK);
    only(Role::Support, "support/create-project", json!({"tenant": tenant}), OK);
    only(
        Role::Support,
        "support/create-project-alias",
        json!({"tenant": tenant, "project_id": project, "alias": "arena"}),
        OK,
    );
    only(Role::Support, "support/list-projects", json!({"tenant": tenant}), OK);
    only(Role::Support, "support/create-stage", on_project.clone(), OK);
    only(
        Role::Support,
        "support/create-stage-alias",
        json!({"tenant": tenant, "stage_id": stage, "alias": "live"}),
        OK,
    );
    only(Role::Support, "support/list-stages", on_project.clone(), OK);
    only(Role::Support, "support/create-developer", json!({}), OK);
    only(
        Role::Support,
        "support/create-developer-alias",
        json!({"user_id": user, "alias": "ada"}),
        OK,
    );
    only(
        Role::Support,
        "support/reset-developer-password",
        json!({"user_id": spare[1]}),
        OK,
    );
    only(Role::Support, "support/list-developers", json!({}), OK);
    for (level, on, permission) in [
        ("tenant", json!({"tenant": tenant}), "TENANT_VIEWER"),
        ("project", on_project.clone(), "PROJECT_VIEWER"),
        ("stage", on_stage.clone(), "STAGE_VIEWER"),
    ] {
        for (verb, field) in [("create", "permissions_to_create"), ("delete", "permissions_to_delete")] {
            let operation = format!("support/{verb}-{level}-permissions").leak();
            let body = with(&on, json!({"user_id": spare[0], field: [permission]}));
            only(Role::Support, operation, body, OK);
        }
    }
    only(Role::Support, "support/list-permissions", on_stage.clone(), OK);
    only(
        Role::Support,
        "support/delete-developer",
        json!({"user_id": spare[0]}),
        OK,
    );
    only(
        Role::Support,
        "support/delete-stage",
        json!({"tenant": tenant, "project": project, "stage": "1"}),
        OK,
    );
    only(
        Role::Support,
        "support/delete-project",
        json!({"tenant": tenant, "project": "1"}),
        OK,
    );
    only(Role::Support, "support/delete-tenant", json!({"tenant": "1"}), OK);
    only(Role::Player, "player/renew-token", json!({}), OK);
    only(
        Role::Player,
        "player/change-password",
        wrong_password.clone(),
        WRONG_CREDENTIALS,
    );
    only(Role::Player, "player/create-client", on_stage.clone(), OK);
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
    only(
        Role::Dispatcher,
        "dispatcher/calculate-shard",
        json!({"shard_key": 1}),
        OK,
    );
    only(Role::Dispatcher, "dispatcher/report", json!({"events": []}), OK);

    // What a developer does with their own account, and what leads nowhere: others hear the same.
    let mut own = |operation, body, right| {
        rows.push(Row {
            operation,
            who: For::Only(Role::Developer),
            body,
            right,
            stranger: right,
            lacking: right,
        });
    };
    own("developer/renew-token", json!({}), OK);
    own("developer/change-password", wrong_password, WRONG_CREDENTIALS);
    own("developer/list-api-keys", json!({}), OK);
    own("developer/delete-api-key", json!({"id": "1"}), OK);
    own("developer/list-tenants", json!({}), OK);
    let run = json!({"tenant": tenant, "run_id": "1"});
    own("developer/interchange-local-run", run.clone(), NOT_FOUND);
    own("developer/stop-local-run", run, OK);

    // Whoever is a part of the tenant: a key can do no more than its user.
    rows.push(Row {
        operation: "developer/create-api-key",
        who: For::Only(Role::Developer),
        body: json!({"tenant": tenant, "name": "ci", "scopes": ["BUILD"], "expires": in_an_hour()}),
        right: OK,
        stranger: NOT_FOUND,
        lacking: OK,
    });

    // What the first API had says that a permission is missing, everything else that there is no such thing.
    let mut developer = |operation: &'static str, body| {
        let is_old = OLD.contains(&operation.trim_start_matches("developer/"));
        rows.push(Row {
            operation,
            who: For::Only(Role::Developer),
            body,
            right: OK,
            stranger: if is_old { NO_PERMISSION } else { NOT_FOUND },
            lacking: NO_PERMISSION,
        });
    };
    for operation in [
        "developer/get-tenant-details",
        "developer/get-tenant-quotas",
        "developer/list-usage",
        "developer/list-audit-records",
        "developer/list-permissions",
        "developer/list-projects",
        "developer/create-project",
    ] {
        developer(operation, json!({"tenant": tenant}));
    }
    developer(
        "developer/create-project-alias",
        json!({"tenant": tenant, "project_id": project, "alias": "shooter"}),
    );
    for operation in [
        "developer/get-project-details",
        "developer/list-stages",
        "developer/list-versions",
        "developer/create-stage",
    ] {
        developer(operation, on_project.clone());
    }
    developer(
        "developer/create-stage-alias",
        json!({"tenant": tenant, "stage_id": stage, "alias": "prod"}),
    );
    for operation in [
        "developer/get-stage-details",
        "developer/list-deployments",
        "developer/list-stage-variables",
    ] {
        developer(operation, on_stage.clone());
    }
    developer(
        "developer/set-stage-maintenance",
        with(&on_stage, json!({"message": null})),
    );
    developer(
        "developer/set-stage-variable",
        with(&on_stage, json!({"name": "KEY", "value": "x", "secret": true})),
    );
    developer(
        "developer/delete-stage-variable",
        with(&on_stage, json!({"name": "KEY"})),
    );
    developer(
        "developer/create-version",
        with(&on_project, json!({"config": {"modes": []}})),
    );
    for operation in [
        "developer/get-version-details",
        "developer/get-version-config",
        "developer/list-images",
        "developer/list-files-archives",
    ] {
        developer(operation, on_version.clone());
    }
    developer(
        "developer/upload-files-archive",
        json!({"tenant": tenant, "tenantVersionId": version}),
    );
    developer(
        "developer/create-image",
        with(
            &on_project,
            json!({"version": version, "qualifier": "LOBBY", "image": "game:2"}),
        ),
    );
    for operation in [
        "developer/get-deployment-details",
        "developer/get-deployment-config",
        "developer/list-lobbies",
        "developer/list-matches",
        "developer/list-clients",
        "developer/create-lobby-request",
        "developer/create-matchmaker-request",
    ] {
        developer(operation, on_deployment.clone());
    }
    developer("developer/delete-lobby", json!({"lobby_id": lobby}));
    developer("developer/delete-matchmaker", json!({"matchmaker_id": matchmaker}));
    developer("developer/start-local-run", on_stage.clone());
    developer(
        "developer/deploy-version",
        with(&on_stage, json!({"version_id": version})),
    );
    developer(
        "developer/delete-deployment",
        json!({"tenant": tenant, "id": deployment}),
    );
    developer("developer/delete-version", on_version.clone());
    developer("developer/delete-stage", on_stage.clone());
    developer("developer/delete-project", on_project.clone());
    rows
}

pub(crate) fn in_an_hour() -> String {
    let now = std::time::UNIX_EPOCH.elapsed().expect("it is after 1970").as_secs();
    let at = time::OffsetDateTime::from_unix_timestamp(i64::try_from(now).expect("seconds") + 3_600).expect("a time");
    at.format(&time::format_description::well_known::Rfc3339)
        .expect("a time")
}

/// Asks as an operation wants to be asked.
async fn ask(url: &str, token: Option<&str>, body: &Value) -> Answer {
    if url.ends_with("upload-files-archive") {
        post_form(url, token, body, ("version.zip", zip_with_a_file())).await
    } else {
        post(url, token, body).await
    }
}

/// A zip archive with one file in it.
pub(crate) fn zip_with_a_file() -> Vec<u8> {
    use std::io::Write as _;
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    zip.start_file("main.lua", zip::write::SimpleFileOptions::default())
        .expect("a file");
    zip.write_all(b"print('hello')").expect("its content");
    zip.finish().expect("an archive").into_inner()
}

pub(crate) fn address(operation: &str) -> String {
    let (area, name) = operation.split_once('/').expect("area/name");
    format!("/service/v1/entrypoint/{area}/request/{name}")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_refuses_everybody_else() {
    let installation = Installation::start(Scene::lasting()).await;
    let scene = Scene::set(&installation).await;
    let tokens = scene.tokens(&installation).await;
    let app = installation.services[0].app();
    let stranger = Studio::open(&installation).await;
    let stranger_token = app.tokens.for_user(stranger.user, Role::Developer, 0);
    // A part of the tenant by a permission that nothing needs.
    let (lacking, ..) = Studio::hire(&installation).await;
    let lacking_token = app.tokens.for_user(lacking, Role::Developer, 0);
    let name = |id: i64| Text::new(id.to_string()).expect("an id");
    let call = support::CreateStagePermissions {
        tenant: name(scene.studio.tenant.get()),
        project: name(scene.studio.project.get()),
        stage: name(scene.studio.stage.get()),
        user_id: lacking,
        permissions_to_create: vec![support::StagePermission::StageViewer],
    };
    installation.support().await.send(&call).await.expect("granted");
    // A key without a scope that matters here, and one of a developer who may do nothing.
    let call = omgservers_protocol::developer::CreateApiKey {
        tenant: name(scene.studio.tenant.get()),
        project: None,
        name: Text::new("reader").expect("a name"),
        scopes: vec![omgservers_protocol::developer::Scope::Read],
        expires: in_an_hour(),
    };
    let key = scene.studio.developer.send(&call).await.expect("a key").api_key;
    // A token for a socket opens no operation.
    let socket_token = app.tokens.for_player_socket(scene.client, RuntimeId(77));

    let rows = table(&scene);
    for row in &rows {
        let url = format!("{}{}", installation.base, address(row.operation));
        let check = async |who: &str, token: Option<&str>, expected: (u16, &str)| {
            let Answer { status, qualifier, .. } = ask(&url, token, &row.body).await;
            assert_eq!((status, qualifier.as_str()), expected, "{} as {who}", row.operation);
        };
        check("a forger", Some("not.a.token"), (401, "WRONG_CREDENTIALS")).await;
        check("a socket", Some(&socket_token), (401, "WRONG_CREDENTIALS")).await;
        if let For::Only(allowed) = row.who {
            check("nobody", None, (401, "WRONG_CREDENTIALS")).await;
            for (name, (role, token)) in &tokens {
                if *role != allowed {
                    check(name, Some(token), NO_PERMISSION).await;
                }
            }
            if allowed != Role::Developer {
                check("a program with a key", Some(key.as_str()), NO_PERMISSION).await;
            } else if !is_reading(row.operation) && row.right == OK && row.stranger != OK {
                check("a program with a key to read", Some(key.as_str()), NO_PERMISSION).await;
            }
            check("a developer of another tenant", Some(&stranger_token), row.stranger).await;
            check("a developer without the permission", Some(&lacking_token), row.lacking).await;
        } else {
            check("nobody", None, row.right).await;
            if row.right == OK {
                check("somebody", Some(&tokens["player"].1), OK).await;
            }
        }
    }
    // Only now, since some of it deletes: the right caller is let in.
    for row in &rows {
        let token = match row.who {
            For::Anybody => None,
            For::Only(role) => Some(tokens[role.as_str()].1.as_str()),
        };
        let url = format!("{}{}", installation.base, address(row.operation));
        let answer = ask(&url, token, &row.body).await;
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

fn is_reading(operation: &str) -> bool {
    operation.contains("/get-") || operation.contains("/list-")
}

async fn sign_up(installation: &Installation, studio: &Studio) -> (String, ClientId) {
    let client = installation.client();
    let user = client.send(&player::CreateUser {}).await.expect("a player");
    let password = Text::new(user.password).expect("a password");
    let token = client
        .send(&player::CreateToken {
            user_id: user.user_id,
            password,
        })
        .await
        .expect("a token")
        .raw_token;
    let name = |id: i64| Text::new(id.to_string()).expect("an id");
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
        .for_user(own.user, Role::Developer, 0);
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
            NOT_FOUND,
        ),
        (
            "delete-stage",
            json!({"tenant": tenant, "project": project, "stage": other.stage}),
            NOT_FOUND,
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
