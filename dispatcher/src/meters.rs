//! The figures that `/metrics` shows. Handles are made once; what happens per message is counted inside the rooms and
//! added here every second.

use metrics::{Counter, Gauge, counter, describe_counter, describe_gauge, gauge};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

use crate::room::Counts;

pub(crate) struct Meters {
    pub(crate) refused_connections: Counter,
    pub(crate) opened_connections: Counter,
    pub(crate) lost_events: Counter,
    pub(crate) failed_reports: Counter,
    pub(crate) passed_on: Counter,
    pub(crate) not_passed_on: Counter,
    connections: Gauge,
    turned_away: Counter,
    rooms: Gauge,
    rooms_linked: Gauge,
    players: Gauge,
    messages_from_players: Counter,
    messages_to_players: Counter,
    unreliable_full: Counter,
    stale: Counter,
    not_connected: Counter,
    ignored: Counter,
    too_slow: Counter,
    too_fast: Counter,
    idle: Counter,
    replaced: Counter,
    kicked: Counter,
    malformed: Counter,
    exporter: PrometheusHandle,
}

impl Meters {
    /// Each server has a recorder of its own, so that several in one process do not mix their figures.
    pub(crate) fn new() -> Self {
        let recorder = PrometheusBuilder::new().build_recorder();
        let exporter = recorder.handle();
        metrics::with_local_recorder(&recorder, || {
            describe();
            Self::register(exporter)
        })
    }

    fn register(exporter: PrometheusHandle) -> Self {
        let dropped = |reason: &'static str| counter!("dispatcher_dropped_messages_total", "reason" => reason);
        let closed = |reason: &'static str| counter!("dispatcher_closed_connections_total", "reason" => reason);
        Self {
            refused_connections: counter!("dispatcher_refused_connections_total"),
            opened_connections: counter!("dispatcher_opened_connections_total"),
            lost_events: counter!("dispatcher_lost_events_total"),
            failed_reports: counter!("dispatcher_failed_reports_total"),
            passed_on: counter!("dispatcher_http_requests_total", "result" => "passed_on"),
            not_passed_on: counter!("dispatcher_http_requests_total", "result" => "failed"),
            connections: gauge!("dispatcher_connections"),
            turned_away: counter!("dispatcher_turned_away_connections_total"),
            rooms: gauge!("dispatcher_rooms"),
            rooms_linked: gauge!("dispatcher_rooms_linked"),
            players: gauge!("dispatcher_players"),
            messages_from_players: counter!("dispatcher_messages_total", "direction" => "from_players"),
            messages_to_players: counter!("dispatcher_messages_total", "direction" => "to_players"),
            unreliable_full: dropped("unreliable_full"),
            stale: dropped("stale"),
            not_connected: dropped("not_connected"),
            ignored: dropped("ignored"),
            too_slow: closed("too_slow"),
            too_fast: closed("too_fast"),
            idle: closed("idle"),
            replaced: closed("replaced"),
            kicked: closed("kicked"),
            malformed: closed("malformed"),
            exporter,
        }
    }

    pub(crate) fn add(&self, counts: &Counts) {
        let Counts {
            messages_from_players,
            messages_to_players,
            unreliable_full,
            stale,
            not_connected,
            ignored_frames,
            too_slow,
            too_fast,
            idle,
            replaced,
            kicked,
            malformed,
        } = *counts;
        self.messages_from_players.increment(messages_from_players);
        self.messages_to_players.increment(messages_to_players);
        self.unreliable_full.increment(unreliable_full);
        self.stale.increment(stale);
        self.not_connected.increment(not_connected);
        self.ignored.increment(ignored_frames);
        self.too_slow.increment(too_slow);
        self.too_fast.increment(too_fast);
        self.idle.increment(idle);
        self.replaced.increment(replaced);
        self.kicked.increment(kicked);
        self.malformed.increment(malformed);
    }

    pub(crate) fn set_rooms(&self, rooms: u64, linked: u64, players: u64) {
        self.rooms.set(rooms as f64);
        self.rooms_linked.set(linked as f64);
        self.players.set(players as f64);
    }

    pub(crate) fn set_connections(&self, open: usize, turned_away: u64) {
        self.connections.set(open as f64);
        self.turned_away.absolute(turned_away);
    }

    /// The figures in Prometheus' text format.
    pub(crate) fn render(&self) -> String {
        self.exporter.render()
    }
}

fn describe() {
    describe_gauge!("dispatcher_connections", "open connections of any kind");
    describe_counter!(
        "dispatcher_turned_away_connections_total",
        "connections that were closed because their address had too many"
    );
    describe_gauge!("dispatcher_rooms", "rooms, with those that wait for their runtime");
    describe_gauge!("dispatcher_rooms_linked", "rooms whose runtime is connected");
    describe_gauge!("dispatcher_players", "players in rooms");
    describe_counter!(
        "dispatcher_messages_total",
        "messages that passed, once for each player concerned"
    );
    describe_counter!("dispatcher_dropped_messages_total", "messages that reached nobody");
    describe_counter!(
        "dispatcher_closed_connections_total",
        "connections that the dispatcher closed"
    );
    describe_counter!(
        "dispatcher_opened_connections_total",
        "WebSocket connections that were accepted"
    );
    describe_counter!(
        "dispatcher_refused_connections_total",
        "WebSocket connections that were refused"
    );
    describe_counter!("dispatcher_http_requests_total", "requests for the service");
    describe_counter!("dispatcher_lost_events_total", "events that the service never hears of");
    describe_counter!(
        "dispatcher_failed_reports_total",
        "reports that the service did not take"
    );
}
