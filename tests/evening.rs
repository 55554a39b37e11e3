//! An evening: two players meet in a lobby, play in one match with bots, and are back in the lobby. Told for every shape of
//! an installation.

use std::time::Duration;

use harness::{DEADLINE, Installation, Options, Studio, engine, eventually, shooter};
use omgservers_protocol::config::RuntimeQualifier;
use omgservers_protocol::id::{DeploymentId, RuntimeId};
use omgservers_runtime_sdk::player::{Client, Event, Player};
use serde_json::{Value, json};
use shooter_runtime::client::Client as Screen;

/// A player with a screen: what it was told and what it sees.
pub(crate) struct Guest {
    pub(crate) client: Client,
    pub(crate) screen: Screen,
    pub(crate) place: Option<(RuntimeQualifier, RuntimeId)>,
    pub(crate) lobby: Vec<String>,
    pub(crate) statuses: Vec<String>,
    pub(crate) is_connected: bool,
}

impl Guest {
    pub(crate) async fn arrive(base: &str, tenant: &str, project: &str, stage: &str, name: &str) -> Self {
        // A part of the platform may be just starting again.
        let player = eventually("a player signs up", || async { Player::sign_up(base).await.ok() }).await;
        let client = eventually("a client", || async {
            player.create_client(tenant, project, stage).await.ok()
        })
        .await;
        client.send(&json!({"name": name})).expect("the name is queued");
        Self {
            client,
            screen: Screen::default(),
            place: None,
            lobby: Vec::new(),
            statuses: Vec::new(),
            is_connected: false,
        }
    }

    pub(crate) async fn visit(installation: &Installation, studio: &Studio, name: &str) -> Self {
        let (tenant, project, stage) = (
            studio.tenant.to_string(),
            studio.project.to_string(),
            studio.stage.to_string(),
        );
        Self::arrive(&installation.base, &tenant, &project, &stage, name).await
    }

    fn hear(&mut self, event: Event) {
        match event {
            Event::Assigned { qualifier, runtime, .. } => self.place = Some((qualifier, runtime)),
            Event::Status { stage, detail, .. } => {
                self.statuses.push(format!("{stage:?} {}", detail.unwrap_or_default()))
            }
            Event::Message(message) => {
                let message: Value = serde_json::from_str(message.get()).expect("the lobby speaks JSON");
                if let Some(error) = message["error"].as_str() {
                    self.statuses.push(error.to_owned());
                }
                if let Some(players) = message["lobby"]["players"].as_array() {
                    self.lobby = players
                        .iter()
                        .filter_map(|player| player["name"].as_str().map(str::to_owned))
                        .collect();
                }
            }
            Event::Connected => self.is_connected = true,
            Event::Disconnected { .. } => self.is_connected = false,
            Event::Packet { bytes, .. } => self.screen.receive(&bytes).expect("the match speaks FlatBuffers"),
            Event::Removed { reason } => panic!("the client was removed: {reason}"),
            Event::Welcome { .. } => {}
        }
    }

    /// Listens, and plays while in a match, until it sees what it waits for.
    pub(crate) async fn until(&mut self, what: &str, mut seen: impl FnMut(&Self) -> bool) {
        let mut ticks = tokio::time::interval(Duration::from_millis(16));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let deadline = tokio::time::Instant::now() + DEADLINE;
        while !seen(self) {
            tokio::select! {
                event = self.client.next() => self.hear(event.expect("the client lives")),
                _ = ticks.tick(), if self.is_connected && self.screen.own.is_some() => {
                    let packet = match self.screen.nearest() {
                        Some(prey) => self.screen.hunt(prey),
                        None => self.screen.act(64, 0, 0, false),
                    };
                    self.client.send_packet(packet).ok();
                }
                () = tokio::time::sleep_until(deadline) => {
                    let (place, lobby, statuses) = (&self.place, &self.lobby, &self.statuses);
                    panic!("waited in vain for {what}: place {place:?}, lobby {lobby:?}, told {statuses:?}");
                }
            }
        }
    }

    pub(crate) fn is_in(&self, qualifier: RuntimeQualifier) -> bool {
        self.place.is_some_and(|(place, _)| place == qualifier)
    }

