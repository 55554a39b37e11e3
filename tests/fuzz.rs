//! Requests that are almost right, for a minute: whatever is said to whichever operation, the service answers with a clear
//! refusal, never with a failure of its own, and goes on working.

mod mutate;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use harness::{Installation, Options, Studio, game_config};
use omgservers_protocol::id::UserId;
use omgservers_protocol::token::Role;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};

use crate::http::{Answer, try_post_bytes, try_post_form};
use crate::routes::{For, Scene, address, table, zip_with_a_file};
use mutate::Mutator;

const LENGTH: Duration = Duration::from_secs(60);
/// At the same time. Fewer than the archives that may be on their way at once.
const CALLERS: usize = 3;
/// Requests before everything is made anew: by then much of it is deleted.
const SCENE_REQUESTS: usize = 400;
/// Failures after which it is enough.
const FAILURES_MAX: usize = 10;
/// Bytes of a body that are shown of a request that failed.
const SHOWN_MAX: usize = 4_000;

/// Operations with what the table does not say of them: whatever has a shape worth breaking.
pub(crate) fn rich(scene: &Scene) -> Vec<(&'static str, Role, Value)> {
    let (tenant, project, stage) = (scene.studio.tenant, scene.studio.project, scene.studio.stage);
    let (client, runtime) = (scene.client, scene.runtime);
    let on_stage = json!({"tenant": tenant, "project": project, "stage": stage});
    let with = |more: Value| {
        let mut body = on_stage.clone();
        let more = more.as_object().expect("fields").clone();
        body.as_object_mut().expect("fields").extend(more);
        body
    };
    let command = |qualifier: &str, body: Value| json!({"qualifier": qualifier, "body": body});
    let config = json!({"min_lobbies": 1, "max_lobbies": 3, "lobby": {"max_assignments": 5, "cpu_limit": 10, "memory_limit": 64},
        "match": {"cpu_limit": 10, "memory_limit": 64}, "matchmaker": {"max_matches": 3, "modes": {"duel": {"min_matches": 1}}}});
    vec![
        (
            "runtime/interchange",
            Role::Runtime,
            json!({"consumed_commands": ["1"], "ready": true, "wait_ms": 1, "outgoing_commands": [
                command("RESPOND_CLIENT", json!({"client_id": client, "message": {"a": 1}})),
                command("MULTICAST_MESSAGE", json!({"clients": [client], "message": [1]})),
                command("BROADCAST_MESSAGE", json!({"message": "x"})),
                command("SET_PROFILE", json!({"client_id": client, "profile": {"name": "Ada"}})),
                command("REQUEST_MATCHMAKING", json!({"client_id": client, "mode": "duel"})),
                command("UPGRADE_CONNECTION", json!({"client_id": client, "protocol": "DISPATCHER"})),
                command("KICK_CLIENT", json!({"client_id": client})),
                command("STOP_MATCHMAKING", json!({})),
            ]}),
        ),
        (
            "player/interchange",
            Role::Player,
            json!({"client_id": client, "consumed_messages": ["1"], "wait_ms": 1, "outgoing_messages": [
                {"id": 1, "qualifier": "CLIENT_OUTGOING_MESSAGE", "body": {"data": {"play": "duel"}}}]}),
        ),
        (
            "dispatcher/report",
            Role::Dispatcher,
            json!({"connected_clients": [client], "events": [
                command("ROOM_OPENED", json!({"runtime_id": runtime})),
                command("PLAYER_JOINED", json!({"runtime_id": runtime, "client_id": client})),
                command("PLAYER_LEFT", json!({"runtime_id": runtime, "client_id": client})),
                command("ROOM_LOST", json!({"runtime_id": runtime}))]}),
        ),
        (
            "developer/create-version",
            Role::Developer,
            json!({"tenant": tenant, "project": project, "config": game_config()}),
        ),
        (
            "developer/deploy-version",
            Role::Developer,
            with(json!({"version_id": scene.version, "config": config})),
        ),
        (
            "developer/create-image",
            Role::Developer,
            json!({"tenant": tenant, "project": project, "version": scene.version, "qualifier": "MATCH", "image": "file:///nowhere/game.tar"}),
        ),
        (
            "developer/set-stage-maintenance",
            Role::Developer,
            with(json!({"message": "back at noon"})),
        ),
        (
            "developer/list-stage-variables",
            Role::Developer,
            with(json!({"page_size": 10, "page_token": "KEY"})),
        ),
        (
            "developer/list-projects",
            Role::Developer,
            json!({"tenant": tenant, "page_size": 10, "page_token": "1"}),
        ),
        (
            "developer/list-tenants",
            Role::Developer,
            json!({"page_size": 10, "page_token": "1.1"}),
        ),
        (
            "developer/create-api-key",
            Role::Developer,
            json!({"tenant": tenant, "project": project, "name": "ci", "scopes": ["BUILD"], "expires": crate::routes::in_an_hour()}),
        ),
        ("developer/start-local-run", Role::Developer, on_stage.clone()),
        (
            "support/set-tenant-quotas",
            Role::Support,
            json!({"tenant": tenant, "quotas": {"runtimes": 9, "cpu": 900, "memory": 9000, "players": 9}}),
        ),
        (
            "admin/list-users",
            Role::Admin,
            json!({"role": "player", "page_size": 10, "page_token": "1.1"}),
        ),
    ]
}

