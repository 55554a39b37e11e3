//! The player SDK over HTTP.

use crate::server::{LIMIT, Server, respond, respond_as_service};
use old_sdk::{Event, Options, Player, State, Variant};
use std::io::Write;
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

pub(crate) fn options() -> Options {
    Options::new("acme", "shooter", "prod")
}

pub(crate) fn player(server: &Server) -> Player {
    Player::new(&server.url(), options()).unwrap()
}

/// A player who has a client and has not polled yet.
pub(crate) fn signed_in(server: &Server) -> Player {
    let mut player = player(server);
    player.sign_in("7", "secret").unwrap();
    assert!(player.settle(LIMIT));
    assert_eq!(player.update(0.0), [Event::SignedIn { client_id: "42".into() }]);
    player
}

/// Lets the game time of one poll pass and waits for its answer, which the next tick handles.
pub(crate) fn tick(player: &mut Player) -> Vec<Event> {
    let mut events = player.update(1.1);
    events.extend(player.update(0.0));
    assert!(player.settle(LIMIT));
    events
}

pub(crate) fn message(id: u32, qualifier: &str, body: &str) -> String {
    format!(r#"{{"id":"{id}","qualifier":"{qualifier}","body":{body}}}"#)
}

pub(crate) fn reason(events: &[Event]) -> &str {
    match events {
        [Event::PlayerFailed { reason }] => reason,
        other => panic!("not one failure: {other:?}"),
    }
}

#[test]
fn every_request_of_a_player_is_exact_to_the_byte() {
    for (variant, create_user, length) in [
        (Variant::Ref, "{}", 2),
        (Variant::Sdk097a1e2, r#"{"__object":true}"#, 17),
    ] {
        let server = Server::service(|_, _| String::new());
        let mut player = Player::new(&server.url(), Options { variant, ..options() }).unwrap();
        player.sign_up().unwrap();
        assert!(player.settle(LIMIT));
        let user = Event::SignedUp {
            user_id: "7".into(),
            password: "secret".into(),
        };
        assert_eq!(player.update(0.0), [user]);
        player.sign_in("7", "se/cret").unwrap();
        assert!(player.settle(LIMIT));
        tick(&mut player);

        let head = |operation: &str, authorization: &str, length: usize| {
            format!(
                "POST /service/v1/entrypoint/player/request/{operation} HTTP/1.1\r\nHost: 127.0.0.1\r\n\
                 Content-Type: application/json\r\n{authorization}Content-Length: {length}\r\n\r\n"
            )
        };
        let expected = [
            head("create-user", "", length) + create_user,
            head("create-token", "", 37) + r#"{"user_id":"7","password":"se\/cret"}"#,
            head("create-client", "Authorization: Bearer jwt\r\n", 52)
                + r#"{"tenant":"acme","project":"shooter","stage":"prod"}"#,
            head("interchange", "Authorization: Bearer jwt\r\n", 64)
                + r#"{"client_id":"42","outgoing_messages":[],"consumed_messages":[]}"#,
        ];
        let requests = server.requests();
        assert_eq!(
            requests.iter().map(|request| request.raw.as_str()).collect::<Vec<_>>(),
            expected
        );
        assert!(
            requests.iter().all(|request| request.connection == 0),
            "one connection is kept"
        );
    }
}

#[test]
fn a_refusal_in_json_is_repeated_at_once_with_the_same_bytes_and_then_fails_for_good() {
    for (operation, attempts) in [
        ("create-user", 4),
        ("create-token", 4),
        ("create-client", 4),
        ("interchange", 6),
    ] {
        let server = Server::start(move |request, before, stream| {
            if request.operation() == operation {
                return respond(stream, 404, r#"{"qualifier":"OBJECT_NOT_FOUND"}"#);
            }
            respond_as_service(request, before, stream, &|_: &str, _| String::new())
        });
        let mut player = player(&server);
        player.sign_up().unwrap();
        assert!(player.settle(LIMIT));
        if operation != "create-user" {
            player.update(0.0);
            player.sign_in("7", "secret").unwrap();
            assert!(player.settle(LIMIT));
        }
        if operation == "interchange" {
            player.send_service_message("hello").ok();
            assert_eq!(tick(&mut player), [Event::SignedIn { client_id: "42".into() }]);
        }
        let requests = server.requests_of(operation);
        assert_eq!(requests.len(), attempts, "{operation}");
        assert!(
            requests.iter().all(|request| request.raw == requests[0].raw),
            "{operation}"
        );

        let events = player.update(0.0);
        assert!(reason(&events).contains(r#"response_status=404, decoded_body={"qualifier":"OBJECT_NOT_FOUND"}"#));
        assert_eq!(player.state(), State::Failed);
        assert!(player.sign_up().is_err() && player.send_service_message("x").is_err());
        let before = server.requests().len();
        assert_eq!(tick(&mut player), []);
        assert_eq!(server.requests().len(), before, "a failed player is quiet");

        player.reset();
        assert_eq!(player.state(), State::SignedOut);
        player.sign_up().unwrap();
    }
}

#[test]
fn a_failed_ping_is_no_event() {
    let server = Server::start(|_, _, stream| respond(stream, 500, "{}"));
    let mut player = player(&server);
    player.ping().unwrap();
    assert!(player.settle(LIMIT));
    assert_eq!(player.update(0.0), []);
    assert_eq!(server.requests_of("ping-service").len(), 2);
    assert_eq!(player.state(), State::SignedOut);
}

#[test]
fn a_ping_is_answered() {
    let server = Server::service(|_, _| String::new());
    let mut player = player(&server);
    player.ping().unwrap();
    assert!(player.settle(LIMIT));
    assert_eq!(player.update(0.0), [Event::ServicePinged { message: "pong".into() }]);
    assert_eq!(server.requests()[0].body(), r#"{"message":"ping"}"#);
}

#[test]
fn a_repetition_that_succeeds_goes_on_as_if_nothing_had_happened() {
    let server = Server::start(|request, before, stream| {
        if request.operation() == "interchange" && before < 5 {
            return respond(stream, 503, r#"{"qualifier":"SHARD_LOCKED"}"#);
        }
        respond_as_service(request, before, stream, &|_: &str, _| String::new())
    });
    let mut player = signed_in(&server);
    tick(&mut player);
    assert_eq!(server.requests_of("interchange").len(), 6);
    tick(&mut player);
    assert_eq!(server.requests_of("interchange").len(), 7);
    assert_eq!(player.state(), State::Polling);
}

#[test]
fn an_answer_that_is_not_json_fails_at_once_whatever_its_status() {
    for (status, body) in [(502, "<html>bad gateway</html>"), (401, ""), (200, ""), (200, "pong")] {
        let server = Server::start(move |_, _, stream| respond(stream, status, body));
        let mut player = player(&server);
        player.sign_up().unwrap();
        assert!(player.settle(LIMIT));
        let events = player.update(0.0);
        assert!(reason(&events).starts_with(&format!("user was not created, response_status={status},")));
        assert_eq!(server.requests().len(), 1);
    }
}

#[test]
fn no_connection_fails_at_once() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut player = Player::new(&format!("http://127.0.0.1:{port}"), options()).unwrap();
    player.sign_up().unwrap();
    assert!(player.settle(LIMIT));
    let events = player.update(0.0);
    assert!(reason(&events).contains("response_status=0, decoded_body=nil"));
}

#[test]
fn an_answer_that_never_comes_counts_as_no_connection() {
    let server = Server::start(|_, _, _| {
        thread::sleep(Duration::from_secs(2));
        false
    });
    let options = Options {
        http_timeout: Duration::from_millis(100),
        ..options()
    };
    let mut player = Player::new(&server.url(), options).unwrap();
    player.sign_up().unwrap();
    assert!(player.settle(Duration::from_secs(1)));
    assert!(reason(&player.update(0.0)).contains("response_status=0"));
}

#[test]
fn a_success_without_the_list_of_messages_silences_the_player_without_an_event() {
    for body in [
        "{}",
        r#"{"incoming_messages":null}"#,
        r#"{"incoming_messages":"none"}"#,
        "null",
        "[]",
    ] {
        let server = Server::start(move |request, before, stream| match request.operation() {
            "interchange" => respond(stream, 200, body),
            _ => respond_as_service(request, before, stream, &|_: &str, _| String::new()),
        });
        let mut player = signed_in(&server);
        for _ in 0..4 {
            assert_eq!(tick(&mut player), []);
        }
        assert_eq!(player.state(), State::Silent, "{body}");
        assert_eq!(server.requests_of("interchange").len(), 1, "{body}");
        assert_eq!(player.take_script_errors().len(), 1);
    }
}

#[test]
fn a_success_without_a_needed_field_crashes_the_callback() {
    for operation in ["create-user", "create-token", "create-client"] {
        let server = Server::start(move |request, before, stream| {
            if request.operation() == operation {
                return respond(stream, 200, r#"{"user_id":"7"}"#);
            }
            respond_as_service(request, before, stream, &|_: &str, _| String::new())
        });
        let mut player = player(&server);
        match operation {
            "create-user" => player.sign_up().unwrap(),
            _ => player.sign_in("7", "secret").unwrap(),
        }
        assert!(player.settle(LIMIT));
        assert_eq!(player.update(0.0), [], "{operation}");
        assert_eq!(
            (player.state(), player.take_script_errors().len()),
            (State::Silent, 1),
            "{operation}"
        );
    }
}

#[test]
fn a_kept_connection_that_ended_is_replaced_and_the_request_repeated() {
    let server = Server::start(|request, before, stream| {
        respond_as_service(request, before, stream, &|_: &str, _| String::new())
            && request.operation() != "create-client"
    });
    let mut player = signed_in(&server);
    tick(&mut player);
    assert_eq!(player.state(), State::Polling);
    assert_eq!(server.requests_of("interchange")[0].connection, 1);
}

#[test]
fn chunked_answers_and_answers_without_a_length_are_understood() {
    let server = Server::start(|request, _, stream| {
        let answer = if request.operation() == "create-user" {
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
             10\r\n{\"user_id\":\"7\",\"\r\n10;x=y\r\npassword\":\"abc\"}\r\n0\r\n\r\n"
        } else {
            "HTTP/1.1 200 OK\r\n\r\n{\"message\":\"pong\"}"
        };
        stream.write_all(answer.as_bytes()).unwrap();
        request.operation() == "create-user"
    });
    let mut player = player(&server);
    player.sign_up().unwrap();
    player.ping().unwrap();
    assert!(player.settle(LIMIT));
    let user = Event::SignedUp {
        user_id: "7".into(),
        password: "abc".into(),
    };
    assert_eq!(
        player.update(0.0),
        [user, Event::ServicePinged { message: "pong".into() }]
    );
}

#[test]
fn a_player_in_real_time_polls_at_the_fast_interval_and_keeps_unseen_events() {
    let server = Server::service(|_, before| match before {
        1 => {
            message(1, "SERVER_OUTGOING_MESSAGE", r#"{"message":"first"}"#)
                + ","
                + &message(2, "SERVER_OUTGOING_MESSAGE", r#"{"message":"second"}"#)
        }
        _ => String::new(),
    });
    let started = Instant::now();
    let mut player = player(&server);
    player.sign_up().unwrap();
    let deadline = started + LIMIT;
    let first = player.run_until(deadline, |player, event| match event {
        Event::SignedUp { user_id, password } => {
            player.sign_in(&user_id, &password).unwrap();
            None
        }
        Event::MessageReceived { message } => Some(message),
        _ => None,
    });
    assert_eq!(first.unwrap(), "first");
    // Two polls to get the message, a third tick to handle it.
    assert!((Duration::from_millis(1500)..Duration::from_secs(3)).contains(&started.elapsed()));
    let second = player.run_until(deadline, |_, event| match event {
        Event::MessageReceived { message } => Some(message),
        _ => None,
    });
    assert_eq!(second.unwrap(), "second");
    let missed = player.run_until(Instant::now(), |_, _| Some(())).unwrap_err();
    assert_eq!((missed.state, missed.events.len()), (State::Polling, 0));
}
