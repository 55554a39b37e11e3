//! What a player makes of the messages it polls, and how its own leave.

use crate::player::{message, reason, signed_in, tick};
use crate::server::{LIMIT, Server, respond_as_service};
use old_sdk::{Event, RuntimeQualifier, State};
use serde_json::json;
use std::thread;
use std::time::Duration;

#[test]
fn messages_are_handled_at_the_tick_after_their_answer_and_acknowledged_by_that_tick() {
    let server = Server::service(|_, before| match before {
        0 => [
            message(
                1,
                "SERVER_WELCOME_MESSAGE",
                r#"{"tenant_id":"1","version_id":"5","version_created":"now"}"#,
            ),
            message(2, "MATCHMAKER_ASSIGNMENT_MESSAGE", r#"{"matchmaker_id":"6"}"#),
            message(
                3,
                "RUNTIME_ASSIGNMENT_MESSAGE",
                r#"{"runtime_id":"8","runtime_qualifier":"LOBBY"}"#,
            ),
            message(4, "PROVISIONING_STATUS_MESSAGE", r#"{"stage":"queued"}"#),
        ]
        .join(","),
        1 => [
            message(
                5,
                "RUNTIME_ASSIGNMENT_MESSAGE",
                r#"{"runtime_id":"9","runtime_qualifier":"MATCH"}"#,
            ),
            message(
                6,
                "RUNTIME_ASSIGNMENT_MESSAGE",
                r#"{"runtime_id":"8","runtime_qualifier":"LOBBY"}"#,
            ),
            message(7, "SERVER_OUTGOING_MESSAGE", r#"{"message":{"deep":[1,"two"]}}"#),
            message(7, "SERVER_OUTGOING_MESSAGE", r#"{"message":"again"}"#),
        ]
        .join(","),
        _ => String::new(),
    });
    let mut player = signed_in(&server);
    assert_eq!(tick(&mut player), []);
    let greeted = Event::Greeted {
        version_id: Some("5".into()),
        version_created: Some("now".into()),
    };
    assert_eq!(tick(&mut player), [greeted]);
    let assigned = |runtime_qualifier, id: &str| Event::Assigned {
        runtime_qualifier,
        runtime_id: id.into(),
    };
    assert_eq!(
        tick(&mut player),
        [
            assigned(RuntimeQualifier::Match, "9"),
            assigned(RuntimeQualifier::Lobby, "8"),
            Event::MessageReceived {
                message: json!({"deep": [1, "two"]})
            },
            Event::MessageReceived {
                message: "again".into()
            },
        ]
    );
    let bodies: Vec<_> = server
        .requests_of("interchange")
        .iter()
        .map(|request| request.body().to_owned())
        .collect();
    assert!(
        bodies[1].ends_with(r#""consumed_messages":["1","2","3","4"]}"#),
        "{bodies:?}"
    );
    assert!(
        bodies[2].ends_with(r#""consumed_messages":["5","6","7","7"]}"#),
        "{bodies:?}"
    );
}

#[test]
fn greeting_before_the_welcome_carries_nothing() {
    let server = Server::service(|_, before| match before {
        0 => message(
            3,
            "RUNTIME_ASSIGNMENT_MESSAGE",
            r#"{"runtime_id":"8","runtime_qualifier":"LOBBY"}"#,
        ),
        _ => String::new(),
    });
    let mut player = signed_in(&server);
    tick(&mut player);
    assert_eq!(
        tick(&mut player),
        [Event::Greeted {
            version_id: None,
            version_created: None
        }]
    );
}

#[test]
fn outgoing_messages_count_from_zero_and_wait_while_a_request_is_in_flight() {
    let server = Server::start(|request, before, stream| {
        if request.operation() == "interchange" && before == 0 {
            thread::sleep(Duration::from_millis(200));
        }
        respond_as_service(request, before, stream, &|_: &str, _| String::new())
    });
    let mut player = signed_in(&server);
    player.send_service_message("one").unwrap();
    player.update(1.1);
    player.update(0.0);
    server.wait_for("interchange", 1);
    player.send_service_message("two \"quoted\"").unwrap();
    player.send_service_message("three").unwrap();
    for _ in 0..5 {
        player.update(1.1);
    }
    assert_eq!(server.requests_of("interchange").len(), 1, "one request in flight");
    assert!(player.settle(LIMIT));
    tick(&mut player);
    let requests = server.requests_of("interchange");
    assert_eq!(
        requests[0].body(),
        r#"{"client_id":"42","outgoing_messages":[{"id":0,"qualifier":"CLIENT_OUTGOING_MESSAGE","body":{"data":"one"}}],"consumed_messages":[]}"#
    );
    assert_eq!(
        requests[1].body(),
        r#"{"client_id":"42","outgoing_messages":[{"id":1,"qualifier":"CLIENT_OUTGOING_MESSAGE","body":{"data":"two \"quoted\""}},{"id":2,"qualifier":"CLIENT_OUTGOING_MESSAGE","body":{"data":"three"}}],"consumed_messages":[]}"#
    );
}

#[test]
fn a_message_without_a_body_loses_the_rest_of_its_list_but_not_the_polling() {
    let server = Server::service(|_, before| match before {
        0 => [
            message(1, "SERVER_OUTGOING_MESSAGE", r#"{"message":"kept"}"#),
            message(2, "SERVER_OUTGOING_MESSAGE", "null"),
            message(3, "SERVER_OUTGOING_MESSAGE", r#"{"message":"lost"}"#),
        ]
        .join(","),
        _ => String::new(),
    });
    let mut player = signed_in(&server);
    tick(&mut player);
    assert_eq!(
        tick(&mut player),
        [],
        "the error leaves the frame before its events are handed out"
    );
    assert_eq!(player.update(0.0), [Event::MessageReceived { message: "kept".into() }]);
    assert_eq!(player.take_script_errors().len(), 1);
    assert!(
        server.requests_of("interchange")[1]
            .body()
            .ends_with(r#"["1","2","3"]}"#)
    );
    assert_eq!(player.state(), State::Polling);
}

#[test]
fn what_the_player_cannot_follow_fails_it() {
    for (qualifier, body, expected) in [
        (
            "DISCONNECTION_REASON_MESSAGE",
            r#"{"reason":"CLIENT_INACTIVITY"}"#,
            "reason=CLIENT_INACTIVITY",
        ),
        (
            "RUNTIME_ASSIGNMENT_MESSAGE",
            r#"{"runtime_id":"1","runtime_qualifier":"ARENA"}"#,
            "runtime_qualifier=ARENA",
        ),
        (
            "CONNECTION_UPGRADE_MESSAGE",
            r#"{"protocol":"WEBRTC"}"#,
            "protocol=WEBRTC",
        ),
    ] {
        let server = Server::service(move |_, _| message(1, qualifier, body));
        let mut player = signed_in(&server);
        tick(&mut player);
        assert!(reason(&tick(&mut player)).ends_with(expected), "{qualifier}");
    }
}
