//! What runs: quotas and usage, variables, maintenance, lobbies and matchmakers on demand, a developer's own machine.

use std::process::{Child, Command, Stdio};

use harness::{Installation, Options, Studio, eventually, program, shooter};
use omgservers_protocol::audit::{Quotas, UsageRecord};
use omgservers_protocol::call::Paging;
use omgservers_protocol::config::{DeploymentConfig, RuntimeQualifier};
use omgservers_protocol::developer as dev;
use omgservers_protocol::id::{DeploymentId, LocalRunId};
use omgservers_protocol::text::Secret;
use omgservers_protocol::{admin, player, support};

use super::{place, refusal, refused, text};
use crate::evening::Guest;

fn config(value: serde_json::Value) -> Option<DeploymentConfig> {
    Some(serde_json::from_value(value).expect("a deployment config"))
}

/// The shooter, deployed and with an open lobby.
async fn open_lobby(studio: &Studio) -> DeploymentId {
    let version = serde_json::from_value(shooter::version()).expect("a version config");
    let image = format!(
        "file://{}",
        harness::artefact("OMGSERVERS_TEST_SHOOTER_ARCHIVE").display()
    );
    let version = studio.version(version, &image).await;
    let deployment = studio.deploy(version, None).await;
    eventually("an open lobby", || async {
        let open = studio.venues(deployment, "LOBBY", "OPEN").await;
        (!open.is_empty()).then_some(())
    })
    .await;
    deployment
}

