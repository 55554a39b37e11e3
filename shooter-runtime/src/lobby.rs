//! The lobby without clock and sockets: who is here, what was said, who wants to play. `PROTOCOL.md` 1 is its contract.
//!
//! Call what happened, then [`Lobby::poll`] until `None`; call [`Lobby::wake`] at [`Lobby::wake_at`]. Time is an argument.

use std::collections::VecDeque;
use std::time::Duration;

use omgservers_runtime_sdk::{ClientId, Json};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::profile::{Profile, clean};

/// Lines a newcomer sees.
const CHAT_LINES: usize = 20;
/// Characters of a line.
const LINE_MAX: usize = 200;
/// Between two lists of players.
const LIST_EVERY: Duration = Duration::from_millis(200);

/// What the shell must do.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    Respond { client: ClientId, message: Value },
    Broadcast { message: Value },
    SetProfile { client: ClientId, profile: Profile },
    RequestMatchmaking { client: ClientId, mode: String },
}

pub struct Lobby {
    modes: Vec<String>,
    /// In order of arrival.
    guests: Vec<Guest>,
    /// The last lines.
    chat: VecDeque<Value>,
    next_line: u64,
    list_changed: bool,
    /// When the next list of players may go out.
    list_after: Duration,
    outputs: VecDeque<Output>,
}

struct Guest {
    client: ClientId,
    profile: Profile,
    name: String,
    waiting: Option<String>,
    renaming: Allowance,
    saying: Allowance,
    playing: Allowance,
}

/// One of the things a player may say.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Said {
    Name(String),
    Say(String),
    Play(String),
}

impl Lobby {
    /// For a version with these modes.
    pub fn new(modes: Vec<String>) -> Self {
        Self {
            modes,
            guests: Vec::new(),
            chat: VecDeque::new(),
            next_line: 1,
            list_changed: false,
            list_after: Duration::ZERO,
            outputs: VecDeque::new(),
        }
    }

    pub fn guests(&self) -> usize {
        self.guests.len()
    }

    /// What to do next.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Lobby::wake`] has something to do.
    pub fn wake_at(&self) -> Option<Duration> {
        self.list_changed.then_some(self.list_after)
    }

    pub fn wake(&mut self, now: Duration) {
        if self.list_changed && now >= self.list_after {
            self.list_changed = false;
            self.list_after = now + LIST_EVERY;
            if !self.guests.is_empty() {
                let message = json!({"lobby": {"players": self.list()}});
                self.outputs.push_back(Output::Broadcast { message });
            }
        }
    }

    pub fn add(&mut self, now: Duration, client: ClientId, profile: Profile) {
        self.guests.retain(|guest| guest.client != client);
        let guest = Guest {
            client,
            name: profile.name_for(client),
            profile,
            waiting: None,
            renaming: Allowance::new(3, now),
            saying: Allowance::new(5, now),
            playing: Allowance::new(3, now),
        };
        let message = guest.you();
        self.guests.push(guest);
        self.outputs.push_back(Output::Respond { client, message });
        let message = json!({"lobby": {"players": self.list(), "chat": self.chat}});
        self.outputs.push_back(Output::Respond { client, message });
        self.list_changed = true;
        self.wake(now);
    }

    pub fn remove(&mut self, now: Duration, client: ClientId) {
        let before = self.guests.len();
        self.guests.retain(|guest| guest.client != client);
        self.list_changed |= self.guests.len() != before;
        self.wake(now);
    }

    /// A player says something.
    pub fn handle(&mut self, now: Duration, client: ClientId, message: &Json) {
        let Some(position) = self.guests.iter().position(|guest| guest.client == client) else {
            return;
        };
        match serde_json::from_str::<Said>(message.get()) {
            Ok(Said::Name(name)) => self.rename(now, position, &name),
            Ok(Said::Say(text)) => self.say(now, position, &text),
            Ok(Said::Play(mode)) => self.play(now, position, mode),
            Err(_) => {
                let known = "say one of `name`, `say` and `play`, each with a text";
                self.refuse(client, "message", known);
            }
        }
        self.wake(now);
    }

