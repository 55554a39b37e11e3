//! From a player's click to the first frame of a match, on the whole platform with a Docker engine of its own: with a
//! spare match, and without one, against a bare `docker run` of the same image.

use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use harness::engine::{self, Engine};
use omgservers_protocol::config::RuntimeQualifier;
use omgservers_protocol::developer::VenueStatus;
use omgservers_protocol::message::ProvisioningStage;
use omgservers_runtime_sdk::player::{Client, Event, Player};
use serde_json::{Value, json};
use shooter_runtime::client::Client as Screen;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::Arguments;
use crate::platform::{Game, Host, Platform};
use crate::report::{Report, Target, median};

const SAMPLE_WAIT: Duration = Duration::from_secs(60);
/// What the match says in its log when it is about to tell the platform that it is ready.
const WAITS: &str = "the match waits for players";

pub(crate) async fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    let archive = arguments
        .shooter_archive
        .as_ref()
        .context("OMGSERVERS_TEST_SHOOTER_ARCHIVE is not set")?;
    if let Some(reason) = engine::missing() {
        bail!("no Docker engine can be started: {reason}");
    }
    report.say("starting a Docker engine and the platform");
    let folder = tempfile::Builder::new().prefix("omg-bench-engine").tempdir()?;
    let engine = Engine::start(folder.path())?;
    let platform = Platform::start(arguments, &Host::Docker(engine.address())).await?;
    let image = format!("file://{}", archive.canonicalize()?.display());
    let game = platform.deploy(&image, version(), deployment()).await?;
    let starts = Starts::watch(&engine)?;
    game.wait("the lobby", |venues| {
        venues.iter().any(|venue| is_open(venue, "LOBBY")).then_some(())
    })
    .await?;
    let image = engine.docker(&["images", "--format", "{{.Repository}}:{{.Tag}}"])?;
    let image = image.lines().next().context("the image was not loaded")?.to_owned();
    let stage = Stage {
        platform: &platform,
        game: &game,
        engine: &engine,
        starts: &starts,
    };

    docker_run(&engine, &image).await?;
    stage.play("warm").await?;
    let (mut warm, mut cold, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for run in 1..=arguments.runs {
        report.say(&format!("run {run} of {}", arguments.runs));
        warm.push(stage.play("warm").await?);
        cold.push(stage.play("cold").await?);
        stage.wait_until_quiet().await?;
        bare.push(docker_run(&engine, &image).await?.as_secs_f64() * 1e3);
    }
    tell(&warm, &cold, median(bare), report);
    Ok(())
}

fn tell(warm: &[Timeline], cold: &[Timeline], bare_ms: f64, report: &mut Report) {
    let of = |runs: &[Timeline], phase: &dyn Fn(&Timeline) -> f64| median(runs.iter().map(phase).collect());
    let mut phase = |figure: &str, value: f64| report.add(figure, value, "ms", None, Target::None);
    phase("warm: click to first frame", of(warm, &|run| run.frame));
    phase("warm: decision and assignment", of(warm, &|run| run.assigned));
    phase("warm: socket open", of(warm, &|run| run.connected - run.assigned));
    phase("warm: first packet", of(warm, &|run| run.packet - run.connected));
    phase("warm: first frame", of(warm, &|run| run.frame - run.packet));
    let reference = Some(("docker run, same image", bare_ms));
    report.add(
        "cold: click to first frame",
        of(cold, &|run| run.frame),
        "ms",
        reference,
        Target::RatioAtMost(1.5),
    );
    let mut phase = |figure: &str, value: f64| report.add(figure, value, "ms", None, Target::None);
    phase("cold: matchmaking decision", of(cold, &|run| run.decided));
    phase("cold: container start", of(cold, &|run| run.started - run.decided));
    phase(
        "cold: runtime's start and login",
        of(cold, &|run| run.waits - run.started),
    );
    phase("cold: ready and assignment", of(cold, &|run| run.assigned - run.waits));
    phase("cold: socket open", of(cold, &|run| run.connected - run.assigned));
    phase("cold: first packet", of(cold, &|run| run.packet - run.connected));
    phase("cold: first frame", of(cold, &|run| run.frame - run.packet));
}

