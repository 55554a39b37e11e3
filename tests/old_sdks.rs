//! The old SDKs, unchanged: the sequence that a real game relies on, told by their emulator with processes and containers.

use std::time::Instant;

use harness::{DEADLINE, Installation, Options, Studio, engine, eventually, shooter};
use old_sdk::{Event, Options as Sdk, Payload, Player, RuntimeQualifier, State, Variant};
use omgservers_protocol::config::VersionConfig;
use serde_json::{Value, json};

/// A duel with two sides, so that groups are seen.
fn game() -> VersionConfig {
    let side = |name: &str| json!({"name": name, "min_players": 1, "max_players": 1});
    let config = json!({"modes": [{"name": "duel", "min_players": 2, "max_players": 2, "groups": [side("red"), side("blue")]},
        {"name": "solo", "min_players": 1, "max_players": 1, "groups": [side("only")]}], "user_data": {"level": 3}});
    serde_json::from_value(config).expect("a version config")
}

/// A player of the old SDK and what has happened to it.
struct Guest {
    player: Player,
    log: Vec<Event>,
    runtime: Option<String>,
}

impl Guest {
    /// Signs up and waits for the first lobby.
    fn arrive(base: &str, sdk: &Sdk) -> Self {
        let player = Player::new(base, sdk.clone()).expect("an address");
        let mut guest = Self {
            player,
            log: Vec::new(),
            runtime: None,
        };
        guest.player.sign_up().expect("not signed up yet");
        let (user, password) = guest.until("SIGNED_UP", |event| match event {
            Event::SignedUp { user_id, password } => Some((user_id.clone(), password.clone())),
            _ => None,
        });
        guest.player.sign_in(&user, &password).expect("signed up");
        guest.until("SIGNED_IN", |event| {
            matches!(event, Event::SignedIn { .. }).then_some(())
        });
        // The welcome came first: both values are there.
        guest.until("GREETED", |event| match event {
            Event::Greeted {
                version_id: Some(_),
                version_created: Some(created),
            } => created.ends_with('Z').then_some(()),
            _ => None,
        });
        guest
    }

    fn until<T>(&mut self, what: &str, mut seen: impl FnMut(&Event) -> Option<T>) -> T {
        let log = &mut self.log;
        let found = self.player.run_until(Instant::now() + DEADLINE, |_, event| {
            log.push(event.clone());
            assert!(
                !matches!(event, Event::PlayerFailed { .. }),
                "the player failed: {log:?}"
            );
            seen(&event)
        });
        assert!(
            !matches!(self.player.state(), State::Silent | State::Failed),
            "{:?}",
            self.log
        );
        found.unwrap_or_else(|missed| panic!("no {what}: {missed:?}"))
    }

    fn say(&mut self, text: &str) {
        self.player.send_service_message(text).expect("signed in");
    }

    fn answer(&mut self, expected: &str) {
        self.until(expected, |event| match event {
            Event::MessageReceived { message } => (message == &Value::from(expected)).then_some(()),
            _ => None,
        });
    }

    fn assigned(&mut self, wanted: RuntimeQualifier) {
        let runtime = self.until("ASSIGNED", |event| match event {
            Event::Assigned {
                runtime_qualifier,
                runtime_id,
            } if *runtime_qualifier == wanted => Some(runtime_id.clone()),
            _ => None,
        });
        self.runtime = Some(runtime);
    }

    fn connected(&mut self) {
        self.until("the socket", |event| {
            matches!(event, Event::ConnectionUpgraded | Event::ConnectionDispatched).then_some(())
        });
    }

    fn packet(&mut self, what: &str, mut wanted: impl FnMut(&Payload) -> bool) -> Payload {
        self.until(what, |event| match event {
            Event::DispatcherMessageReceived { payload } if wanted(payload) => Some(payload.clone()),
            _ => None,
        })
    }

    /// Asks the match who it is: group and profile.
    fn who(&mut self) -> Value {
        self.player.send_text_message("who").expect("connected");
        match self.packet(
            "who",
            |payload| matches!(payload, Payload::Text(text) if text.starts_with('{')),
        ) {
            Payload::Text(text) => serde_json::from_str(&text).expect("JSON"),
            Payload::Binary(_) => unreachable!("a text was waited for"),
        }
    }
}

