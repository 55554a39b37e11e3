//! The loops themselves, against the SDK's platform in memory; time is tokio's and stands still while nobody waits.

use std::time::Duration;

use omgservers_protocol::config::{MatchRef, VersionConfig};
use omgservers_protocol::id::{MatchId, MatchmakerId};
use omgservers_runtime_sdk::testing::{Platform, Sent, To};
use omgservers_runtime_sdk::{ClientId, Lane, Left, RuntimeConfig};
use serde_json::json;
use shooter_runtime::client::Client;
use shooter_runtime::shell;
use tokio::task::JoinHandle;
use tokio::time::sleep;

const ANN: ClientId = ClientId(1);
const BOB: ClientId = ClientId(2);

fn config(mode: Option<&str>, user_data: &str) -> RuntimeConfig {
    let version = serde_json::from_str(include_str!("../version.json"));
    let mut version_config: VersionConfig = version.expect("the version's config");
    version_config.user_data = Some(serde_json::from_str(user_data).expect("JSON"));
    RuntimeConfig {
        lobby_config: None,
        match_config: mode.map(|mode| MatchRef {
            matchmaker_id: MatchmakerId(1),
            match_id: MatchId(790_001),
            mode: mode.to_owned(),
        }),
        version_config,
    }
}

/// A running match with two players' clients.
struct Match {
    platform: Platform,
    task: JoinHandle<anyhow::Result<()>>,
    clients: Vec<(ClientId, Client, bool)>,
    /// Everything but packets.
    sent: Vec<Sent>,
}

impl Match {
    fn start(mode: &str, user_data: &str) -> Self {
        let (platform, runtime) = Platform::start(config(Some(mode), user_data));
        Self {
            platform,
            task: tokio::spawn(shell::run_match(runtime)),
            clients: Vec::new(),
            sent: Vec::new(),
        }
    }

    async fn join(&mut self, client: ClientId, name: &str) {
        self.platform
            .add_client(client, Some("players"), &json!({"name": name, "wins": 4}));
        self.pass().await;
        assert!(self.sent.contains(&Sent::Upgrade { client }), "{:?}", self.sent);
        self.clients.push((client, Client::default(), true));
        self.platform.connect(client);
        self.pass().await;
    }

    fn client(&mut self, client: ClientId) -> &mut Client {
        let found = self.clients.iter_mut().find(|(id, ..)| *id == client);
        &mut found.expect("the client joined").1
    }

    /// A sixtieth of a second, and what comes of it.
    async fn pass(&mut self) {
        sleep(Duration::from_nanos(16_666_667)).await;
        for sent in self.platform.sent() {
            match sent {
                Sent::Packet { to, bytes, .. } => {
                    for (client, state, connected) in &mut self.clients {
                        if *connected && (to == To::All || to == To::One(*client)) {
                            state.receive(&bytes).expect("the match sends what its schema says");
                        }
                    }
                }
                other => self.sent.push(other),
            }
        }
    }

    /// A tick in which everybody named hunts the nearest.
    async fn hunt(&mut self, hunters: &[ClientId]) {
        for &hunter in hunters {
            let prey = self.client(hunter).nearest().unwrap_or(0);
            let packet = self.client(hunter).hunt(prey);
            self.platform.packet(hunter, Lane::Unreliable, packet);
        }
        self.pass().await;
    }

    async fn stop(mut self) {
        self.platform.stop();
        self.task.await.expect("no panic").expect("a good end");
    }
}