    /// The platform does not look for a match, and says why.
    pub fn matchmaking_failed(&mut self, now: Duration, client: ClientId, reason: &str) {
        if let Some(guest) = self.guests.iter_mut().find(|guest| guest.client == client) {
            guest.waiting = None;
            let message = guest.you();
            self.outputs.push_back(Output::Respond { client, message });
            self.refuse(client, "play", reason);
            self.list_changed = true;
            self.wake(now);
        }
    }

    fn rename(&mut self, now: Duration, position: usize, name: &str) {
        let guest = &mut self.guests[position];
        let client = guest.client;
        if !guest.renaming.take(now) {
            return self.refuse(client, "name", "that was too fast, wait a moment");
        }
        if !guest.profile.rename(name) {
            return self.refuse(client, "name", "a name has 1 to 16 visible characters");
        }
        guest.name = guest.profile.name_for(client);
        let message = guest.you();
        let profile = guest.profile.clone();
        self.outputs.push_back(Output::SetProfile { client, profile });
        self.outputs.push_back(Output::Respond { client, message });
        self.list_changed = true;
    }

    fn say(&mut self, now: Duration, position: usize, text: &str) {
        let guest = &mut self.guests[position];
        let client = guest.client;
        if !guest.saying.take(now) {
            return self.refuse(client, "say", "that was too fast, wait a moment");
        }
        let Some(text) = clean(text, LINE_MAX) else {
            return self.refuse(client, "say", "a line has 1 to 200 visible characters");
        };
        let line = json!({"n": self.next_line, "id": client, "name": guest.name, "text": text});
        self.next_line += 1;
        let message = json!({"lobby": {"chat": [&line]}});
        self.outputs.push_back(Output::Broadcast { message });
        self.chat.push_back(line);
        if self.chat.len() > CHAT_LINES {
            self.chat.pop_front();
        }
    }

    fn play(&mut self, now: Duration, position: usize, mode: String) {
        let guest = &mut self.guests[position];
        let client = guest.client;
        if !guest.playing.take(now) {
            return self.refuse(client, "play", "that was too fast, wait a moment");
        }
        if !self.modes.contains(&mode) {
            let reason = format!("there is no such mode, but {}", self.modes.join(", "));
            return self.refuse(client, "play", &reason);
        }
        guest.waiting = Some(mode.clone());
        let message = guest.you();
        self.outputs.push_back(Output::RequestMatchmaking { client, mode });
        self.outputs.push_back(Output::Respond { client, message });
        self.list_changed = true;
    }

    fn refuse(&mut self, client: ClientId, about: &str, reason: &str) {
        let message = json!({"error": reason, "about": about});
        self.outputs.push_back(Output::Respond { client, message });
    }

    fn list(&self) -> Vec<Value> {
        let entry = |guest: &Guest| json!({"id": guest.client, "name": guest.name, "wins": guest.profile.wins, "waiting": guest.waiting});
        self.guests.iter().map(entry).collect()
    }
}

impl Guest {
    fn you(&self) -> Value {
        let Profile {
            wins, kills, matches, ..
        } = self.profile;
        json!({"you": {"id": self.client, "name": self.name, "wins": wins, "kills": kills, "matches": matches,
            "waiting": self.waiting}})
    }
}

/// Once a second, and several times at once after a pause.
struct Allowance {
    burst: u32,
    left: u32,
    since: Duration,
}

impl Allowance {
    fn new(burst: u32, now: Duration) -> Self {
        Self {
            burst,
            left: burst,
            since: now,
        }
    }

    fn take(&mut self, now: Duration) -> bool {
        let seconds = now.saturating_sub(self.since).as_secs();
        self.since += Duration::from_secs(seconds);
        self.left = u64::from(self.left).saturating_add(seconds).min(self.burst.into()) as u32;
        let allowed = self.left > 0;
        self.left -= u32::from(allowed);
        allowed
    }
}
