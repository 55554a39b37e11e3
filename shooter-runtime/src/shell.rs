//! The loops around the pure parts: events of the platform in, commands and packets out, and the beat of the match.

use std::time::Duration;

use anyhow::Result;
use omgservers_runtime_sdk::{Error, Event, Runtime};
use shooter_simulation::{Mode, TICK_RATE};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};

use crate::config::GameConfig;
use crate::lobby::{self, Lobby};
use crate::match_server::{self, MatchServer, MatchSettings};
use crate::pace::Pace;
use crate::profile::Profile;

/// Between two lines of tick figures in the log.
const REPORT_EVERY: Duration = Duration::from_secs(10);
/// Events taken in before a tick; the rest waits for the next one.
const EVENTS_PER_BEAT_MAX: usize = 8_192;
/// A time that never comes, for a timer with nothing to wait for.
const FAR: Duration = Duration::from_secs(86_400);

/// Time since the loop started.
struct Clock(Instant);

impl Clock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn at(&self, time: Option<Duration>) -> Instant {
        match time {
            Some(time) => self.0 + time,
            None => Instant::now() + FAR,
        }
    }
}

/// Runs a lobby until it is told to stop.
pub async fn run_lobby(mut runtime: Runtime) -> Result<()> {
    let modes = &runtime.config().version_config.modes;
    let mut lobby = Lobby::new(modes.iter().map(|mode| mode.name.clone()).collect());
    let clock = Clock(Instant::now());
    runtime.ready();
    info!("the lobby is open");
    loop {
        tokio::select! {
            event = runtime.next() => match event {
                None | Some(Event::Stop) => break,
                Some(event) => greet(&mut lobby, clock.now(), event),
            },
            () = sleep_until(clock.at(lobby.wake_at())) => lobby.wake(clock.now()),
        }
        while let Some(output) = lobby.poll() {
            let done = match &output {
                lobby::Output::Respond { client, message } => runtime.respond(*client, message),
                lobby::Output::Broadcast { message } => runtime.broadcast(message),
                lobby::Output::SetProfile { client, profile } => runtime.set_profile(*client, profile),
                lobby::Output::RequestMatchmaking { client, mode } => runtime.request_matchmaking(*client, mode),
            };
            report(done);
        }
    }
    info!(guests = lobby.guests(), "the lobby closes");
    runtime.close().await;
    Ok(())
}

fn greet(lobby: &mut Lobby, now: Duration, event: Event) {
    match event {
        Event::ClientAdded { client, profile, .. } => lobby.add(now, client, Profile::parse(&profile)),
        Event::ClientRemoved { client } => lobby.remove(now, client),
        Event::Message { client, message } => lobby.handle(now, client, &message),
        Event::CommandFailed {
            qualifier,
            client,
            reason,
        } => {
            warn!(qualifier, reason, "the platform could not carry out a command");
            if let (Some(client), "REQUEST_MATCHMAKING") = (client, qualifier.as_str()) {
                lobby.matchmaking_failed(now, client, &reason);
            }
        }
        _ => {}
    }
}

/// Runs a match until it is told to stop.
pub async fn run_match(mut runtime: Runtime) -> Result<()> {
    let settings = match_settings(&runtime);
    info!(
        mode = settings.mode.name(),
        seed = settings.seed,
        "the match waits for players"
    );
    let mut server = MatchServer::new(settings);
    let clock = Clock(Instant::now());
    let mut pace = Pace::new(TICK_RATE, clock.now());
    let mut figures = Figures::new(clock.now());
    let mut was_idle = true;
    runtime.ready();
    'running: loop {
        let beat = (!server.is_idle()).then(|| pace.next());
        tokio::select! {
            // The beat comes first, and takes along what has arrived by then.
            biased;
            () = sleep_until(clock.at(beat)) => {
                for _ in 0..EVENTS_PER_BEAT_MAX {
                    match runtime.try_next() {
                        None => break,
                        Some(Event::Stop) => break 'running,
                        Some(event) => attend(&mut server, &mut figures, event),
                    }
                }
                for _ in 0..pace.due(clock.now()) {
                    let start = Instant::now();
                    server.tick();
                    flush(&runtime, &mut server, &mut figures);
                    figures.note(start.elapsed());
                }
            }
            event = runtime.next() => match event {
                None | Some(Event::Stop) => break,
                Some(event) => attend(&mut server, &mut figures, event),
            },
        }
        flush(&runtime, &mut server, &mut figures);
        figures.report(clock.now(), &server, &pace, runtime.dropped_packets());
        if was_idle && !server.is_idle() {
            // After a rest the beat starts anew.
            pace = Pace::new(TICK_RATE, clock.now());
        }
        was_idle = server.is_idle();
    }
    let checksum = format!("{:016x}", server.world().checksum());
    info!(tick = server.world().tick(), checksum, "the match ends");
    runtime.close().await;
    Ok(())
}

