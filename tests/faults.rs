//! Kill any process at any moment: players end in a lobby or a match, told why, and nothing leaks.

use std::time::Duration;

use harness::engine::{self, Engine};
use harness::{Fleet, Part, eventually, shooter};
use omgservers_protocol::config::RuntimeQualifier;
use serde_json::{Value, json};

use crate::evening::Guest;

fn version() -> Value {
    let mut version = shooter::version();
    // Matches that do not end while we look at them.
    version["user_data"] =
        json!({"bots": {"arena": 4}, "frag_limit": 1000, "time_limit_s": 3000, "closing_s": 1, "grace_s": 60});
    version
}

/// Where the players are when a process is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    InTheLobby,
    Matchmaking,
    InTheMatch,
}

async fn bring(guests: &mut [Guest; 2], moment: Moment) {
    let [ada, bob] = guests;
    settle(ada, bob).await;
    match moment {
        Moment::InTheLobby => {
            // A match may have survived the last mishap; its players leave it by nobody's wish, so they stay.
        }
        Moment::Matchmaking | Moment::InTheMatch => {
            for guest in [&*ada, &*bob] {
                if guest.is_in(RuntimeQualifier::Lobby) {
                    guest
                        .client
                        .send(&json!({"play": "arena"}))
                        .expect("the wish is queued");
                }
            }
            if matches!(moment, Moment::InTheMatch) {
                let (one, two) = (fresh(ada), fresh(bob));
                tokio::join!(ada.until("a match", one), bob.until("a match", two));
            }
        }
    }
}

/// Sees that the match goes on: snapshots that are newer than now.
fn fresh(guest: &Guest) -> impl FnMut(&Guest) -> bool + use<> {
    let seen = guest.screen.snapshots;
    move |guest| guest.is_in(RuntimeQualifier::Match) && guest.screen.snapshots > seen + 20
}

/// Both are somewhere that works: a lobby that answers, or a match that goes on.
async fn settle(ada: &mut Guest, bob: &mut Guest) {
    async fn one(guest: &mut Guest, name: &str) {
        // The lobby says a new name back, so it is one that answers now.
        let line = format!("{name}{}", rand::random::<u16>());
        let begun = guest.screen.snapshots;
        let mut asked = tokio::time::Instant::now() - Duration::from_secs(60);
        guest
            .until("a lobby that answers or a match that goes on", move |guest| {
                if asked.elapsed() > Duration::from_secs(3) {
                    asked = tokio::time::Instant::now();
                    guest.client.send(&json!({"name": line})).ok();
                }
                guest.sees(&[&line]) || (guest.is_in(RuntimeQualifier::Match) && guest.screen.snapshots > begun + 20)
            })
            .await;
    }
    tokio::join!(one(ada, "Ada"), one(bob, "Bob"));
}

/// Names of the containers of lobbies (`lobby_`) or matches (`match_`).
fn containers(engine: &Engine, prefix: &str) -> Vec<String> {
    let names = engine
        .docker(&["ps", "--format", "{{.Names}}"])
        .expect("the engine answers");
    names
        .lines()
        .filter(|name| name.starts_with(prefix))
        .map(str::to_owned)
        .collect()
}

/// Kills a part; a runtime in a container by way of its engine.
async fn kill(fleet: &Fleet, engine: Option<&Engine>, part: Part) {
    let (Some(engine), Some(prefix)) = (engine, part.prefix()) else {
        return fleet.kill(part).await;
    };
    let name = eventually(prefix, || async { containers(engine, prefix).into_iter().next() }).await;
    engine
        .docker(&["kill", "--signal", "KILL", &name])
        .expect("the container is killed");
}

#[expect(clippy::print_stdout, reason = "a failed story says how far it came")]
async fn survive(host: &str, archive: &std::path::Path, engine: Option<&Engine>) {
    let deployment = json!({"min_lobbies": 1, "matchmaker": {"modes": {"arena": {"min_matches": 0}}}});
    let fleet = Fleet::start(host, archive, &version(), &deployment).await;
    for moment in [Moment::InTheLobby, Moment::Matchmaking, Moment::InTheMatch] {
        for part in [
            Part::Service,
            Part::Dispatcher,
            Part::Postgres,
            Part::Lobby,
            Part::Match,
        ] {
            if part == Part::Match && !matches!(moment, Moment::InTheMatch) {
                continue;
            }
            // New players each time: those before may still be in a match.
            let arrive = |name| Guest::arrive(&fleet.base, "demo", "shooter", "prod", name);
            let (ada, bob) = tokio::join!(arrive("Ada"), arrive("Bob"));
            let mut guests = [ada, bob];
            bring(&mut guests, moment).await;
            println!("killing {part:?}, {moment:?}");
            kill(&fleet, engine, part).await;
            let [ada, bob] = &mut guests;
            settle(ada, bob).await;
            if (part, moment) == (Part::Match, Moment::InTheMatch) {
                // They were told why they are in a lobby again.
                for guest in [&*ada, &*bob] {
                    assert!(
                        guest.statuses.iter().any(|status| status.contains("the game server")),
                        "{:?}",
                        guest.statuses
                    );
                }
            }
        }
    }
    let count = |prefix: &str| {
        engine.map_or_else(
            || fleet.runtimes(prefix).len(),
            |engine| containers(engine, prefix).len(),
        )
    };
    eventually("only the wanted lobby runs once everybody is gone", || async {
        (count("lobby_") == 1 && count("match_") == 0).then_some(())
    })
    .await;
    eventually("no row is left of those who are gone", || async {
        let mut rows = Vec::new();
        for table in [
            "seat",
            "runtime_assignment",
            "client_outgoing",
            "event",
            "lease",
            "runtime",
            "placement",
            "venue",
            "cell",
        ] {
            rows.push(fleet.rows(table).await);
        }
        (rows == [0, 0, 0, 0, 0, 1, 1, 1, 1]).then_some(())
    })
    .await;
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn any_process_may_be_killed_at_any_moment() {
    survive("process", &shooter::archive(), None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn any_process_or_container_may_be_killed_at_any_moment() {
    if !engine::wanted() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let engine = Engine::start(folder.path()).expect("an engine starts");
    let archive = harness::artefact("OMGSERVERS_TEST_SHOOTER_ARCHIVE");
    survive(&engine.address(), &archive, Some(&engine)).await;
    let left = engine.docker(&["ps", "-aq"]).expect("the engine answers");
    assert_eq!(left.trim(), "", "a container outlived the platform");
}
