//! A match and its players in one room, without sockets.

use std::collections::BTreeMap;

use omgservers_runtime_sdk::{ClientId, Lane};
use shooter_runtime::client::Client;
use shooter_runtime::config::GameConfig;
use shooter_runtime::match_server::{MatchServer, MatchSettings, Output};
use shooter_runtime::profile::Profile;
use shooter_simulation::Mode;

pub(crate) fn settings(mode: Mode, user_data: &str) -> MatchSettings {
    let json = serde_json::value::RawValue::from_string(user_data.to_owned()).expect("JSON");
    let (game, cause) = GameConfig::parse(Some(&json));
    assert!(cause.is_none(), "{cause:?}");
    MatchSettings { mode, seed: 11, game }
}

/// A match with clients on perfect wires.
pub(crate) struct Table {
    pub(crate) server: MatchServer,
    pub(crate) clients: BTreeMap<ClientId, Client>,
    /// Everything but packets.
    pub(crate) outputs: Vec<Output>,
    connected: Vec<ClientId>,
}

impl Table {
    pub(crate) fn new(mode: Mode, user_data: &str) -> Self {
        Self {
            server: MatchServer::new(settings(mode, user_data)),
            clients: BTreeMap::new(),
            outputs: Vec::new(),
            connected: Vec::new(),
        }
    }

    pub(crate) fn join(&mut self, client: ClientId) {
        self.server.add(client, Profile::default());
        self.connect(client);
    }

    pub(crate) fn connect(&mut self, client: ClientId) {
        self.clients.entry(client).or_default();
        self.connected.retain(|other| *other != client);
        self.connected.push(client);
        self.server.connect(client);
        self.deliver();
    }

    pub(crate) fn disconnect(&mut self, client: ClientId) {
        self.connected.retain(|other| *other != client);
        self.server.disconnect(client);
        self.deliver();
    }

    pub(crate) fn client(&mut self, client: ClientId) -> &mut Client {
        self.clients.get_mut(&client).expect("the client joined")
    }

    pub(crate) fn tick(&mut self) {
        self.server.tick();
        self.deliver();
    }

    pub(crate) fn ticks(&mut self, count: u32) {
        for _ in 0..count {
            self.tick();
        }
    }

    pub(crate) fn deliver(&mut self) {
        while let Some(output) = self.server.poll() {
            match output {
                Output::Send { client, bytes, .. } => {
                    if let Some(client) = self.clients.get_mut(&client) {
                        client.receive(&bytes).expect("the match sends what its schema says");
                    }
                }
                Output::SendAll { bytes, lane } => {
                    assert_eq!(lane, Lane::Reliable);
                    for client in &self.connected {
                        let client = self.clients.get_mut(client).expect("the client joined");
                        client.receive(&bytes).expect("the match sends what its schema says");
                    }
                }
                other => self.outputs.push(other),
            }
        }
    }
}