/// A request as it was sent, for whoever has to repeat it.
struct Sent {
    operation: &'static str,
    body: Vec<u8>,
    answer: reqwest::Result<Answer>,
}

impl Sent {
    /// Failures that are said to happen aside, nothing is the service's own fault.
    fn is_fine(&self) -> bool {
        match &self.answer {
            Err(_) => false,
            Ok(answer) => {
                answer.status < 500
                    || answer.qualifier == "STAGE_IN_MAINTENANCE"
                    // A few archives at a time, and one of each user.
                    || (answer.status == 503 && answer.body.contains("way, try again"))
                    || (self.operation == "admin/ping-docker-host" && answer.status == 500)
            }
        }
    }
}

impl std::fmt::Display for Sent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let body = String::from_utf8_lossy(&self.body[..self.body.len().min(SHOWN_MAX)]);
        write!(f, "{} ({} bytes) {body}\nanswered ", self.operation, self.body.len())?;
        match &self.answer {
            Ok(answer) => write!(f, "{} {}", answer.status, answer.body),
            Err(cause) => write!(f, "nothing: {cause:?}"),
        }
    }
}

struct Caller<'a> {
    installation: &'a Installation,
    scene: &'a Scene,
    bodies: Vec<(&'static str, Option<Role>, Value)>,
    mutator: Mutator,
}

impl<'a> Caller<'a> {
    fn new(installation: &'a Installation, scene: &'a Scene) -> Self {
        let role = |who: For| match who {
            For::Anybody => None,
            For::Only(role) => Some(role),
        };
        let mut bodies: Vec<_> = table(scene)
            .into_iter()
            .map(|row| (row.operation, role(row.who), row.body))
            .collect();
        for (operation, role, body) in rich(scene) {
            bodies.push((operation, Some(role), body));
        }
        let ids = [
            scene.studio.tenant.get(),
            scene.studio.project.get(),
            scene.studio.stage.get(),
            scene.studio.user.get(),
            scene.version.get(),
            scene.deployment.get(),
            scene.lobby.get(),
            scene.matchmaker.get(),
            scene.runtime.get(),
            scene.client.get(),
            scene.spare[0].get(),
        ];
        Self {
            installation,
            scene,
            bodies,
            mutator: Mutator::new(&ids),
        }
    }

    fn token(&self, role: Role) -> String {
        let tokens = &self.installation.services[0].app().tokens;
        match role {
            Role::Developer => tokens.for_user(self.scene.studio.user, role, 0),
            Role::Player => self.scene.player_token.clone(),
            Role::Runtime => tokens.for_runtime(self.scene.runtime, 0),
            // Nobody whose password could be changed.
            _ => tokens.for_user(UserId(77), role, 0),
        }
    }