    /// Whether it was told something with these words.
    pub(crate) fn heard(&self, words: &str) -> bool {
        self.statuses.iter().any(|status| status.contains(words))
    }

    pub(crate) fn sees(&self, names: &[&str]) -> bool {
        names.iter().all(|name| self.lobby.iter().any(|seen| seen == name))
    }
}

/// Deploys the shooter with short matches.
pub(crate) async fn deploy_shooter(studio: &Studio, image: &str) -> DeploymentId {
    let mut config = shooter::version();
    config["user_data"] = json!({"bots": {"arena": 6}, "frag_limit": 3, "time_limit_s": 120, "closing_s": 1});
    let version = studio
        .version(serde_json::from_value(config).expect("a version config"), image)
        .await;
    let deployment = serde_json::from_value(json!({"matchmaker": {"modes": {"arena": {"min_matches": 1}}}}));
    studio
        .deploy(version, Some(deployment.expect("a deployment config")))
        .await
}

async fn spend_an_evening(options: Options, image: &str) {
    let options = Options {
        configure: |config| config.matches_empty_interval_s = 2,
        ..options
    };
    let installation = Installation::start(options).await;
    let studio = Studio::open(&installation).await;
    let deployment = deploy_shooter(&studio, image).await;
    let (mut ada, mut bob) = tokio::join!(
        Guest::visit(&installation, &studio, "Ada"),
        Guest::visit(&installation, &studio, "Bob")
    );
    tokio::join!(
        ada.until("Bob in the lobby", |guest| guest.is_in(RuntimeQualifier::Lobby)
            && guest.sees(&["Ada", "Bob"])),
        bob.until("Ada in the lobby", |guest| guest.is_in(RuntimeQualifier::Lobby)
            && guest.sees(&["Ada", "Bob"])),
    );
    for guest in [&ada, &bob] {
        guest
            .client
            .send(&json!({"play": "arena"}))
            .expect("the wish is queued");
    }
    let in_match = |guest: &Guest| guest.is_in(RuntimeQualifier::Match) && guest.screen.snapshots > 10;
    tokio::join!(ada.until("the match", in_match), bob.until("the match", in_match));
    assert_eq!(ada.place, bob.place, "both are in one match");
    assert!(
        ada.screen.names.values().any(|(_, is_bot)| *is_bot),
        "there are bots: {:?}",
        ada.screen.names
    );

    let over = |guest: &Guest| guest.screen.ranking.is_some();
    tokio::join!(ada.until("the end", over), bob.until("the end", over));
    let best = ada
        .screen
        .ranking
        .as_ref()
        .and_then(|ranking| ranking.first())
        .expect("somebody won");
    assert_eq!(best.2, 3, "the winner has the frags that end a match");
    let back = |guest: &Guest| guest.is_in(RuntimeQualifier::Lobby) && guest.sees(&["Ada", "Bob"]);
    ada.lobby.clear();
    bob.lobby.clear();
    tokio::join!(ada.until("the lobby again", back), bob.until("the lobby again", back));

    let played = ada.place;
    eventually("the match is gone, a spare one is there", || async {
        let details = studio.deployment(deployment).await;
        let matches: Vec<_> = details
            .venues
            .iter()
            .filter(|venue| venue.qualifier == "MATCH")
            .collect();
        (matches.len() == 1 && matches[0].players == 0 && matches[0].state == "OPEN").then_some(())
    })
    .await;
    assert_eq!(ada.place, played, "nobody was moved meanwhile");
    installation.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_players_spend_an_evening_on_one_shard() {
    spend_an_evening(
        Options {
            shards: 1,
            ..Options::default()
        },
        &shooter::image(),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_players_spend_an_evening_on_eight_shards_in_two_databases_with_two_instances() {
    let options = Options {
        shards: 8,
        databases: 2,
        instances: 2,
        ..Options::default()
    };
    spend_an_evening(options, &shooter::image()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_players_spend_an_evening_in_containers() {
    if !engine::wanted() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let engine = engine::Engine::start(folder.path()).expect("an engine starts");
    let image = format!(
        "file://{}",
        harness::artefact("OMGSERVERS_TEST_SHOOTER_ARCHIVE").display()
    );
    spend_an_evening(
        Options {
            host: engine.address(),
            ..Options::default()
        },
        &image,
    )
    .await;
}
