//! The shooter's tick, in this process: the world with bots alone, and a whole match with players who run and shoot. Times
//! are the thread's CPU time.

use std::time::Duration;

use anyhow::{Context, Result};
use omgservers_runtime_sdk::ClientId;
use shooter_runtime::client::Client;
use shooter_runtime::config::{Bots, GameConfig};
use shooter_runtime::match_server::{MatchServer, MatchSettings, Output};
use shooter_runtime::profile::Profile;
use shooter_simulation::{Command, Mode, Rules, TICK_RATE, World};

use crate::Arguments;
use crate::machine::thread_cpu_time;
use crate::report::{Report, Target, median};

/// Numbers of bodies that are compared.
const FEW: u16 = 25;
const MANY: u16 = 100;
/// Until everybody is in the middle of it.
const WARM_UP_TICKS: u32 = 120;
const TICKS: u32 = 900;

pub(crate) fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    let (mut worlds, mut matches) = (
        [Samples::default(), Samples::default()],
        [Samples::default(), Samples::default()],
    );
    for run in 1..=arguments.runs {
        report.say(&format!("run {run} of {}", arguments.runs));
        for (bodies, (world, game)) in [FEW, MANY].into_iter().zip(worlds.iter_mut().zip(&mut matches)) {
            world.add(simulate(bodies), 0);
            let (costs, bytes) = play(bodies)?;
            game.add(costs, bytes / usize::from(bodies));
        }
    }
    tell("world of bots", worlds, report);
    tell("match of players", matches, report);
    Ok(())
}

fn tell(what: &str, samples: [Samples; 2], report: &mut Report) {
    let budget_us = 1e6 / f64::from(TICK_RATE);
    let budget = ("a tick at 60 Hz", budget_us);
    let mut means = Vec::new();
    for (bodies, samples) in [FEW, MANY].into_iter().zip(samples) {
        let (mean, p99) = (median(samples.means), median(samples.p99s));
        means.push(mean);
        report.add(
            &format!("{what}, {bodies}: tick, mean"),
            mean,
            "µs",
            Some(budget),
            Target::None,
        );
        // Half of it, since a match has half a core by default.
        report.add(
            &format!("{what}, {bodies}: tick, p99"),
            p99,
            "µs",
            Some(budget),
            Target::RatioAtMost(0.5),
        );
        let bytes = median(samples.bytes);
        if bytes > 0.0 {
            report.add(
                &format!("{what}, {bodies}: traffic to each"),
                bytes,
                "B/s",
                None,
                Target::None,
            );
        }
    }
    let bodies = ("four times as many", f64::from(MANY / FEW));
    let growth = means[1] / means[0];
    report.add(
        &format!("{what}: growth from {FEW} to {MANY}"),
        growth,
        "times",
        Some(bodies),
        Target::RatioAtMost(1.0),
    );
}

/// Figures of each run.
#[derive(Default)]
struct Samples {
    means: Vec<f64>,
    p99s: Vec<f64>,
    /// To one player in one second.
    bytes: Vec<f64>,
}

impl Samples {
    fn add(&mut self, mut costs: Vec<Duration>, bytes_per_player: usize) {
        costs.sort_unstable();
        let us = |cost: Duration| cost.as_secs_f64() * 1e6;
        self.means.push(us(costs.iter().sum::<Duration>()) / costs.len() as f64);
        self.p99s.push(us(costs[costs.len() * 99 / 100]));
        self.bytes
            .push(bytes_per_player as f64 * f64::from(TICK_RATE) / f64::from(TICKS));
    }
}

fn simulate(bots: u16) -> Vec<Duration> {
    let mut world = World::new(
        1,
        Mode::Arena,
        Rules {
            frag_limit: 0,
            time_limit: 0,
        },
    );
    let enter: Vec<_> = (0..bots).map(|player| Command::Enter { player, bot: true }).collect();
    world.step(&enter);
    let mut costs = Vec::new();
    for tick in 0..WARM_UP_TICKS + TICKS {
        let start = thread_cpu_time();
        world.step(&[]);
        if tick >= WARM_UP_TICKS {
            costs.push(thread_cpu_time() - start);
        }
    }
    costs
}

/// A match without bots whose players hunt each other: their packets in, the tick, the packets out. The players' own
/// work is not counted. Answers the cost of each tick and the bytes to all players.
fn play(players: u16) -> Result<(Vec<Duration>, usize)> {
    let game = GameConfig {
        bots: Bots { duel: 0, arena: 0 },
        frag_limit: u16::MAX,
        time_limit_s: 3_600,
        ..GameConfig::default()
    };
    let mut server = MatchServer::new(MatchSettings {
        mode: Mode::Arena,
        seed: 1,
        game,
    });
    let mut clients: Vec<_> = (0..players).map(|_| Client::default()).collect();
    for id in 0..i64::from(players) {
        server.add(ClientId(id), Profile::default());
        server.connect(ClientId(id));
    }
    let (mut costs, mut sent) = (Vec::new(), 0);
    for tick in 0..WARM_UP_TICKS + TICKS {
        let is_counted = tick >= WARM_UP_TICKS;
        let packets: Vec<_> = clients
            .iter_mut()
            .map(|client| client.hunt(client.nearest().unwrap_or(0)))
            .collect();
        let start = thread_cpu_time();
        for (id, packet) in packets.iter().enumerate() {
            server.handle(ClientId(id as i64), packet);
        }
        server.tick();
        let outputs: Vec<_> = std::iter::from_fn(|| server.poll()).collect();
        if is_counted {
            costs.push(thread_cpu_time() - start);
        }
        for output in outputs {
            let (receivers, bytes) = match output {
                Output::Send { client, bytes, .. } => {
                    let id = usize::try_from(client.0).context("an unknown client")?;
                    (id..id + 1, bytes)
                }
                Output::SendAll { bytes, .. } => (0..clients.len(), bytes),
                _ => continue,
            };
            for client in &mut clients[receivers] {
                sent += if is_counted { bytes.len() } else { 0 };
                client.receive(&bytes).ok().context("a packet is malformed")?;
            }
        }
    }
    Ok((costs, sent))
}