    async fn send(&self, random: &mut StdRng) -> Sent {
        let (operation, role, body) = loop {
            let chosen = self.bodies.choose(random).expect("there are operations");
            // What is deleted can be asked nothing any more: seldom.
            if !chosen.0.contains("/delete-") || random.random_range(0..10) == 0 {
                break chosen;
            }
        };
        let mut body = body.clone();
        for _ in 0..*[0, 1, 1, 1, 2, 3].choose(random).expect("a number") {
            self.mutator.change(random, &mut body);
        }
        let url = format!("{}{}", self.installation.base, address(operation));
        let token = role.map(|role| self.token(role));
        let (bytes, answer) = if operation.ends_with("upload-files-archive") && body.is_object() {
            let mut zip = zip_with_a_file();
            mutate::bytes(random, &mut zip);
            let name = *["version.zip", "other.zip", ""].choose(random).expect("a name");
            let answer = try_post_form(&url, token.as_deref(), &body, (name, zip)).await;
            (body.to_string().into_bytes(), answer)
        } else {
            let bytes = mutate::write(random, &body);
            (bytes.clone(), try_post_bytes(&url, token.as_deref(), bytes).await)
        };
        Sent {
            operation,
            body: bytes,
            answer,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_said_to_an_operation_is_no_failure_of_the_service() {
    count_panics();
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let installation = Installation::start(Options::default()).await;
    let begun = Instant::now();
    let (mut requests, mut accepted, mut failures) = (0, 0, Vec::new());
    while begun.elapsed() < LENGTH && failures.len() < FAILURES_MAX {
        let scene = Scene::set(&installation).await;
        let caller = Caller::new(&installation, &scene);
        let rounds = (0..CALLERS).map(|number| {
            let (caller, first) = (&caller, requests + number);
            async move {
                let (mut accepted, mut failures) = (0, Vec::new());
                for request in (first..first + SCENE_REQUESTS).step_by(CALLERS) {
                    let mut random = StdRng::seed_from_u64(seed.wrapping_add(request as u64));
                    let sent = caller.send(&mut random).await;
                    if !sent.is_fine() {
                        failures.push(format!("seed {seed}, request {request}: {sent}"));
                    }
                    accepted += usize::from(sent.answer.is_ok_and(|answer| answer.status == 200));
                    if begun.elapsed() >= LENGTH {
                        break;
                    }
                }
                (accepted, failures)
            }
        });
        for (more, failed) in futures_util::future::join_all(rounds).await {
            accepted += more;
            failures.extend(failed);
        }
        requests += SCENE_REQUESTS;
    }
    println!("about {requests} requests, {accepted} of them accepted");
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    // It still works, no job chokes on what it was left, and nothing died unseen.
    let studio = Studio::open(&installation).await;
    let version = studio.version(game_config(), "local://").await;
    let deployment = studio.deploy(version, None).await;
    harness::eventually("the deployment has its lobby", || async {
        let details = studio.deployment(deployment).await;
        (details.lobby_refs.len() == 1).then_some(())
    })
    .await;
    harness::eventually("no job keeps failing", || async {
        let left = installation.dump("event").await;
        let is_failing = left.lines().any(|event| !event.contains(r#""attempts":0"#));
        (!is_failing).then_some(())
    })
    .await;
    assert_eq!(PANICS.load(Ordering::Relaxed), 0, "something panicked");
    installation.stop().await;
}

static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Counts panics anywhere but in the stories themselves: one in a task is seen by nobody else.
fn count_panics() {
    static COUNTED: AtomicBool = AtomicBool::new(false);
    if COUNTED.swap(true, Ordering::Relaxed) {
        return;
    }
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if panic
            .location()
            .is_some_and(|place| !place.file().starts_with("tests/"))
        {
            PANICS.fetch_add(1, Ordering::Relaxed);
        }
        before(panic);
    }));
}
