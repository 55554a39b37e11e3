//! What a tick costs: the world with bots alone, and a whole match with players who run and shoot.
//!
//! `cargo bench -p shooter-runtime --bench tick`. Wall-clock times; on a shared machine take the best of several runs.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::time::{Duration, Instant};

use omgservers_runtime_sdk::ClientId;
use shooter_runtime::client::Client;
use shooter_runtime::config::GameConfig;
use shooter_runtime::match_server::{MatchServer, MatchSettings, Output};
use shooter_runtime::profile::Profile;
use shooter_simulation::{Command, Mode, Rules, World};

const TICKS: u32 = 600;

fn main() {
    println!("world    bots   mean µs   p99 µs   ns per bot");
    for bots in [24, 100, 500, 1_000, 5_000] {
        simulate(bots);
    }
    println!("match players bots   mean µs   p99 µs   µs per player   kB/s per player");
    for (players, bots) in [(2, 12), (16, 24), (50, 0), (100, 0), (300, 0)] {
        serve(players, bots);
    }
}

fn simulate(bots: u16) {
    let rules = Rules {
        frag_limit: 0,
        time_limit: 0,
    };
    let mut world = World::new(1, Mode::Arena, rules);
    let enter: Vec<_> = (0..bots).map(|player| Command::Enter { player, bot: true }).collect();
    world.step(&enter);
    for _ in 0..120 {
        world.step(&[]);
    }
    let (mean, p99) = measure(|| world.step(&[]));
    let each = mean.as_nanos() / u128::from(bots);
    println!("      {bots:7} {:9} {:8} {each:12}", mean.as_micros(), p99.as_micros());
}

fn serve(players: i64, bots: u16) {
    let game = GameConfig {
        bots: shooter_runtime::config::Bots { duel: 0, arena: bots },
        frag_limit: u16::MAX,
        time_limit_s: 3_600,
        ..GameConfig::default()
    };
    let mode = Mode::Arena;
    let mut server = MatchServer::new(MatchSettings { mode, seed: 1, game });
    let mut clients: Vec<_> = (0..players).map(|id| (ClientId(id), Client::default())).collect();
    for (id, _) in &clients {
        server.add(*id, Profile::default());
        server.connect(*id);
    }
    let mut bytes = 0;
    let mut costs = Vec::new();
    for tick in 0..TICKS + 120 {
        let packets: Vec<_> = clients
            .iter_mut()
            .map(|(id, client)| (*id, client.hunt(client.nearest().unwrap_or(0))))
            .collect();
        let start = Instant::now();
        for (id, packet) in &packets {
            server.handle(*id, packet);
        }
        server.tick();
        let outputs: Vec<_> = std::iter::from_fn(|| server.poll()).collect();
        let cost = start.elapsed();
        for output in outputs {
            if let Output::Send {
                client, bytes: packet, ..
            } = output
            {
                bytes += if tick >= 120 { packet.len() } else { 0 };
                let client = clients.iter_mut().find(|(id, _)| *id == client);
                client.expect("a known client").1.receive(&packet).expect("a packet");
            }
        }
        if tick >= 120 {
            costs.push(cost);
        }
    }
    let (mean, p99) = figures(costs);
    let each = mean.as_secs_f64() * 1e6 / players as f64;
    let rate = bytes as f64 / f64::from(TICKS) * 60.0 / 1_000.0 / players as f64;
    let (mean, p99) = (mean.as_micros(), p99.as_micros());
    println!("      {players:7} {bots:4} {mean:9} {p99:8} {each:15.2} {rate:17.1}");
}

fn measure(mut tick: impl FnMut()) -> (Duration, Duration) {
    let cost = |_| {
        let start = Instant::now();
        tick();
        start.elapsed()
    };
    figures((0..TICKS).map(cost).collect())
}

/// Mean and 99th percentile.
fn figures(mut costs: Vec<Duration>) -> (Duration, Duration) {
    costs.sort_unstable();
    let count = costs.len();
    (costs.iter().sum::<Duration>() / count as u32, costs[count * 99 / 100])
}
