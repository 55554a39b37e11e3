//! A runtime over real sockets, against a service and a dispatcher that lose what they can.

use std::time::{Duration, Instant};

use crate::fake::Fake;
use omgservers_protocol::mux;
use omgservers_runtime_sdk::{ClientId, Error, Event, Lane, Runtime, RuntimeQualifier, Settings};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

const ANN: ClientId = ClientId(1);
const BOB: ClientId = ClientId(2);

fn settings(fake: &Fake) -> Settings {
    Settings::new(&fake.url(), 7, "secret", RuntimeQualifier::Lobby)
        .unwrap()
        .without_signals()
}

async fn connect(fake: &Fake) -> Runtime {
    Runtime::connect(settings(fake)).await.unwrap()
}

async fn next(runtime: &mut Runtime) -> Option<Event> {
    let event = timeout(Duration::from_secs(15), runtime.next()).await;
    event.expect("an event within 15 s")
}

async fn numbers(runtime: &mut Runtime, count: u32) -> Vec<u32> {
    let mut numbers = Vec::new();
    while numbers.len() < count as usize {
        if let Some(Event::Message { message, .. }) = next(runtime).await {
            numbers.push(omgservers_runtime_sdk::parse(&message).unwrap());
        }
    }
    numbers
}

fn qualifiers(fake: &Fake) -> Vec<String> {
    let world = fake.world();
    world
        .arrived
        .iter()
        .map(|command| command["qualifier"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn a_runtime_starts_hears_and_answers_without_waiting_for_its_own_poll() {
    let fake = Fake::start().await;
    let mut runtime = connect(&fake).await;
    assert_eq!(runtime.config().lobby_config.as_ref().unwrap().lobby_id.get(), 5);
    fake.until("the runtime polls", |world| world.polls >= 2).await;
    assert!(!fake.world().is_ready);
    runtime.ready();
    fake.until("the runtime is ready", |world| world.is_ready).await;

    let start = Instant::now();
    fake.message(3);
    assert_eq!(numbers(&mut runtime, 1).await, [3]);
    runtime.respond(ANN, &json!({"you said": 3})).unwrap();
    fake.until("the answer is there", |world| !world.arrived.is_empty())
        .await;
    let answer = json!({"qualifier": "RESPOND_CLIENT", "body": {"client_id": "1", "message": {"you said": 3}}});
    assert_eq!(fake.world().arrived, [answer]);
    assert!(start.elapsed() < Duration::from_secs(5), "a held poll lasts 10 s");
}

#[tokio::test]
async fn each_message_is_seen_once_in_order_though_replies_are_lost() {
    let fake = Fake::start().await;
    let mut runtime = connect(&fake).await;
    for number in 0..40 {
        if number % 4 == 0 {
            fake.world().lost_replies += 1;
        }
        fake.message(number);
        assert_eq!(numbers(&mut runtime, 1).await, [number]);
    }
    fake.until("everything is acknowledged", |world| world.waiting.is_empty())
        .await;
    assert!(runtime.try_next().is_none());
}

#[tokio::test]
async fn nothing_is_lost_while_the_service_is_away() {
    let fake = Fake::start().await;
    let mut runtime = connect(&fake).await;
    fake.until("the runtime is linked", |world| world.links == 1).await;
    fake.go_down().await;
    while runtime.is_linked() {
        tokio::task::yield_now().await;
    }
    for number in 0..300 {
        runtime.respond(ANN, &number).unwrap();
        fake.message(number);
    }
    runtime.send(ANN, Lane::Reliable, b"kept").unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    fake.come_back().await;
    assert!(numbers(&mut runtime, 300).await.into_iter().eq(0..300));
    fake.until("all commands are there", |world| world.arrived.len() >= 300)
        .await;
    fake.until("the packet is there", |world| !world.packets.is_empty())
        .await;
    let world = fake.world();
    assert!(
        world
            .arrived
            .iter()
            .enumerate()
            .all(|(number, command)| command["body"]["message"] == number)
    );
    assert_eq!(world.links, 2);
}

#[tokio::test]
async fn an_expired_token_is_renewed() {
    let fake = Fake::start().await;
    let mut runtime = connect(&fake).await;
    for renewals in 1..4 {
        let logins = fake.world().logins;
        fake.world().oldest_token = logins + 1;
        fake.message(renewals);
        runtime.respond(ANN, &renewals).unwrap();
        assert_eq!(numbers(&mut runtime, 1).await, [renewals]);
        fake.until("the answer is there", |world| world.arrived.len() == renewals as usize)
            .await;
        assert_eq!(fake.world().logins, logins + 1, "one login is enough");
    }
}

#[tokio::test]
async fn a_deleted_runtime_is_told_to_stop() {
    let fake = Fake::start().await;
    let mut runtime = connect(&fake).await;
    fake.world().is_gone = true;
    runtime.kick(ANN).unwrap();
    assert!(matches!(next(&mut runtime).await, Some(Event::Stop)));
    assert!(next(&mut runtime).await.is_none());
    assert!(matches!(runtime.kick(ANN), Err(Error::Closed)));
    runtime.close().await;
}

#[tokio::test]
async fn a_wrong_password_and_an_absent_service_are_errors() {
    let fake = Fake::start().await;
    fake.world().password = "another";
    let error = Runtime::connect(settings(&fake)).await.unwrap_err();
    assert!(
        matches!(&error, Error::Refused(reason) if reason.contains("WrongCredentials")),
        "{error}"
    );
    fake.go_down().await;
    let impatient = settings(&fake).connect_timeout(Duration::from_millis(300));
    assert!(matches!(Runtime::connect(impatient).await, Err(Error::TimedOut)));
}

#[tokio::test]
async fn a_runtime_waits_for_a_service_that_starts_later() {
    let fake = Fake::start().await;
    fake.go_down().await;
    let connecting = tokio::spawn(Runtime::connect(settings(&fake)));
    tokio::time::sleep(Duration::from_millis(200)).await;
    fake.come_back().await;
    connecting.await.unwrap().unwrap();
}

#[tokio::test]
async fn packets_go_both_ways_over_the_link() {
    let fake = Fake::start().await;
    let mut runtime = connect(&fake).await;
    fake.until("the runtime is linked", |world| world.links == 1).await;
    fake.link(|batch| mux::put_joined(batch, ANN));
    assert!(matches!(
        next(&mut runtime).await,
        Some(Event::Connected { client: ANN })
    ));
    fake.link(|batch| mux::put_data(batch, ANN, Lane::Unreliable, true, b"ping"));
    let Some(Event::Packet {
        client,
        lane,
        text,
        bytes,
    }) = next(&mut runtime).await
    else {
        panic!("a packet was sent");
    };
    assert_eq!(
        (client, lane, text, &bytes[..]),
        (ANN, Lane::Unreliable, true, &b"ping"[..])
    );
    let long = vec![7; 60_000];
    runtime.send(ANN, lane, b"pong").unwrap();
    runtime.send_many(&[ANN, BOB], Lane::Reliable, &long).unwrap();
    runtime.send_text_all(Lane::Reliable, "all").unwrap();
    runtime.disconnect(BOB, "bye").unwrap();
    fake.until("everything is there", |world| world.packets.len() == 4)
        .await;
    let world = fake.world();
    let has = |expected: &str| {
        world
            .packets
            .iter()
            .any(|packet| format!("{packet:?}").contains(expected))
    };
    assert!(
        has(r#"One(1), lane: Unreliable, text: false, bytes: b"pong""#),
        "{:?}",
        world.packets
    );
    assert!(has(r#"All, lane: Reliable, text: true, bytes: b"all""#));
    assert!(has(r#"Kick { client: 2, reason: b"bye" }"#));
    assert!(
        world
            .packets
            .iter()
            .any(|packet| matches!(packet, mux::FromRuntime::Send { bytes, .. } if *bytes == long))
    );
    assert!(runtime.is_linked());
}

#[tokio::test]
async fn a_lost_link_comes_back_with_a_fresh_token_and_the_same_players() {
    let fake = Fake::start().await;
    fake.world().players = vec![ANN, BOB];
    let mut runtime = connect(&fake).await;
    assert!(matches!(
        next(&mut runtime).await,
        Some(Event::Connected { client: ANN })
    ));
    assert!(matches!(
        next(&mut runtime).await,
        Some(Event::Connected { client: BOB })
    ));
    for links in 2..5 {
        fake.cut_link();
        fake.until("the runtime is linked again", |world| world.links == links)
            .await;
    }
    fake.world().players = vec![BOB];
    fake.cut_link();
    let event = next(&mut runtime).await;
    assert!(
        matches!(event, Some(Event::Disconnected { client: ANN, .. })),
        "{event:?}"
    );
    runtime.send(BOB, Lane::Reliable, b"hello again").unwrap();
    fake.until("the packet is there", |world| world.packets.len() == 1)
        .await;
    assert!(runtime.try_next().is_none());
}

#[tokio::test]
async fn a_runtime_without_a_link_opens_none() {
    let fake = Fake::start().await;
    let runtime = Runtime::connect(settings(&fake).without_link()).await.unwrap();
    assert!(matches!(runtime.send_all(Lane::Reliable, b"x"), Err(Error::NoLink)));
    runtime.broadcast("x").unwrap();
    fake.until("the command is there", |world| world.arrived.len() == 1)
        .await;
    let world = fake.world();
    assert_eq!((world.links, world.logins), (0, 1));
}

#[tokio::test]
async fn closing_says_everything_that_is_left_to_say() {
    let fake = Fake::start().await;
    fake.world().players = vec![ANN];
    let mut runtime = connect(&fake).await;
    assert!(matches!(
        next(&mut runtime).await,
        Some(Event::Connected { client: ANN })
    ));
    runtime.stop();
    assert!(matches!(next(&mut runtime).await, Some(Event::Stop)));
    for _ in 0..600 {
        runtime.broadcast("bye").unwrap();
        runtime.send_all(Lane::Reliable, [0; 1_000]).unwrap();
    }
    runtime.kick(ANN).unwrap();
    fake.world().refusals = 2;
    runtime.close().await;
    assert_eq!(qualifiers(&fake).len(), 601);
    fake.until("the packets are there", |world| world.packets.len() == 600)
        .await;
}

#[tokio::test]
async fn closing_does_not_take_for_ever() {
    let fake = Fake::start().await;
    let runtime = connect(&fake).await;
    fake.go_down().await;
    runtime.broadcast("nobody hears this").unwrap();
    let start = Instant::now();
    runtime.close().await;
    assert!(start.elapsed() < Duration::from_secs(4));
}

#[tokio::test]
async fn sigterm_is_an_event_and_the_good_bye_arrives() {
    // Whatever happens below, the signal must not end the test process itself. No other test listens for it.
    let _handler = signal(SignalKind::terminate()).unwrap();
    let fake = Fake::start().await;
    let settings = Settings::new(&fake.url(), 7, "secret", RuntimeQualifier::Lobby).unwrap();
    let mut runtime = Runtime::connect(settings).await.unwrap();
    fake.until("the runtime is linked", |world| world.links == 1).await;
    let pid = std::process::id().to_string();
    let killed = std::process::Command::new("kill")
        .args(["-TERM", &pid])
        .status()
        .unwrap();
    assert!(killed.success());
    let event = timeout(Duration::from_secs(10), runtime.next()).await.unwrap();
    assert!(matches!(event, Some(Event::Stop)), "{event:?}");
    runtime.broadcast("bye").unwrap();
    runtime.close().await;
    assert_eq!(fake.world().arrived.len(), 1);
}