/// Two modes for one player each: one with a spare match, one without.
fn version() -> Value {
    let mode = |name: &str| {
        json!({"name": name, "min_players": 1, "max_players": 1,
            "groups": [{"name": "players", "min_players": 1, "max_players": 1}]})
    };
    let user_data = json!({"bots": {"arena": 12}, "grace_s": 1});
    json!({"modes": [mode("warm"), mode("cold")], "user_data": user_data})
}

/// As the shooter is deployed, but for the modes.
fn deployment() -> Value {
    json!({"lobby": {"max_assignments": 128, "cpu_limit": 25, "memory_limit": 64},
        "match": {"cpu_limit": 50, "memory_limit": 128},
        "matchmaker": {"modes": {"warm": {"min_matches": 1}}}})
}

fn is_open(venue: &VenueStatus, qualifier: &str) -> bool {
    venue.qualifier == qualifier && venue.state == "OPEN"
}

/// When what happened, milliseconds after the click. Without a start of its own, `decided` to `waits` are zero.
#[derive(Debug, Default)]
struct Timeline {
    decided: f64,
    started: f64,
    waits: f64,
    assigned: f64,
    connected: f64,
    packet: f64,
    frame: f64,
}

struct Stage<'a> {
    platform: &'a Platform,
    game: &'a Game,
    engine: &'a Engine,
    starts: &'a Starts,
}

impl Stage<'_> {
    /// One spare match for `warm`, and nothing else that runs or starts.
    async fn wait_until_quiet(&self) -> Result<()> {
        let quiet = |venues: &[VenueStatus]| {
            let matches: Vec<_> = venues.iter().filter(|venue| venue.qualifier == "MATCH").collect();
            let is_quiet = matches.len() == 1 && is_open(matches[0], "MATCH") && matches[0].players == 0;
            is_quiet.then_some(())
        };
        self.game.wait("one spare match", quiet).await
    }

    async fn play(&self, mode: &str) -> Result<Timeline> {
        self.wait_until_quiet().await?;
        timeout(SAMPLE_WAIT, self.click(mode))
            .await
            .with_context(|| format!("no {mode} match comes"))?
    }

    async fn click(&self, mode: &str) -> Result<Timeline> {
        let player = Player::sign_up(&self.platform.base()).await?;
        let ids = [
            self.game.tenant.to_string(),
            self.game.project.to_string(),
            self.game.stage.to_string(),
        ];
        let mut client = player.create_client(&ids[0], &ids[1], &ids[2]).await?;
        // The lobby's first word.
        while !matches!(next(&mut client).await?, Event::Message(_)) {}

        let click = Instant::now();
        let since = |then: Instant| then.saturating_duration_since(click).as_secs_f64() * 1e3;
        client.send(&json!({"play": mode}))?;
        let mut line = Timeline::default();
        let mut screen = Screen::default();
        let mut match_id = None;
        while screen.snapshots == 0 {
            let event = next(&mut client).await?;
            let now = since(Instant::now());
            match event {
                Event::Status {
                    stage: ProvisioningStage::Starting | ProvisioningStage::PullingImage,
                    ..
                } => {
                    first(&mut line.decided, now);
                }
                Event::Assigned {
                    qualifier: RuntimeQualifier::Match,
                    runtime,
                    ..
                } => {
                    line.assigned = now;
                    match_id = Some(runtime);
                }
                Event::Connected => line.connected = now,
                Event::Packet { bytes, .. } => {
                    first(&mut line.packet, now);
                    screen.receive(&bytes).ok().context("a packet is malformed")?;
                    line.frame = now;
                }
                _ => {}
            }
        }
        if mode == "cold" {
            let container = format!("match_{}", match_id.context("the player was assigned to no match")?);
            line.started = since(
                self.starts
                    .of(&container)
                    .context("the start of the container was not seen")?,
            );
            line.waits = line.started + self.login_ms(&container)?;
        }
        Ok(line)
    }

    /// From the start of a match's process to the end of its login, by the engine's clock.
    fn login_ms(&self, container: &str) -> Result<f64> {
        let started = self
            .engine
            .docker(&["inspect", "--format", "{{.State.StartedAt}}", container])?;
        // The log of a container goes to the same stream that the container wrote it to.
        let mut command = std::process::Command::new("docker");
        command.args(["-H", &self.engine.address(), "logs", "--timestamps", container]);
        let output = command.stdin(Stdio::null()).output()?;
        let log = String::from_utf8_lossy(&output.stderr);
        let line = log
            .lines()
            .find(|line| line.contains(WAITS))
            .context("the match does not say that it waits")?;
        let waits = line.split_whitespace().next().unwrap_or_default();
        let (started, waits) = (second_of_day(&started), second_of_day(waits));
        let took = waits
            .zip(started)
            .map(|(waits, started)| (waits - started).rem_euclid(86_400.0) * 1e3);
        took.with_context(|| format!("the engine's times are not understood: {line}"))
    }
}

