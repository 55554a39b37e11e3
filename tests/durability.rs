//! Kill the service or its database at any moment: what was acknowledged is there, what was not is there whole or not at
//! all, and in the end nothing is left of what was deleted.

mod books;
mod walk;

use harness::{Durable, ServiceProcess};
use rand::Rng as _;

use walk::{Mishap, Walk};

/// What is deleted is forgotten at once, so that even the tombstones are seen to go.
const SETTINGS: [(&str, &str); 2] = [
    ("OMGSERVERS_TOMBSTONES_RETENTION", "1s"),
    ("OMGSERVERS_INITIALIZATION_SCHEDULER_JOB_INTERVAL", "250ms"),
];

/// Tenants that are deleted with all that is in them.
const FALLS: usize = 5;

/// Walks a studio's whole life, with a mishap at every step, and checks the books on the way.
async fn survive(shards: u16, instances: usize, mut mishap: impl FnMut(&mut rand::rngs::StdRng) -> Mishap) {
    let durable = Durable::start(shards).await;
    let mut services = Vec::new();
    for index in 0..instances {
        services.push(ServiceProcess::start(&durable, &format!("service-{index}"), &SETTINGS).await);
    }
    let mut walk = Walk::new(durable, services);
    for step in walk::steps(walk::BUILD) {
        let mishap = mishap(&mut walk.random);
        walk.take(&step, mishap).await;
    }
    walk.say("the books are balanced");
    books::balance(&walk).await;
    // What is above goes last, and then at once with what is below: a few times, since moments differ.
    let falls = (0..FALLS).flat_map(|_| walk::steps(walk::FALL));
    for step in walk::steps(walk::DEMOLISH).chain(falls) {
        let mishap = mishap(&mut walk.random);
        walk.take(&step, mishap).await;
    }
    walk.delete_strays().await;
    walk.say("everything is deleted");
    books::close(&walk).await;
    walk.say("nothing is left");
    walk.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_killed_after_every_step_forgets_nothing() {
    survive(8, 1, |_| Mishap::KillAfter).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_service_is_killed_happens_whole_or_not_at_all() {
    survive(1, 1, |_| Mishap::KillDuring).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_instances_stand_in_for_each_other_while_one_or_the_database_is_killed() {
    survive(8, 2, |random| match random.random_range(0..4) {
        0 => Mishap::CrashDuring,
        1 => Mishap::KillAfter,
        _ => Mishap::KillDuring,
    })
    .await;
}
