//! Kill any process at any moment: players end in a lobby or a match, told why, and nothing leaks.

use std::time::Duration;

use harness::{Fleet, Part, eventually, shooter};
use omgservers_protocol::config::RuntimeQualifier;
use serde_json::{Value, json};

use crate::evening::Guest;

fn version() -> Value {
    let mut version = shooter::version();
    // Matches that do not end while we look at them.
    version["user_data"] = json!({"bots": {"arena": 4}, "frag_limit": 1000, "time_limit_s": 3000, "closing_s": 1, "grace_s": 60});
    version
}

/// Where the players are when a process is killed.
#[derive(Debug, Clone, Copy)]
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
                    guest.client.send(&json!({"play": "arena"})).expect("the wish is queued");
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

#[tokio::test(flavor = "multi_thread")]
async fn any_process_may_be_killed_at_any_moment() {
    let deployment = json!({"min_lobbies": 1, "matchmaker": {"modes": {"arena": {"min_matches": 0}}}});
    let fleet = Fleet::start("process", &shooter::archive(), &version(), &deployment).await;
    for moment in [Moment::InTheLobby, Moment::Matchmaking, Moment::InTheMatch] {
        for part in [Part::Service, Part::Dispatcher, Part::Postgres, Part::Lobby, Part::Match] {
            // New players each time: some of those before may still be in a match.
            let arrive = |name| Guest::arrive(&fleet.base, "demo", "shooter", "prod", name);
            let (ada, bob) = tokio::join!(arrive("Ada"), arrive("Bob"));
            let mut guests = [ada, bob];
            bring(&mut guests, moment).await;
            if part == Part::Match && !matches!(moment, Moment::InTheMatch) {
                continue;
            }
            println!("killing {part:?}, {moment:?}");
            fleet.kill(part).await;
            let [ada, bob] = &mut guests;
            settle(ada, bob).await;
        }
    }
    eventually("only the wanted lobby runs once everybody is gone", || async {
        (fleet.runtimes("lobby_").len() == 1 && fleet.runtimes("match_").is_empty()).then_some(())
    })
    .await;
    fleet.stop().await;
}