#[tokio::test(start_paused = true)]
async fn two_players_meet_among_bots_fight_to_the_end_and_are_sent_back() {
    let mut game = Match::start("arena", r#"{"bots":{"arena":6},"frag_limit":3,"closing_s":1}"#);
    assert!(
        game.platform.is_ready() || {
            game.pass().await;
            game.platform.is_ready()
        }
    );
    game.join(ANN, "Ada").await;
    game.join(BOB, "Bob").await;
    for _ in 0..10 {
        game.pass().await;
    }
    let names = game.client(BOB).names.clone();
    assert_eq!(names.values().filter(|(_, bot)| *bot).count(), 4);
    assert!(names.values().any(|name| *name == ("Ada".to_owned(), false)));

    let mut ticks = 0;
    while game.client(ANN).ranking.is_none() {
        game.hunt(&[ANN, BOB]).await;
        ticks += 1;
        assert!(ticks < 5 * 60 * 60, "the match does not end");
    }
    assert_eq!(game.client(BOB).ranking.as_ref().map(Vec::len), Some(6));
    for _ in 0..70 {
        game.pass().await;
    }
    assert!(game.sent.contains(&Sent::StopMatchmaking));
    for client in [ANN, BOB] {
        assert!(game.sent.contains(&Sent::Kick { client }), "{:?}", game.sent);
        let profile = game.sent.iter().find_map(|sent| match sent {
            Sent::SetProfile { client: owner, profile } if *owner == client => Some(profile),
            _ => None,
        });
        let profile = profile.expect("the result is kept");
        assert_eq!(profile["matches"], 1);
        assert!(profile["wins"] == 4 || profile["wins"] == 5, "{profile}");
    }
    let order = |wanted: fn(&Sent) -> bool| game.sent.iter().position(wanted);
    assert!(order(|sent| *sent == Sent::StopMatchmaking) < order(|sent| matches!(sent, Sent::Kick { .. })));
    game.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_player_comes_back_to_the_same_body() {
    let mut game = Match::start("duel", "{}");
    game.join(ANN, "Ada").await;
    game.join(BOB, "Bob").await;
    for _ in 0..120 {
        game.hunt(&[ANN, BOB]).await;
    }
    let (player, applied) = (game.client(ANN).player, game.client(ANN).acknowledged);
    assert!(applied > 100, "only {applied} inputs were applied");
    game.platform.disconnect(ANN, Left::Closed);
    game.clients[0].2 = false;
    for _ in 0..10 * 60 {
        game.pass().await;
    }
    assert!(game.client(BOB).names.contains_key(&player));
    game.clients[0] = (ANN, Client::default(), true);
    game.platform.connect(ANN);
    for _ in 0..60 {
        game.hunt(&[ANN]).await;
    }
    assert_eq!(game.client(ANN).player, player);
    assert!(game.client(ANN).acknowledged > applied + 50);
    game.stop().await;
}

#[tokio::test(start_paused = true)]
async fn snapshots_come_thirty_times_a_second_and_none_without_players() {
    let mut game = Match::start("arena", "{}");
    for _ in 0..60 {
        game.pass().await;
    }
    assert!(game.sent.is_empty());
    game.join(ANN, "Ada").await;
    let before = game.client(ANN).snapshots;
    sleep(Duration::from_secs(10)).await;
    game.pass().await;
    let received = game.client(ANN).snapshots - before;
    assert!((299..=303).contains(&received), "{received} snapshots in 10 s");
    game.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_lobby_lets_players_talk_and_asks_for_their_match() {
    let (mut platform, runtime) = Platform::start(config(None, "{}"));
    let task = tokio::spawn(shell::run_lobby(runtime));
    platform.add_client(ANN, None, &json!({"name": "Ada", "wins": 2}));
    platform.add_client(BOB, None, &json!({}));
    sleep(Duration::from_secs(1)).await;
    assert!(platform.is_ready());
    let sent = platform.sent();
    assert!(sent.iter().any(|sent| matches!(sent,
        Sent::Respond { client: ANN, message } if message["you"]["name"] == "Ada" && message["you"]["wins"] == 2)));
    let list = sent.iter().rev().find_map(|sent| match sent {
        Sent::Broadcast { message } => Some(message["lobby"]["players"].clone()),
        _ => None,
    });
    assert_eq!(list.unwrap().as_array().unwrap().len(), 2);

    platform.message(ANN, &json!({"say": "a duel?"}));
    platform.message(BOB, &json!({"play": "duel"}));
    sleep(Duration::from_secs(1)).await;
    let sent = platform.sent();
    let said =
        |sent: &Sent| matches!(sent, Sent::Broadcast { message } if message["lobby"]["chat"][0]["text"] == "a duel?");
    assert!(sent.iter().any(said), "{sent:?}");
    let mode = "duel".to_owned();
    assert!(
        sent.contains(&Sent::RequestMatchmaking { client: BOB, mode }),
        "{sent:?}"
    );
    platform.stop();
    task.await.expect("no panic").expect("a good end");
}