async fn next(client: &mut Client) -> Result<Event> {
    match client.next().await {
        Some(Event::Removed { reason }) => bail!("the client was removed: {reason}"),
        Some(event) => Ok(event),
        None => bail!("the client has ended"),
    }
}

fn first(stamp: &mut f64, now: f64) {
    if *stamp == 0.0 {
        *stamp = now;
    }
}

/// Of a time such as `2026-11-17T03:04:05.123456789Z`.
fn second_of_day(time: &str) -> Option<f64> {
    let mut parts = time.trim().strip_suffix('Z')?.split_once('T')?.1.split(':');
    let mut part = || parts.next()?.parse::<f64>().ok();
    Some(part()? * 3_600.0 + part()? * 60.0 + part()?)
}

/// Starts of containers as the engine tells them.
struct Starts {
    seen: Arc<Mutex<Vec<(Instant, String)>>>,
    _listening: AbortOnDropHandle<()>,
}

impl Starts {
    fn watch(engine: &Engine) -> Result<Self> {
        let mut command = Command::new("docker");
        command.args([
            "-H",
            &engine.address(),
            "events",
            "--filter",
            "type=container",
            "--filter",
            "event=start",
        ]);
        command.args(["--format", "{{.Actor.Attributes.name}}"]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let mut child = command.spawn()?;
        let output = child.stdout.take().context("docker has no output")?;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let starts = seen.clone();
        let listening = tokio::spawn(async move {
            let _child = child;
            let mut lines = BufReader::new(output).lines();
            while let Ok(Some(name)) = lines.next_line().await {
                starts
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push((Instant::now(), name));
            }
        });
        Ok(Self {
            seen,
            _listening: AbortOnDropHandle::new(listening),
        })
    }

    fn of(&self, container: &str) -> Option<Instant> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().find(|(_, name)| name == container).map(|(at, _)| *at)
    }
}

/// The whole of it: create, start, the program's end, since it has no platform, and removal.
async fn docker_run(engine: &Engine, image: &str) -> Result<Duration> {
    let mut command = Command::new("docker");
    command
        .args(["-H", &engine.address(), "run", "--rm", image])
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let begun = Instant::now();
    let output = timeout(SAMPLE_WAIT, command.output())
        .await
        .context("docker run does not end")??;
    let took = begun.elapsed();
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(said.contains("OMGSERVERS_SERVICE_URL"), "docker run failed: {said}");
    Ok(took)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_the_engine_are_understood_to_the_nanosecond() {
        let time = second_of_day("2026-11-17T01:02:03.500000001Z\n");
        assert!(time.is_some_and(|time| (time - 3_723.5).abs() < 1e-6), "{time:?}");
        assert_eq!(second_of_day("yesterday"), None);
    }
}
