//! The lobby's contract, `PROTOCOL.md` 1.

use std::time::Duration;

use omgservers_runtime_sdk::ClientId;
use serde_json::{Value, json};
use shooter_runtime::lobby::{Lobby, Output};
use shooter_runtime::profile::Profile;

const ANN: ClientId = ClientId(70_001);
const BOB: ClientId = ClientId(70_002);

struct Room {
    lobby: Lobby,
    now: Duration,
}

impl Room {
    fn new() -> Self {
        Self {
            lobby: Lobby::new(vec!["duel".into(), "arena".into()]),
            now: Duration::from_secs(100),
        }
    }

    /// With Ann and Bob in it, and everything said.
    fn with_both() -> Self {
        let mut room = Self::new();
        room.add(ANN);
        room.add(BOB);
        // Twice: the list goes out, and the next one may.
        room.pass(1_000);
        room.pass(1_000);
        room.outputs();
        room
    }

    fn add(&mut self, client: ClientId) {
        self.lobby.add(self.now, client, Profile::default());
    }

    fn say(&mut self, client: ClientId, message: Value) {
        let message = serde_json::value::to_raw_value(&message).expect("plain data");
        self.lobby.handle(self.now, client, &message);
    }

    fn pass(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
        self.lobby.wake(self.now);
    }

    fn outputs(&mut self) -> Vec<Output> {
        std::iter::from_fn(|| self.lobby.poll()).collect()
    }

    fn refusals(&mut self) -> Vec<String> {
        let about = |output| match output {
            Output::Respond { message, .. } => message["about"].as_str().map(str::to_owned),
            _ => None,
        };
        self.outputs().into_iter().filter_map(about).collect()
    }
}

fn broadcasts(outputs: &[Output]) -> Vec<&Value> {
    fn message(output: &Output) -> Option<&Value> {
        match output {
            Output::Broadcast { message } => Some(message),
            _ => None,
        }
    }
    outputs.iter().filter_map(message).collect()
}

#[test]
fn a_newcomer_learns_who_they_are_who_is_here_and_what_was_said() {
    let mut room = Room::new();
    room.add(ANN);
    room.say(ANN, json!({"say": "anybody here?"}));
    room.outputs();
    room.add(BOB);
    let you =
        json!({"you": {"id": "70002", "name": "Player 0002", "wins": 0, "kills": 0, "matches": 0, "waiting": null}});
    let lobby = json!({"lobby": {
        "players": [
            {"id": "70001", "name": "Player 0001", "wins": 0, "waiting": null},
            {"id": "70002", "name": "Player 0002", "wins": 0, "waiting": null},
        ],
        "chat": [{"n": 1, "id": "70001", "name": "Player 0001", "text": "anybody here?"}],
    }});
    let expected = [you, lobby].map(|message| Output::Respond { client: BOB, message });
    assert_eq!(room.outputs()[..2], expected);
}

#[test]
fn a_line_reaches_everybody_with_its_number() {
    let mut room = Room::with_both();
    room.say(BOB, json!({"say": "  hello\n there "}));
    let line = json!({"n": 1, "id": "70002", "name": "Player 0002", "text": "hello there"});
    let message = json!({"lobby": {"chat": [line]}});
    assert_eq!(room.outputs(), [Output::Broadcast { message }]);
}

#[test]
fn a_name_is_kept_shown_and_told_to_the_others() {
    let mut room = Room::with_both();
    room.say(ANN, json!({"name": " Ada  Lovelace"}));
    let outputs = room.outputs();
    let kept = outputs.iter().find_map(|output| match output {
        Output::SetProfile { client, profile } => Some((*client, profile.name.clone())),
        _ => None,
    });
    assert_eq!(kept, Some((ANN, Some("Ada Lovelace".to_owned()))));
    assert_eq!(broadcasts(&outputs)[0]["lobby"]["players"][0]["name"], "Ada Lovelace");
    assert!(outputs.iter().any(
        |output| matches!(output, Output::Respond { client: ANN, message } if message["you"]["name"] == "Ada Lovelace")
    ));
}

#[test]
fn who_wants_to_play_is_passed_on_and_shown_as_waiting() {
    let mut room = Room::with_both();
    room.say(ANN, json!({"play": "arena"}));
    let outputs = room.outputs();
    let mode = "arena".to_owned();
    assert_eq!(outputs[0], Output::RequestMatchmaking { client: ANN, mode });
    assert_eq!(broadcasts(&outputs)[0]["lobby"]["players"][0]["waiting"], "arena");
    room.lobby.matchmaking_failed(room.now, ANN, "the stage is closed");
    room.pass(1_000);
    let outputs = room.outputs();
    assert_eq!(broadcasts(&outputs)[0]["lobby"]["players"][0]["waiting"], Value::Null);
}

#[test]
fn what_cannot_be_done_is_refused_with_a_reason() {
    let check = |message: Value, about: &str| {
        let mut room = Room::with_both();
        room.say(ANN, message.clone());
        assert_eq!(room.refusals(), [about], "{message}");
    };
    check(json!({"play": "chess"}), "play");
    check(json!({"say": " "}), "say");
    check(json!({"say": "x".repeat(201)}), "say");
    check(json!({"name": ""}), "name");
    check(json!({"name": "x".repeat(17)}), "name");
    check(json!({"dance": "tango"}), "message");
    check(json!({"say": 7}), "message");
    check(json!("hello"), "message");
    check(json!(null), "message");
}

#[test]
fn chatter_is_held_back_and_silence_gives_the_right_to_speak_again() {
    let mut room = Room::with_both();
    for _ in 0..20 {
        room.say(ANN, json!({"say": "spam"}));
    }
    assert_eq!(room.refusals().len(), 15);
    room.pass(2_000);
    for _ in 0..5 {
        room.say(ANN, json!({"say": "spam"}));
    }
    assert_eq!(room.refusals().len(), 3);
    room.say(BOB, json!({"say": "others are not held back"}));
    assert!(room.refusals().is_empty());
}

#[test]
fn a_rush_of_newcomers_makes_few_lists() {
    let mut room = Room::new();
    for number in 0..100 {
        room.add(ClientId(number));
        room.pass(10);
    }
    room.pass(1_000);
    let outputs = room.outputs();
    let lists = broadcasts(&outputs);
    assert!(lists.len() <= 7, "{} lists in a second", lists.len());
    assert_eq!(lists.last().unwrap()["lobby"]["players"].as_array().unwrap().len(), 100);
}

#[test]
fn who_has_left_is_not_listed_and_not_heard() {
    let mut room = Room::with_both();
    room.lobby.remove(room.now, ANN);
    room.say(ANN, json!({"say": "I am a ghost"}));
    room.pass(1_000);
    let outputs = room.outputs();
    assert_eq!(broadcasts(&outputs).len(), 1);
    assert_eq!(broadcasts(&outputs)[0]["lobby"]["players"].as_array().unwrap().len(), 1);
    assert_eq!(room.lobby.wake_at(), None);
}

#[test]
fn a_newcomer_sees_no_more_than_the_last_twenty_lines() {
    let mut room = Room::with_both();
    for number in 0..50 {
        room.say(ANN, json!({"say": format!("line {number}")}));
        room.pass(1_000);
    }
    room.outputs();
    room.add(ClientId(9));
    let outputs = room.outputs();
    let Output::Respond { message, .. } = &outputs[1] else {
        panic!("{outputs:?}");
    };
    let chat = message["lobby"]["chat"].as_array().unwrap();
    assert_eq!(
        (chat.len(), &chat[0]["n"], &chat[19]["text"]),
        (20, &json!(31), &json!("line 49"))
    );
}