/// Two players at the same time: one that is not looked after does not poll either.
fn both<T: Send>(ada: &mut Guest, bob: &mut Guest, step: impl Fn(&mut Guest) -> T + Sync) -> (T, T) {
    std::thread::scope(|scope| {
        let other = scope.spawn(|| step(bob));
        (step(ada), other.join().expect("Bob's step"))
    })
}

/// Steps 1 to 8 of what real games rely on.
fn play(base: &str, sdk: &Sdk) -> String {
    let mut ada = Guest::arrive(base, sdk);
    let mut bob = Guest::arrive(base, sdk);
    // Strings come back unchanged.
    for text in ["echo:hällo \"you\" \\ / \u{1F680}", "echo:"] {
        ada.say(text);
        ada.answer(text);
    }
    ada.say("broadcast:to all");
    ada.answer("broadcast:to all");
    bob.answer("broadcast:to all");
    // A new profile and a wish in one batch: the match sees the new profile, and the groups.
    let (one, two) = both(&mut ada, &mut bob, |guest| {
        guest.say("play:duel");
        guest.assigned(RuntimeQualifier::Match);
        guest.connected();
        guest.who()
    });
    assert_eq!(ada.runtime, bob.runtime, "one match");
    for seen in [&one, &two] {
        assert_eq!(seen["profile"], json!({"played": 1}), "{seen}");
    }
    let mut groups = [one["group"].as_str(), two["group"].as_str()];
    groups.sort_unstable();
    assert_eq!(groups, [Some("blue"), Some("red")]);
    // Text and binary both ways, and to everybody.
    ada.player.send_binary_message(&[0, 1, 2, 255]).expect("connected");
    ada.packet("the bytes", |payload| *payload == Payload::Binary(vec![0, 1, 2, 255]));
    ada.player.send_text_message("all:hear me").expect("connected");
    for guest in [&mut ada, &mut bob] {
        guest.packet("the broadcast", |payload| {
            *payload == Payload::Text("all:hear me".into())
        });
    }
    // No more players; then everybody leaves, back to a lobby, with the socket closed by the SDK.
    ada.player.send_text_message("stop").expect("connected");
    let closed = ada.runtime.clone().expect("a match");
    both(&mut ada, &mut bob, |guest| {
        guest.player.send_text_message("leave").expect("connected");
        guest.assigned(RuntimeQualifier::Lobby);
        guest.say("echo:again");
        guest.answer("echo:again");
    });
    // The next wish finds another match.
    ada.say("play:solo");
    ada.assigned(RuntimeQualifier::Match);
    assert_ne!(ada.runtime.as_deref(), Some(closed.as_str()));
    ada.connected();
    assert_eq!(ada.who()["profile"], json!({"played": 2}));
    closed
}

async fn tell(options: Options, image: String) {
    let options = Options {
        configure: |config| config.matches_empty_interval_s = 3,
        ..options
    };
    let installation = Installation::start(options).await;
    let studio = Studio::open(&installation).await;
    let version = studio.version(game(), &image).await;
    let deployment = studio.deploy(version, None).await;
    for variant in [Variant::Sdk097a1e2, Variant::Ref] {
        let base = installation.base.clone();
        let (tenant, project, stage) = (
            studio.tenant.to_string(),
            studio.project.to_string(),
            studio.stage.to_string(),
        );
        let sdk = Sdk {
            variant,
            ..Sdk::new(&tenant, &project, &stage)
        };
        let closed = tokio::task::spawn_blocking(move || play(&base, &sdk))
            .await
            .expect("the story is told");
        eventually("the closed match is gone", || async {
            let venues = studio.deployment(deployment).await.venues;
            (!venues.iter().any(|venue| venue.runtime_id.to_string() == closed)).then_some(())
        })
        .await;
    }
    installation.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn old_sdks_play_a_real_game_over_processes() {
    let image = format!("file://{}", shooter::pack("old-runtime").display());
    tell(Options::default(), image).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn old_sdks_play_a_real_game_over_containers() {
    if !engine::wanted() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let engine = engine::Engine::start(folder.path()).expect("an engine starts");
    let image = format!(
        "file://{}",
        harness::artefact("OMGSERVERS_TEST_OLD_SDK_ARCHIVE").display()
    );
    tell(
        Options {
            host: engine.address(),
            instances: 2,
            databases: 2,
            ..Options::default()
        },
        image,
    )
    .await;
}