async fn sign_up(installation: &Installation) -> omgservers_protocol::client::Client {
    let nobody = installation.client();
    let user = nobody.send(&player::CreateUser {}).await.expect("a player");
    let call = player::CreateToken {
        user_id: user.user_id,
        password: text(user.password),
    };
    nobody.with_token(nobody.send(&call).await.expect("a token").raw_token)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_has_no_more_than_its_quotas_and_its_use_is_written_down() {
    let installation = Installation::start(Options {
        instances: 2,
        configure: |config| config.usage_interval = std::time::Duration::from_secs(1),
        ..Options::default()
    })
    .await;
    let studio = Studio::open(&installation).await;
    let support = installation.support().await;
    let quotas = |runtimes, players| support::SetTenantQuotas {
        tenant: text(studio.tenant),
        quotas: Quotas {
            runtimes,
            players,
            ..Quotas::default()
        },
    };
    support.send(&quotas(Some(1), Some(1))).await.expect("quotas");
    let deployment = open_lobby(&studio).await;
    let call = dev::CreateLobbyRequest {
        tenant: text(studio.tenant),
        deployment_id: deployment,
    };
    studio.developer.send(&call).await.expect("one more lobby is wanted");
    eventually("the second lobby says why it waits", || async {
        let pending = studio.venues(deployment, "LOBBY", "PENDING").await;
        let reason = pending.first()?.reason.as_deref()?;
        reason.contains("quota of 1 game servers").then_some(())
    })
    .await;
    let call = dev::GetTenantQuotas {
        tenant: text(studio.tenant),
    };
    let now = studio.developer.send(&call).await.expect("quotas");
    assert_eq!((now.quotas.runtimes, now.in_use.runtimes), (Some(1), 1));

    let (tenant, project, stage) = place(&studio);
    let join = player::CreateClient { tenant, project, stage };
    sign_up(&installation)
        .await
        .send(&join)
        .await
        .expect("the first player");
    let second = sign_up(&installation).await;
    assert_eq!(refusal(&second, &join).await, refused(403, "QUOTA_EXCEEDED"));
    support.send(&quotas(None, None)).await.expect("no quotas");
    second.send(&join).await.expect("there is room now");
    eventually("the second lobby opens or nobody wants it any more", || async {
        let pending = studio.venues(deployment, "LOBBY", "PENDING").await;
        pending.is_empty().then_some(())
    })
    .await;

    let call = dev::ListUsage {
        tenant: text(studio.tenant),
        paging: Paging::default(),
    };
    let used = async || -> Vec<UsageRecord> { studio.developer.send(&call).await.expect("usage").items };
    let first = eventually("usage is written down", || async {
        used().await.into_iter().find(|day| day.player_seconds > 0)
    })
    .await;
    assert!(first.runtime_seconds > 0 && first.memory_mb_seconds > 0 && first.runtimes_max >= 1);
    eventually("it grows", || async {
        used()
            .await
            .into_iter()
            .find(|day| day.runtime_seconds > first.runtime_seconds)
    })
    .await;
    let day = time::OffsetDateTime::now_utc().date();
    let days = [
        day.to_string(),
        day.previous_day().expect("there was a yesterday").to_string(),
    ];
    assert!(days.contains(&first.day), "{}", first.day);
    installation.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn details_say_why_nothing_runs() {
    let installation = Installation::start(Options::default()).await;
    let studio = Studio::open(&installation).await;
    let version = studio.version(harness::game_config(), "file:///nowhere/game.tar").await;
    let deployment = studio.deploy(version, None).await;
    let failure = eventually("a reason", || async { studio.deployment(deployment).await.failure }).await;
    assert!(
        failure.failures > 0 && failure.reason.contains("/nowhere/game.tar"),
        "{failure:?}"
    );
    installation.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_fails_is_shown_with_its_reason_until_it_succeeds() {
    let installation = Installation::start(Options::default()).await;
    let studio = Studio::open(&installation).await;
    let deployment = open_lobby(&studio).await;
    let admin = installation.admin().await;
    let failed = async || {
        let call = admin::ListFailedJobs::default();
        admin.send(&call).await.expect("a list").items
    };
    let app = installation.services[0].app();
    let damage = async |config: &str| {
        let mut tx = app.db.begin(deployment.get()).await.expect("a transaction");
        let damaged = format!("update cell set config = {config} where deployment_id = $1");
        let done = sqlx::query(sqlx::AssertSqlSafe(damaged))
            .bind(deployment.get())
            .execute(&mut *tx)
            .await;
        assert_eq!(done.expect("damaged").rows_affected(), 1);
        let kind = omgservers_service::event::Kind::Cell;
        omgservers_service::event::append(&mut tx, kind, deployment.get())
            .await
            .expect("announced");
        tx.commit().await.expect("committed");
    };
    damage("json_build_object('was', config, 'min_lobbies', 'many')").await;
    let job = eventually("a job that fails", || async { failed().await.pop() }).await;
    assert_eq!((job.kind.as_str(), job.key), ("cell", deployment.to_string()));
    assert!(job.attempts > 0 && job.error.contains("many"), "{}", job.error);
    damage("config -> 'was'").await;
    eventually("it succeeds", || async { failed().await.is_empty().then_some(()) }).await;
    installation.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_player_who_never_played_is_forgotten_after_a_month() {
    let installation = Installation::start(Options::default()).await;
    let studio = Studio::open(&installation).await;
    open_lobby(&studio).await;
    let nobody = installation.client();
    let mut players = Vec::new();
    for _ in 0..2 {
        players.push(nobody.send(&player::CreateUser {}).await.expect("a player"));
    }
    let log_in = |index: usize| player::CreateToken {
        user_id: players[index].user_id,
        password: text(&players[index].password),
    };
    let (tenant, project, stage) = place(&studio);
    let call = player::CreateClient { tenant, project, stage };
    let token = nobody.send(&log_in(0)).await.expect("a token").raw_token;
    nobody.with_token(token).send(&call).await.expect("a client");

    let app = installation.services[0].app();
    let forget = async || {
        for shard in app.db.shards() {
            omgservers_service::entity::tombstone::purge(app, shard)
                .await
                .expect("purged");
        }
    };
    forget().await;
    for index in 0..2 {
        nobody.send(&log_in(index)).await.expect("it is too soon");
    }
    for player in &players {
        let mut tx = app.db.begin(player.user_id.get()).await.expect("a transaction");
        sqlx::query("update account set created = now() - interval '31 days' where id = $1")
            .bind(player.user_id.get())
            .execute(&mut *tx)
            .await
            .expect("made older");
        tx.commit().await.expect("committed");
    }
    forget().await;
    nobody.send(&log_in(0)).await.expect("one who played stays");
    assert_eq!(refusal(&nobody, &log_in(1)).await, refused(404, "OBJECT_NOT_FOUND"));
    installation.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn players_who_come_at_once_do_not_pass_a_quota_together() {
    let installation = Installation::start(Options::default()).await;
    let studio = Studio::open(&installation).await;
    let version = studio.version(harness::game_config(), "local://").await;
    studio.deploy(version, None).await;
    let call = support::SetTenantQuotas {
        tenant: text(studio.tenant),
        quotas: Quotas {
            players: Some(3),
            ..Quotas::default()
        },
    };
    installation.support().await.send(&call).await.expect("quotas");
    let mut players = Vec::new();
    for _ in 0..16 {
        players.push(sign_up(&installation).await);
    }
    let (tenant, project, stage) = place(&studio);
    let join = player::CreateClient { tenant, project, stage };
    let joining = futures_util::future::join_all(players.iter().map(|player| player.send(&join)));
    let admitted = joining.await.into_iter().filter(Result::is_ok).count();
    assert_eq!(admitted, 3);
    installation.stop().await;
}

/// The environment of a studio's runtimes, as their processes have it.
fn environments(installation: &Installation) -> String {
    let running = installation.folder().join("data/processes/running");
    let mut all = String::new();
    for entry in std::fs::read_dir(running).into_iter().flatten().filter_map(Result::ok) {
        let state = std::fs::read_to_string(entry.path().join("state.json")).unwrap_or_default();
        let state: serde_json::Value = serde_json::from_str(&state).unwrap_or_default();
        if let Some(pid) = state["process"][0].as_u64() {
            all += &std::fs::read_to_string(format!("/proc/{pid}/environ")).unwrap_or_default();
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_reach_runtimes_and_secrets_are_never_read_back() {
    let installation = Installation::start(Options::default()).await;
    let studio = Studio::open(&installation).await;
    let (tenant, project, stage) = place(&studio);
    let set = |name: &str, value: &str, secret: bool| dev::SetStageVariable {
        tenant: tenant.clone(),
        project: project.clone(),
        stage: stage.clone(),
        name: text(name),
        value: Secret::new(value),
        secret,
    };
    let developer = &studio.developer;
    assert!(developer.send(&set("REGION", "eu", false)).await.expect("set").created);
    assert!(
        developer
            .send(&set("API_TOKEN", "hunter2", true))
            .await
            .expect("set")
            .created
    );
    assert!(!developer.send(&set("REGION", "us", false)).await.expect("set").created);
    for wrong in ["OMGSERVERS_PASSWORD", "1X", "A-B"] {
        let answer = refusal(developer, &set(wrong, "x", false)).await;
        assert_eq!(answer, refused(400, "VALIDATION_CONSTRAINT_VIOLATED"), "{wrong}");
    }
    let long = "x".repeat(8 * 1024 + 1);
    assert_eq!(refusal(developer, &set("LONG", &long, false)).await.0, 400);

    open_lobby(&studio).await;
    let environment = environments(&installation);
    assert!(environment.contains("REGION=us\0") && environment.contains("API_TOKEN=hunter2\0"));
    let list = dev::ListStageVariables {
        tenant: tenant.clone(),
        project: project.clone(),
        stage: stage.clone(),
        paging: Paging::default(),
    };
    let shown = developer.send(&list).await.expect("a list").items;
    let shown: Vec<_> = shown
        .iter()
        .map(|one| (one.name.as_str(), one.value.as_deref(), one.secret))
        .collect();
    assert_eq!(shown, [("API_TOKEN", None, true), ("REGION", Some("us"), false)]);
    let stored = installation.dump("stage_variable").await;
    assert!(
        stored.contains("us") && !stored.contains("hunter2") && !stored.contains("68756e74657232"),
        "{stored}"
    );
    let call = dev::DeleteStageVariable {
        tenant,
        project,
        stage,
        name: text("REGION"),
    };
    assert!(developer.send(&call).await.expect("deleted").deleted);
    assert!(!developer.send(&call).await.expect("answered").deleted);
    installation.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stage_in_maintenance_takes_no_new_players_and_says_why() {
    let installation = Installation::start(Options::default()).await;
    let studio = Studio::open(&installation).await;
    open_lobby(&studio).await;
    let (tenant, project, stage) = place(&studio);
    let mut ada = Guest::visit(&installation, &studio, "Ada").await;
    ada.until("the lobby", |guest| guest.is_in(RuntimeQualifier::Lobby))
        .await;
    let set = |message: Option<&str>| dev::SetStageMaintenance {
        tenant: tenant.clone(),
        project: project.clone(),
        stage: stage.clone(),
        message: message.map(str::to_owned),
    };
    studio.developer.send(&set(Some("back at noon"))).await.expect("closed");
    let join = player::CreateClient {
        tenant: tenant.clone(),
        project: project.clone(),
        stage: stage.clone(),
    };
    let newcomer = sign_up(&installation).await;
    assert_eq!(refusal(&newcomer, &join).await, refused(503, "STAGE_IN_MAINTENANCE"));
    let refusal = newcomer.send(&join).await.expect_err("closed").to_string();
    assert!(refusal.contains("back at noon"), "{refusal}");
    // Whoever is in a lobby stays there; a match is refused with the same words.
    ada.client
        .send(&serde_json::json!({"play": "arena"}))
        .expect("the wish is queued");
    ada.until("the refusal", |guest| guest.heard("back at noon")).await;
    let call = dev::GetStageDetails {
        tenant: tenant.clone(),
        project: project.clone(),
        stage: stage.clone(),
    };
    let details = studio.developer.send(&call).await.expect("details").details;
    assert_eq!(
        details.maintenance.map(|now| now.message).as_deref(),
        Some("back at noon")
    );
    studio.developer.send(&set(None)).await.expect("open again");
    newcomer.send(&join).await.expect("let in");
    ada.client
        .send(&serde_json::json!({"play": "arena"}))
        .expect("the wish is queued");
    ada.until("a match", |guest| guest.is_in(RuntimeQualifier::Match)).await;
    installation.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lobbies_and_the_matchmaker_are_ended_and_made_anew_without_losing_players() {
    let installation = Installation::start(Options::default()).await;
    let studio = Studio::open(&installation).await;
    let deployment = open_lobby(&studio).await;
    let mut ada = Guest::visit(&installation, &studio, "Ada").await;
    ada.until("the lobby", |guest| guest.is_in(RuntimeQualifier::Lobby))
        .await;
    let first = ada.place.expect("a place").1;
    let lobby = studio.venues(deployment, "LOBBY", "OPEN").await[0].id;
    let players = async || {
        let call = dev::ListClients {
            tenant: text(studio.tenant),
            deployment_id: deployment,
            paging: Paging::default(),
        };
        studio.developer.send(&call).await.expect("the players").items
    };
    let [listed] = &players().await[..] else {
        panic!("Ada plays, and nobody else");
    };
    assert_eq!((listed.venue_id, listed.mode.as_deref()), (Some(lobby), None));
    let call = dev::DeleteLobby { lobby_id: lobby };
    assert!(studio.developer.send(&call).await.expect("deleted").deleted);
    ada.until("another lobby", |guest| {
        guest.is_in(RuntimeQualifier::Lobby) && guest.place.is_some_and(|(_, runtime)| runtime != first)
    })
    .await;
    assert!(ada.heard("closed by its developer"), "{:?}", ada.statuses);

    ada.client
        .send(&serde_json::json!({"play": "arena"}))
        .expect("the wish is queued");
    ada.until("a match", |guest| guest.is_in(RuntimeQualifier::Match)).await;
    let listed = &players().await[0];
    assert_eq!(
        (listed.qualifier.as_deref(), listed.mode.as_deref()),
        (Some("MATCH"), Some("arena"))
    );
    let matchmaker = studio.deployment(deployment).await.matchmaker_refs[0].matchmaker_id;
    let call = dev::DeleteMatchmaker {
        matchmaker_id: matchmaker,
    };
    assert!(studio.developer.send(&call).await.expect("deleted").deleted);
    assert!(!studio.developer.send(&call).await.expect("answered").deleted);
    ada.until("a lobby again", |guest| guest.is_in(RuntimeQualifier::Lobby))
        .await;
    assert!(studio.deployment(deployment).await.matchmaker_refs.is_empty());
    ada.client
        .send(&serde_json::json!({"play": "arena"}))
        .expect("the wish is queued");
    ada.until("the refusal", |guest| guest.heard("no matchmaker")).await;
    let call = dev::CreateMatchmakerRequest {
        tenant: text(studio.tenant),
        deployment_id: deployment,
    };
    studio.developer.send(&call).await.expect("a new one");
    let anew = studio.deployment(deployment).await.matchmaker_refs[0].matchmaker_id;
    assert_ne!(anew, matchmaker);
    studio
        .developer
        .send(&call)
        .await
        .expect("there is one: nothing happens");
    assert_eq!(
        studio.deployment(deployment).await.matchmaker_refs[0].matchmaker_id,
        anew
    );
    ada.client
        .send(&serde_json::json!({"play": "arena"}))
        .expect("the wish is queued");
    ada.until("a match", |guest| guest.is_in(RuntimeQualifier::Match)).await;
    installation.stop().await;
}

/// A developer's machine that runs the shooter's program.
struct Machine<'a> {
    studio: &'a Studio,
    run: LocalRunId,
    children: Vec<(dev::LocalStart, Child)>,
    /// Names of the variables that the last game server got.
    variables: Vec<String>,
}

impl Machine<'_> {
    /// Says what runs and does what is asked.
    async fn turn(&mut self, restart: bool) {
        let mut ended = Vec::new();
        self.children.retain_mut(|(start, child)| match child.try_wait() {
            Ok(None) => true,
            _ => {
                ended.push(dev::LocalEnd {
                    runtime_id: start.runtime_id,
                    generation: start.generation,
                    detail: "was killed".into(),
                });
                false
            }
        });
        let call = dev::InterchangeLocalRun {
            tenant: text(self.studio.tenant),
            run_id: self.run,
            running: self.children.iter().map(|(start, _)| *start).collect(),
            ended,
            restart,
            wait_ms: Some(200),
        };
        let wanted = self.studio.developer.send(&call).await.expect("an answer").runtimes;
        self.children.retain_mut(|(start, child)| {
            let stays = wanted
                .iter()
                .any(|one| one.runtime_id == start.runtime_id && one.generation == start.generation);
            if !stays {
                child.kill().ok();
                child.wait().ok();
            }
            stays
        });
        for one in wanted {
            let Some(environment) = one.environment else { continue };
            self.variables = environment.keys().cloned().collect();
            let child = Command::new(program("shooter-runtime"))
                .env_clear()
                .envs(environment.iter().map(|(name, value)| (name, value.as_str())))
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("the shooter starts");
            let start = dev::LocalStart {
                runtime_id: one.runtime_id,
                generation: one.generation,
            };
            self.children.push((start, child));
        }
    }
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        for (_, child) in &mut self.children {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stage_runs_on_a_developers_own_machine_as_long_as_that_asks() {
    let installation = Installation::start(Options {
        databases: 2,
        instances: 2,
        ..Options::default()
    })
    .await;
    let studio = Studio::open(&installation).await;
    let (tenant, project, stage) = place(&studio);
    // No image: the version waits for a machine.
    let version = serde_json::from_value(shooter::version()).expect("a version config");
    let version = studio.version(version, "local://").await;
    let deployment = studio
        .deploy(version, config(serde_json::json!({"min_lobbies": 1})))
        .await;
    for (name, secret) in [("MOTD", false), ("DB_PASSWORD", true)] {
        let call = dev::SetStageVariable {
            tenant: tenant.clone(),
            project: project.clone(),
            stage: stage.clone(),
            name: text(name),
            value: Secret::new("value"),
            secret,
        };
        studio.developer.send(&call).await.expect("a variable");
    }
    let call = dev::StartLocalRun {
        tenant: tenant.clone(),
        project: project.clone(),
        stage: stage.clone(),
    };
    let run = studio.developer.send(&call).await.expect("a run").run_id;
    assert_eq!(
        refusal(&studio.developer, &call).await,
        refused(400, "DB_CONSTRAINT_VIOLATED"),
        "one machine at a time"
    );
    let mut machine = Machine {
        studio: &studio,
        run,
        children: Vec::new(),
        variables: Vec::new(),
    };
    let open = async |machine: &mut Machine<'_>, not: Option<omgservers_protocol::id::RuntimeId>| loop {
        machine.turn(false).await;
        let lobbies = studio.venues(deployment, "LOBBY", "OPEN").await;
        if let Some(lobby) = lobbies.first().filter(|lobby| Some(lobby.runtime_id) != not) {
            break lobby.runtime_id;
        }
    };
    let deadline = harness::DEADLINE;
    let first = tokio::time::timeout(deadline, open(&mut machine, None))
        .await
        .expect("a lobby opens");
    assert_eq!(machine.children.len(), 1);
    let got = |name: &str| machine.variables.iter().any(|variable| variable == name);
    assert!(got("MOTD") && !got("DB_PASSWORD"), "a secret can be set and not read");

    // A game server that dies is replaced, a changed program too.
    machine.children[0].1.kill().expect("killed");
    let second = tokio::time::timeout(deadline, open(&mut machine, Some(first)))
        .await
        .expect("another lobby");
    machine.turn(true).await;
    let third = tokio::time::timeout(deadline, open(&mut machine, Some(second)))
        .await
        .expect("a third lobby");
    assert_ne!(first, third);

    // Somebody else's run is nobody's business.
    let stranger = Studio::open(&installation).await;
    let call = dev::StopLocalRun {
        tenant: tenant.clone(),
        run_id: run,
    };
    assert!(!stranger.developer.send(&call).await.expect("answered").deleted);
    // Who may no longer deploy has no machine any more, until the permission is back.
    let support = installation.support().await;
    let permissions = vec![support::StagePermission::DeploymentManager];
    let withdraw = support::DeleteStagePermissions {
        tenant: tenant.clone(),
        project: project.clone(),
        stage: stage.clone(),
        user_id: studio.user,
        permissions_to_delete: permissions.clone(),
    };
    support.send(&withdraw).await.expect("withdrawn");
    let interchange = dev::InterchangeLocalRun {
        tenant: tenant.clone(),
        run_id: run,
        running: Vec::new(),
        ended: Vec::new(),
        restart: false,
        wait_ms: None,
    };
    assert_eq!(
        refusal(&studio.developer, &interchange).await,
        refused(403, "PERMISSION_NOT_FOUND")
    );
    let grant = support::CreateStagePermissions {
        tenant: tenant.clone(),
        project,
        stage,
        user_id: studio.user,
        permissions_to_create: permissions,
    };
    support.send(&grant).await.expect("granted");
    assert!(studio.developer.send(&call).await.expect("stopped").deleted);
    eventually("the lobby waits for a machine again", || async {
        let pending = studio.venues(deployment, "LOBBY", "PENDING").await;
        let reason = pending.first()?.reason.as_deref()?;
        reason.contains("waiting for the developer's machine").then_some(())
    })
    .await;
    assert_eq!(
        refusal(&studio.developer, &interchange).await,
        refused(404, "OBJECT_NOT_FOUND")
    );
    drop(machine);
    installation.stop().await;
}
