//! Several instances of the service: no two mint the same id, whatever happens to either.

use std::collections::HashSet;

use harness::{Durable, Installation, Options, ServiceProcess, Studio, eventually, game_config};
use omgservers_protocol::client::Client;
use omgservers_protocol::developer as dev;
use omgservers_protocol::id::UserId;
use omgservers_protocol::text::Text;
use omgservers_protocol::token::Role;
use serde_json::json;

use crate::http::try_post;

/// The part of an id that says who minted it.
fn node(id: i64) -> i64 {
    (id >> 12) & 0x3ff
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_mint_side_by_side_and_never_the_same_id() {
    let installation = Installation::start(Options {
        instances: 2,
        ..Options::default()
    })
    .await;
    let minting: Vec<_> = [0, 1, 0, 1]
        .map(|index: usize| {
            let app = installation.services[index].app().clone();
            let mint = move || (0..20_000).map(|_| app.ids.mint()).collect::<Vec<i64>>();
            (index, tokio::task::spawn_blocking(mint))
        })
        .into();
    let (mut all, mut nodes) = (HashSet::new(), [HashSet::new(), HashSet::new()]);
    for (index, minted) in minting {
        let minted = minted.await.expect("nobody panics");
        assert!(minted.is_sorted_by(|one, next| one < next), "ids increase");
        nodes[index].extend(minted.iter().map(|id| node(*id)));
        all.extend(minted);
    }
    assert_eq!(all.len(), 80_000);
    assert!(nodes.iter().all(|nodes| nodes.len() == 1) && nodes[0].is_disjoint(&nodes[1]));
    installation.stop().await;
}

/// New ids of an instance, as many as it gives.
async fn mint(durable: &Durable, service: &ServiceProcess, count: usize) -> Vec<i64> {
    let url = format!("{}/service/v1/entrypoint/admin/request/generate-id", service.base);
    let token = durable.tokens.for_user(UserId(1), Role::Admin, 0);
    let mut ids = Vec::new();
    for _ in 0..count {
        let Some(answer) = try_post(&url, Some(&token), &json!({}))
            .await
            .filter(|answer| answer.status == 200)
        else {
            break;
        };
        let said: serde_json::Value = serde_json::from_str(&answer.body).expect("JSON");
        ids.push(said["id"].as_str().expect("an id").parse().expect("an id"));
    }
    ids
}

#[track_caller]
fn check(minted: &[&[i64]]) {
    for ids in minted {
        assert!(!ids.is_empty() && ids.is_sorted_by(|one, next| one < next), "{ids:?}");
    }
    let all: HashSet<i64> = minted.iter().flat_map(|ids| ids.iter().copied()).collect();
    assert_eq!(
        all.len(),
        minted.iter().map(|ids| ids.len()).sum::<usize>(),
        "an id was minted twice"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_replaces_a_killed_one_mints_no_id_again() {
    let durable = Durable::start(1).await;
    let (mut one, two) = (
        ServiceProcess::start(&durable, "one", &[]).await,
        ServiceProcess::start(&durable, "two", &[]).await,
    );
    let (first, second) = tokio::join!(mint(&durable, &one, 50), mint(&durable, &two, 50));
    one.kill();
    one.restart().await;
    let (third, fourth) = tokio::join!(mint(&durable, &one, 50), mint(&durable, &two, 50));
    check(&[&first, &[&second[..], &fourth[..]].concat(), &third]);
    // The number of the dead one is still leased, and is nobody's.
    let nodes = [node(first[0]), node(second[0]), node(third[0])];
    assert_eq!(HashSet::from(nodes).len(), 3, "{nodes:?}");
    drop((one, two));
    durable.stop().await;
}

/// As a machine that is suspended, or a virtual one that is moved: it does not know that its lease is over.
#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_slept_while_another_took_its_number_mints_none_of_its_ids_and_ends() {
    let durable = Durable::start(1).await;
    let number = [("OMGSERVERS_SERVER_INSTANCE_ID", "5")];
    let sleeper = ServiceProcess::start(&durable, "sleeper", &number).await;
    let first = mint(&durable, &sleeper, 20).await;
    sleeper.signal("STOP");
    let other = ServiceProcess::start(&durable, "other", &number).await;
    sleeper.signal("CONT");
    let (late, others) = tokio::join!(mint(&durable, &sleeper, 500), mint(&durable, &other, 500));
    assert!(others.len() == 500 && others.iter().chain(&first).all(|id| node(*id) == 5));
    check(&[&[&first[..], &late[..]].concat(), &others]);
    assert!(
        late.iter().all(|id| *id < others[0]),
        "what it minted late is older than all of the other's"
    );
    eventually("the sleeper finds out and ends", || async {
        (!sleeper.is_alive()).then_some(())
    })
    .await;
    assert!(
        sleeper.log().contains("taken over by another instance"),
        "{}",
        sleeper.log()
    );
    drop((sleeper, other));
    durable.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_replaces_one_by_an_instance_whose_clock_is_ahead() {
    let installation = Installation::start(Options {
        instances: 2,
        ..Options::default()
    })
    .await;
    let studio = Studio::open(&installation).await;
    let version = studio.version(game_config(), "local://").await;
    let token = studio.developer.token().expect("it logged in");
    let deploy = async |index: usize| {
        let name = |id: i64| Text::new(id.to_string()).expect("an id");
        let call = dev::DeployVersion {
            tenant: name(studio.tenant.get()),
            project: name(studio.project.get()),
            stage: name(studio.stage.get()),
            version_id: version,
            config: None,
        };
        let client = Client::new(&format!("http://{}", installation.service_address(index))).expect("plain HTTP");
        client
            .with_token(token)
            .send(&call)
            .await
            .expect("a deployment")
            .deployment_id
    };
    // Ten seconds ahead.
    let ids = &installation.services[0].app().ids;
    let ahead: i64 = ids.mint::<i64>() + (10_000 << 24);
    ids.mint_after::<i64>(ahead).expect("a time that we may use");
    let old = deploy(0).await;
    let new = deploy(1).await;
    assert!(old < new);
    eventually("the new deployment is the one that lives", || async {
        let details = studio.deployment(new).await;
        let old = studio.deployment(old).await;
        (details.lobby_refs.len() == 1 && old.lobby_refs.is_empty()).then_some(())
    })
    .await;
    installation.stop().await;
}
