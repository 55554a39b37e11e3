//! The player's dispatcher socket.

use crate::player::{options, signed_in, tick};
use crate::server::{
    BINARY, CLOSE, LIMIT, PING, PONG, Request, Server, TEXT, accept_key, frame, read_frame, respond_as_service, upgrade,
};
use old_sdk::{Event, Options, Payload, Player, RuntimeQualifier, State, Variant};
use std::io::Write;
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

const UPGRADE: &str = r#"{"id":"1","qualifier":"CONNECTION_UPGRADE_MESSAGE","body":{"client_id":"42","protocol":"DISPATCHER","web_socket_config":{"ws_token":"ws.token"}}}"#;
const ASSIGNMENT: &str =
    r#"{"id":"2","qualifier":"RUNTIME_ASSIGNMENT_MESSAGE","body":{"runtime_id":"9","runtime_qualifier":"MATCH"}}"#;

/// A service that upgrades with its first answer, says `second` with its third, and treats sockets as told.
fn server(second: &'static str, dispatcher: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static) -> Server {
    Server::start(move |request, before, stream| {
        if request.operation() == "endpoint" {
            dispatcher(request, stream);
            return false;
        }
        respond_as_service(request, before, stream, &|_: &str, before| {
            match before {
                0 => UPGRADE,
                2 => second,
                _ => "",
            }
            .to_owned()
        })
    })
}

/// Frames without game time, until something happens.
fn next_events(player: &mut Player) -> Vec<Event> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let events = player.update(0.0);
        if !events.is_empty() {
            return events;
        }
        assert!(Instant::now() < deadline, "nothing happened");
        thread::sleep(Duration::from_millis(2));
    }
}

/// A player who has been told to connect.
fn upgrading(server: &Server) -> Player {
    let mut player = signed_in(server);
    tick(&mut player);
    assert_eq!(tick(&mut player), []);
    player
}

fn connected(server: &Server) -> Player {
    let mut player = upgrading(server);
    assert_eq!(next_events(&mut player), [Event::ConnectionDispatched]);
    player
}

fn reasons(events: &[Event]) -> Vec<&str> {
    events
        .iter()
        .map(|event| match event {
            Event::PlayerFailed { reason } => reason.as_str(),
            other => panic!("no failure: {other:?}"),
        })
        .collect()
}

fn received(payload: Payload) -> Event {
    Event::DispatcherMessageReceived { payload }
}

/// Keeps the frames of the socket coming while waiting for what the server saw.
fn seen<T>(player: &mut Player, frames: &Receiver<T>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        player.update(0.0);
        match frames.recv_timeout(Duration::from_millis(2)) {
            Ok(frame) => return frame,
            Err(_) => assert!(Instant::now() < deadline, "the server saw nothing"),
        }
    }
}

#[test]
fn the_handshake_is_exact_to_the_byte() {
    let server = server("", |request, stream| {
        upgrade(request, stream);
        read_frame(stream);
    });
    connected(&server);
    let request = &server.requests_of("endpoint")[0];
    let key = request.header("Sec-WebSocket-Key").unwrap();
    assert_eq!(key.len(), 24);
    assert_eq!(
        request.raw,
        format!(
            "GET /dispatcher/v1/entrypoint/websocket/endpoint?ws_token=ws.token HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n\
             Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Protocol: omgservers\r\n\r\n",
            server.port()
        )
    );
}

#[test]
fn text_and_binary_go_both_ways_and_pings_are_answered() {
    let (sender, frames) = sync_channel(8);
    let server = server("", move |request, stream| {
        upgrade(request, stream);
        let long = "x".repeat(300);
        stream.write_all(&frame(TEXT, long.as_bytes())).unwrap();
        stream.write_all(&frame(PING, b"alive?")).unwrap();
        // A message in two frames with a ping between them.
        stream.write_all(&[0x02, 1, 0xff]).unwrap();
        stream.write_all(&frame(PING, b"")).unwrap();
        stream.write_all(&[0x80, 2, 0, 7]).unwrap();
        while let Some(seen) = read_frame(stream) {
            sender.send(seen).unwrap();
        }
    });
    let mut player = connected(&server);
    let mut events = next_events(&mut player);
    while events.len() < 2 {
        events.extend(next_events(&mut player));
    }
    assert_eq!(
        events,
        [
            received(Payload::Text("x".repeat(300))),
            received(Payload::Binary(vec![0xff, 0, 7]))
        ]
    );
    assert_eq!(seen(&mut player, &frames), (PONG, b"alive?".to_vec()));
    assert_eq!(seen(&mut player, &frames), (PONG, Vec::new()));
    player.send_text_message("hello").unwrap();
    player.send_binary_message(&[1, 2, 0]).unwrap();
    player.send_text_message(&"y".repeat(70_000)).unwrap();
    assert_eq!(seen(&mut player, &frames), (TEXT, b"hello".to_vec()));
    assert_eq!(seen(&mut player, &frames), (BINARY, vec![1, 2, 0]));
    assert_eq!(seen(&mut player, &frames).1.len(), 70_000);
}

