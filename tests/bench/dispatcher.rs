//! The dispatcher as a relay: its CPU per WebSocket round trip player → runtime → player, against that of nginx in front
//! of a server that echoes. The other processes' CPU does not count.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use fastwebsockets::{FragmentCollector, Frame, OpCode, Payload};
use http_body_util::Empty;
use hyper::Request;
use hyper::upgrade::Upgraded;
use hyper_util::rt::{TokioExecutor, TokioIo};
use omgservers_protocol::id::{ClientId, RuntimeId};
use omgservers_service::auth::Tokens;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

use crate::Arguments;
use crate::echo::{self, EchoServer};
use crate::machine::cpu_time;
use crate::nginx::Nginx;
use crate::platform::{Host, Platform};
use crate::report::{Report, Target, median};

const ENDPOINT: &str = "/dispatcher/v1/entrypoint/websocket/endpoint";
const PLAYERS: usize = 50;
const MESSAGE: [u8; 64] = [b'x'; 64];
const RUN_WAIT: Duration = Duration::from_secs(120);

type Socket = FragmentCollector<TokioIo<Upgraded>>;

/// How players send.
#[derive(Clone, Copy)]
struct Pattern {
    name: &'static str,
    /// Between two messages of a player; none: the next follows the answer.
    every: Option<Duration>,
    rounds: u32,
}

const PATTERNS: [Pattern; 2] = [
    Pattern {
        name: "50 players at 60 Hz",
        every: Some(Duration::from_micros(16_667)),
        rounds: 240,
    },
    Pattern {
        name: "50 players back to back",
        every: None,
        rounds: 400,
    },
];

pub(crate) async fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    report.say("starting the platform with a game that echoes, and nginx with a server that echoes");
    let platform = Platform::start(arguments, &Host::Process).await?;
    let runtime = deploy_echo(&platform).await?;
    let server = EchoServer::start().await?;
    let nginx = Nginx::start(platform.folder(), server.address).await?;
    let tokens = platform.tokens()?;
    let relays = [
        (platform.dispatcher.pid(), &platform.address),
        (nginx.worker()?, &nginx.address),
    ];

    let mut next_client = 1;
    for pattern in PATTERNS {
        let mut costs = [Vec::new(), Vec::new()];
        for run in 1..=arguments.runs {
            report.say(&format!("{}: run {run} of {}", pattern.name, arguments.runs));
            for ((pid, address), costs) in relays.iter().zip(&mut costs) {
                let sockets = connect(address, &tokens, runtime, &mut next_client).await?;
                let sockets = exchange(
                    sockets,
                    Pattern {
                        rounds: pattern.rounds / 8,
                        ..pattern
                    },
                )
                .await?;
                let before = cpu_time(*pid)?;
                exchange(sockets, pattern).await?;
                let cost = cpu_time(*pid)? - before;
                costs.push(cost.as_secs_f64() * 1e6 / f64::from(pattern.rounds) / PLAYERS as f64);
            }
        }
        let [own, reference] = costs.map(median);
        let figure = format!("CPU per round trip of 64 bytes, {}", pattern.name);
        report.add(
            &figure,
            own,
            "µs",
            Some(("nginx, one worker", reference)),
            Target::RatioAtMost(1.0),
        );
    }
    Ok(())
}

/// The lobby of a game that says everything back.
async fn deploy_echo(platform: &Platform) -> Result<RuntimeId> {
    let mode = json!({"name": "none", "min_players": 1, "max_players": 1,
        "groups": [{"name": "players", "min_players": 1, "max_players": 1}]});
    let version = json!({"modes": [mode], "user_data": {}});
    let game = platform
        .deploy(&echo::pack(platform.folder())?, version, json!({"min_lobbies": 1}))
        .await?;
    game.wait("the lobby", |venues| {
        venues
            .iter()
            .find(|venue| venue.state == "OPEN")
            .map(|venue| venue.runtime_id)
    })
    .await
}

/// New players with open sockets. nginx passes their tokens on to nobody who looks.
async fn connect(address: &str, tokens: &Tokens, runtime: RuntimeId, next_client: &mut i64) -> Result<Vec<Socket>> {
    let mut sockets = Vec::new();
    for _ in 0..PLAYERS {
        let token = tokens.for_player_socket(ClientId(*next_client), runtime);
        *next_client += 1;
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let request = Request::get(format!("{ENDPOINT}?ws_token={token}"))
            .header("host", address)
            .header("upgrade", "websocket")
            .header("connection", "Upgrade")
            .header("sec-websocket-key", fastwebsockets::handshake::generate_key())
            .header("sec-websocket-version", "13")
            .body(Empty::<Bytes>::new())?;
        let executor = TokioExecutor::new();
        let opening = fastwebsockets::handshake::client(&executor, request, stream);
        let (socket, _) = timeout(RUN_WAIT, opening).await?.context("a socket is refused")?;
        sockets.push(FragmentCollector::new(socket));
    }
    Ok(sockets)
}

/// Every player says something and hears it, again and again.
async fn exchange(sockets: Vec<Socket>, pattern: Pattern) -> Result<Vec<Socket>> {
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for (index, mut socket) in sockets.into_iter().enumerate() {
        tasks.spawn(async move {
            // Players are not in step with each other.
            let mut beat = pattern.every.map(|every| {
                let mut beat = interval_at(begun + every.mul_f64(index as f64 / PLAYERS as f64), every);
                beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
                beat
            });
            for _ in 0..pattern.rounds {
                if let Some(beat) = &mut beat {
                    beat.tick().await;
                }
                socket.write_frame(Frame::binary(Payload::Borrowed(&MESSAGE))).await?;
                hear(&mut socket).await?;
            }
            anyhow::Ok(socket)
        });
    }
    let all = async {
        let mut sockets = Vec::new();
        while let Some(ended) = tasks.join_next().await {
            sockets.push(ended.context("a player panicked")??);
        }
        anyhow::Ok(sockets)
    };
    timeout(RUN_WAIT, all).await.context("the echo does not come")?
}

async fn hear(socket: &mut Socket) -> Result<()> {
    loop {
        let frame = socket.read_frame().await?;
        match frame.opcode {
            OpCode::Binary if *frame.payload == MESSAGE => return Ok(()),
            OpCode::Ping | OpCode::Pong => {}
            other => bail!(
                "instead of an echo came {other:?}: {}",
                String::from_utf8_lossy(&frame.payload)
            ),
        }
    }
}
