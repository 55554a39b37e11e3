//! What the service hears from a dispatcher, and what the management port shows.

mod support;

use std::sync::atomic::Ordering;
use std::time::Duration;

use omgservers_dispatcher::{Config, Server};
use omgservers_protocol::dispatcher::RoomEvent;
use omgservers_protocol::id::{ClientId, RuntimeId};
use support::{Service, World, eventually};
use tokio_util::sync::CancellationToken;

const ROOM: RuntimeId = RuntimeId(5);

fn joined(client: i64) -> RoomEvent {
    RoomEvent::PlayerJoined {
        runtime_id: ROOM,
        client_id: ClientId(client),
    }
}

fn left(client: i64) -> RoomEvent {
    RoomEvent::PlayerLeft {
        runtime_id: ROOM,
        client_id: ClientId(client),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_hears_who_comes_and_goes_and_who_is_there() {
    let world = World::start().await;
    let runtime = world.json_runtime(5).await;
    let _stays = world.player(5, 7).await;
    let goes = world.player(5, 8).await;
    let expected = [RoomEvent::RoomOpened { runtime_id: ROOM }, joined(7), joined(8)];
    eventually("the service knows", async || world.service.events() == expected).await;
    drop(goes);
    eventually("the service knows", async || {
        world.service.events().last() == Some(&left(8))
    })
    .await;
    eventually("there is a roll call", async || {
        let reports = world.service.reports.lock().unwrap();
        reports.iter().any(|report| report.connected_clients == [ClientId(7)])
    })
    .await;
    drop(runtime);
    let lost = RoomEvent::RoomLost { runtime_id: ROOM };
    eventually("the service knows", async || {
        world.service.events().ends_with(&[left(7), lost.clone()])
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_that_fails_is_sent_again_and_nothing_is_lost() {
    let world = World::start().await;
    world.service.refusals.store(2, Ordering::SeqCst);
    let _runtime = world.json_runtime(5).await;
    let _player = world.player(5, 7).await;
    let expected = [RoomEvent::RoomOpened { runtime_id: ROOM }, joined(7)];
    eventually("the service knows", async || world.service.events() == expected).await;
    assert_eq!(world.service.refusals.load(Ordering::SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_is_reported() {
    let world = World::start().await;
    let _runtime = world.json_runtime(5).await;
    let _player = world.player(5, 7).await;
    eventually("the service knows", async || world.service.events().len() == 2).await;
    world.shutdown.cancel();
    let lost = RoomEvent::RoomLost { runtime_id: ROOM };
    eventually("the service knows", async || {
        world.service.events().ends_with(&[left(7), lost.clone()])
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_login_is_renewed() {
    let world = World::start_with(|config| config.refresh_token_interval = Duration::from_millis(50)).await;
    eventually("it logs in again", async || {
        world.service.logins.load(Ordering::SeqCst) > 2
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dispatcher_is_ready_when_it_has_keys_and_a_login() {
    let (service, address, _guard) = Service::start("a").await;
    let uri = format!("http://{address}").parse().unwrap();
    let server = Server::bind(Config::for_tests(vec![uri], "wrong password"))
        .await
        .unwrap();
    let management = server.management_address();
    let public = server.address();
    let shutdown = CancellationToken::new();
    let _guard = shutdown.clone().drop_guard();
    tokio::spawn(server.serve(shutdown));
    let get = async |path: &'static str| {
        let asked = hyper::Request::get(path);
        let response = support::request(management, asked, bytes::Bytes::new()).await;
        (
            response.status().as_u16(),
            String::from_utf8(response.body().to_vec()).unwrap(),
        )
    };
    eventually("it waits for its login", async || {
        get("/health/ready").await == (503, "waiting for the login at the service".to_owned())
    })
    .await;
    assert_eq!(get("/health/live").await.0, 200);
    assert!(service.logins.load(Ordering::SeqCst) > 0);
    // The management port is not for the public, and the other way round.
    let asked = hyper::Request::get("/metrics");
    assert_eq!(
        support::request(public, asked, bytes::Bytes::new())
            .await
            .status()
            .as_u16(),
        404
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_service_players_are_told_to_wait() {
    let nobody = "http://127.0.0.1:1".parse().unwrap();
    let server = Server::bind(Config::for_tests(vec![nobody], "x")).await.unwrap();
    let address = server.address();
    let shutdown = CancellationToken::new();
    let _guard = shutdown.clone().drop_guard();
    tokio::spawn(server.serve(shutdown));
    let path = format!("{}?ws_token=a.b.c", support::ENDPOINT);
    let Err(refused) = support::connect(address, &path, &[]).await else {
        panic!("nobody can have verified that token")
    };
    assert_eq!(refused.status().as_u16(), 503);
}

#[tokio::test(flavor = "multi_thread")]
async fn figures_are_shown() {
    let world = World::start().await;
    let mut runtime = world.json_runtime(5).await;
    let mut player = world.player(5, 7).await;
    player.send_text("hello").await;
    runtime.next().await;
    runtime.send_text("nonsense").await;
    for line in [
        "dispatcher_rooms 1",
        "dispatcher_rooms_linked 1",
        "dispatcher_players 1",
        "dispatcher_opened_connections_total 2",
        "dispatcher_messages_total{direction=\"from_players\"} 1",
        "dispatcher_dropped_messages_total{reason=\"ignored\"} 1",
    ] {
        world.check_metric(line).await;
    }
}