#[test]
fn messages_in_one_piece_with_the_handshake_are_not_lost() {
    let server = server("", |request, stream| {
        let mut bytes = format!(
            "HTTP/1.1 101 x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {}\r\n\r\n",
            accept_key(request)
        )
        .into_bytes();
        bytes.extend(frame(TEXT, b"one"));
        bytes.extend(frame(TEXT, b"two"));
        stream.write_all(&bytes).unwrap();
        read_frame(stream);
    });
    let mut player = connected(&server);
    assert_eq!(
        next_events(&mut player),
        [
            received(Payload::Text("one".into())),
            received(Payload::Text("two".into()))
        ]
    );
}

#[test]
fn a_handshake_that_is_not_exactly_right_fails_the_player_twice() {
    let right = ("101 x", "Connection: Upgrade", "Upgrade: websocket", None);
    for (status, connection, upgrade, accept) in [
        ("200 OK", right.1, right.2, right.3),
        ("401 Unauthorized", right.1, right.2, right.3),
        (right.0, "Connection: keep-alive, Upgrade", right.2, right.3),
        (right.0, "X: y", right.2, right.3),
        (right.0, right.1, "Upgrade: h2c", right.3),
        (right.0, right.1, right.2, Some("d3Jvbmc=")),
    ] {
        let server = server("", move |request, stream| {
            let accept = accept.map_or_else(|| accept_key(request), str::to_owned);
            let head =
                format!("HTTP/1.1 {status}\r\n{connection}\r\n{upgrade}\r\nSec-WebSocket-Accept: {accept}\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
        });
        let mut player = upgrading(&server);
        let events = next_events(&mut player);
        let reasons = reasons(&events);
        assert_eq!(
            reasons.len(),
            2,
            "{status} {connection} {upgrade} {accept:?}: {reasons:?}"
        );
        assert!(reasons[0].starts_with("dispatcher failed, message="), "{reasons:?}");
        assert!(
            reasons[1].starts_with("The connection to the dispatcher was disconnected"),
            "{reasons:?}"
        );
        assert_eq!(player.state(), State::Failed);
    }
}

#[test]
fn a_handshake_has_three_seconds() {
    let server = server("", |_, stream| {
        // Bytes alone do not help, the handshake has to end.
        for _ in 0..50 {
            if stream.write_all(b"HTTP/1.1 101 x\r\nX: ").is_err() {
                break;
            }
            thread::sleep(Duration::from_millis(100));
        }
    });
    let mut player = upgrading(&server);
    let called = Instant::now();
    let events = next_events(&mut player);
    assert_eq!(
        reasons(&events)[0],
        "dispatcher failed, message=Connect sequence timed out"
    );
    assert!((Duration::from_millis(2900)..Duration::from_millis(3600)).contains(&called.elapsed()));
}

#[test]
fn a_handshake_within_three_seconds_is_in_time() {
    let server = server("", |request, stream| {
        thread::sleep(Duration::from_millis(2500));
        upgrade(request, stream);
        read_frame(stream);
    });
    connected(&server);
}

#[test]
fn a_close_by_the_server_fails_the_player_with_its_code_after_the_last_message() {
    let (sender, frames) = sync_channel(8);
    let server = server("", move |request, stream| {
        upgrade(request, stream);
        stream.write_all(&frame(TEXT, b"bye")).unwrap();
        stream.write_all(&frame(CLOSE, b"\x03\xe9Room was removed")).unwrap();
        while let Some(seen) = read_frame(stream) {
            sender.send(seen).unwrap();
        }
    });
    let mut player = connected(&server);
    assert_eq!(next_events(&mut player), [received(Payload::Text("bye".into()))]);
    let events = next_events(&mut player);
    assert_eq!(
        reasons(&events),
        ["The connection to the dispatcher was disconnected, message=, code=1001"]
    );
    assert_eq!(
        frames.recv_timeout(LIMIT).unwrap(),
        (CLOSE, b"\x03\xe9Room was removed".to_vec())
    );
}

#[test]
fn a_connection_that_just_ends_fails_the_player_twice() {
    let server = server("", upgrade);
    let mut player = connected(&server);
    let events = next_events(&mut player);
    assert_eq!(reasons(&events).len(), 2);
    assert!(reasons(&events)[0].starts_with("dispatcher failed, message=Websocket closing for 127.0.0.1"));
}

#[test]
fn an_assignment_ends_the_socket_without_a_close_frame_and_without_failing() {
    let (sender, frames) = sync_channel(1);
    let server = server(ASSIGNMENT, move |request, stream| {
        upgrade(request, stream);
        sender.send(read_frame(stream)).unwrap();
    });
    let mut player = connected(&server);
    assert_eq!(tick(&mut player), []);
    let assigned = Event::Assigned {
        runtime_qualifier: RuntimeQualifier::Match,
        runtime_id: "9".into(),
    };
    assert_eq!(tick(&mut player), [assigned]);
    assert_eq!(seen(&mut player, &frames), None, "the connection ended without a frame");
    assert!(player.send_text_message("too late").is_err());
    assert_eq!(player.update(0.0), []);
    assert_eq!(player.state(), State::Polling);
}

#[test]
fn an_assignment_and_the_next_upgrade_in_one_tick_fail_the_player() {
    const BOTH: &str = concat!(
        r#"{"id":"2","qualifier":"RUNTIME_ASSIGNMENT_MESSAGE","body":{"runtime_id":"9","runtime_qualifier":"MATCH"}},"#,
        r#"{"id":"3","qualifier":"CONNECTION_UPGRADE_MESSAGE","body":{"protocol":"DISPATCHER","web_socket_config":{"ws_token":"next"}}}"#
    );
    let server = server(BOTH, |request, stream| {
        upgrade(request, stream);
        read_frame(stream);
    });
    let mut player = connected(&server);
    tick(&mut player);
    tick(&mut player);
    let events = next_events(&mut player);
    assert!(
        matches!(&events[0], Event::PlayerFailed { reason } if reason.contains("was disconnected")),
        "{events:?}"
    );
    assert_eq!(player.state(), State::Failed);
}

#[test]
fn the_upgrade_in_a_later_tick_than_the_assignment_is_fine() {
    let server = Server::start(|request, before, stream| {
        if request.operation() == "endpoint" {
            upgrade(request, stream);
            read_frame(stream);
            return false;
        }
        respond_as_service(request, before, stream, &|_: &str, before| {
            match before {
                0 | 2 => UPGRADE,
                1 => ASSIGNMENT,
                _ => "",
            }
            .to_owned()
        })
    });
    let mut player = connected(&server);
    let assigned = Event::Assigned {
        runtime_qualifier: RuntimeQualifier::Match,
        runtime_id: "9".into(),
    };
    assert_eq!(tick(&mut player), [assigned]);
    assert_eq!(tick(&mut player), []);
    assert_eq!(next_events(&mut player), [Event::ConnectionDispatched]);
    assert_eq!(
        (player.state(), server.requests_of("endpoint").len()),
        (State::Polling, 2)
    );
}

#[test]
fn the_older_variant_names_the_open_socket_differently() {
    let server = server("", |request, stream| {
        upgrade(request, stream);
        read_frame(stream);
    });
    let older = Options {
        variant: Variant::Ref,
        ..options()
    };
    let mut player = Player::new(&server.url(), older).unwrap();
    player.sign_in("7", "secret").unwrap();
    assert!(player.settle(LIMIT));
    player.update(0.0);
    tick(&mut player);
    tick(&mut player);
    assert_eq!(next_events(&mut player), [Event::ConnectionUpgraded]);
}

#[test]
fn sending_without_a_socket_is_a_script_error() {
    let server = server("", |_, _| thread::sleep(Duration::from_secs(1)));
    let mut player = signed_in(&server);
    assert_eq!(
        player.send_text_message("x").unwrap_err().0,
        "The dispatcher must be connected"
    );
    let mut player = upgrading(&server);
    assert_eq!(
        player.send_binary_message(b"x").unwrap_err().0,
        "Connection isn't connected"
    );
}