fn match_settings(runtime: &Runtime) -> MatchSettings {
    let config = runtime.config();
    let (name, number) = match &config.match_config {
        Some(found) => (found.mode.as_str(), found.match_id.get()),
        None => ("", 0),
    };
    let mode = Mode::from_name(name).unwrap_or_else(|| {
        warn!(mode = name, "the mode is unknown, an arena is played instead");
        Mode::Arena
    });
    let (game, cause) = GameConfig::parse(config.version_config.user_data.as_ref());
    if let Some(cause) = cause {
        warn!(error = %cause, "the version's user data cannot be read, the defaults are used");
    }
    MatchSettings {
        mode,
        // Every match its own map, and the same one when it is looked at again.
        seed: fold(number),
        game,
    }
}

/// A number of 64 bits, well mixed, in 32.
fn fold(number: i64) -> u32 {
    let mixed = number.cast_unsigned().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as u32 ^ mixed as u32
}

fn attend(server: &mut MatchServer, figures: &mut Figures, event: Event) {
    match event {
        Event::ClientAdded { client, profile, .. } => server.add(client, Profile::parse(&profile)),
        Event::ClientRemoved { client } => server.remove(client),
        Event::Connected { client } => server.connect(client),
        Event::Disconnected { client, reason } => {
            debug!(client.id = %client, ?reason, "a player's connection is lost");
            server.disconnect(client);
        }
        Event::Packet { client, bytes, .. } => figures.refused += u64::from(!server.handle(client, &bytes)),
        Event::CommandFailed { qualifier, reason, .. } => {
            warn!(qualifier, reason, "the platform could not carry out a command");
        }
        _ => {}
    }
}

fn flush(runtime: &Runtime, server: &mut MatchServer, figures: &mut Figures) {
    use match_server::Output;
    while let Some(output) = server.poll() {
        let done = match &output {
            Output::Upgrade { client } => runtime.upgrade(*client),
            Output::Send { client, lane, bytes } => {
                figures.bytes += bytes.len() as u64;
                runtime.send(*client, *lane, bytes)
            }
            Output::SendAll { lane, bytes } => {
                figures.bytes += (bytes.len() * server.connected()) as u64;
                runtime.send_all(*lane, bytes)
            }
            Output::SetProfile { client, profile } => runtime.set_profile(*client, profile),
            Output::StopMatchmaking => runtime.stop_matchmaking(),
            Output::Kick { client } => runtime.kick(*client),
        };
        report(done);
    }
}

/// A full queue or a closed connection ends no match; the SDK keeps trying and says so by its events.
fn report(done: Result<(), Error>) {
    if let Err(error) = done {
        warn!(%error, "something could not be sent");
    }
}

/// What ticks cost, for the log.
struct Figures {
    since: Duration,
    ticks: Vec<Duration>,
    bytes: u64,
    refused: u64,
}

impl Figures {
    fn new(now: Duration) -> Self {
        Self {
            since: now,
            ticks: Vec::new(),
            bytes: 0,
            refused: 0,
        }
    }

    fn note(&mut self, cost: Duration) {
        self.ticks.push(cost);
    }

    fn report(&mut self, now: Duration, server: &MatchServer, pace: &Pace, dropped: u64) {
        if now < self.since + REPORT_EVERY {
            return;
        }
        self.ticks.sort_unstable();
        let count = self.ticks.len();
        if let Some(max) = self.ticks.last() {
            let mean_us = self.ticks.iter().sum::<Duration>().as_micros() / count as u128;
            info!(
                ticks = count,
                tick_mean_us = mean_us as u64,
                tick_p99_us = self.ticks[count * 99 / 100].as_micros() as u64,
                tick_max_us = max.as_micros() as u64,
                ticks_skipped = pace.skipped(),
                players = server.connected(),
                bodies = server.world().players().len(),
                sent_bytes = self.bytes,
                packets_refused = self.refused,
                packets_dropped = dropped,
                "ticks of the last {} s",
                (now - self.since).as_secs()
            );
        }
        *self = Self::new(now);
    }
}
