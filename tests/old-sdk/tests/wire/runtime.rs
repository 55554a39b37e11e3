//! The runtime SDK, in one process with the test.

use crate::server::{LIMIT, Server, TEXT, frame, read_frame, respond, respond_as_service, upgrade};
use old_sdk::{Credentials, Payload, Runtime, RuntimeEvent, Variant};
use serde_json::json;
use std::io::Write;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

fn runtime(server: &Server, variant: Variant, linked: bool) -> Runtime {
    let credentials = Credentials {
        service_url: server.url(),
        runtime_id: "5".into(),
        password: "pass/word".into(),
        runtime_qualifier: "MATCH".into(),
    };
    let mut runtime = Runtime::new(&credentials, variant, linked).unwrap();
    runtime.start().unwrap();
    assert!(runtime.settle(LIMIT));
    runtime
}

fn started() -> RuntimeEvent {
    RuntimeEvent::ServerStarted {
        runtime_qualifier: "MATCH".into(),
    }
}

fn tick(runtime: &mut Runtime) -> Vec<RuntimeEvent> {
    let mut events = runtime.update(1.1);
    events.extend(runtime.update(0.0));
    assert!(runtime.settle(LIMIT));
    events
}

/// Frames without game time, until the condition holds.
fn frames_until(runtime: &mut Runtime, mut done: impl FnMut(&Runtime, Vec<RuntimeEvent>) -> bool) {
    let deadline = Instant::now() + LIMIT;
    loop {
        let events = runtime.update(0.0);
        if done(runtime, events) {
            return;
        }
        assert!(Instant::now() < deadline, "nothing happened");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn every_request_of_a_runtime_is_exact_to_the_byte() {
    let server = Server::service(|_, before| match before {
        0 => {
            r#"{"id":"100","idempotency_key":"x","qualifier":"INIT_RUNTIME","body":{"a":null},"deleted":false}"#.into()
        }
        _ => String::new(),
    });
    let mut runtime = runtime(&server, Variant::Sdk097a1e2, false);
    assert_eq!(tick(&mut runtime), [started()]);
    let init = RuntimeEvent::CommandReceived {
        qualifier: "INIT_RUNTIME".into(),
        body: json!({}),
    };
    assert_eq!(tick(&mut runtime), [init], "handled in the frame of the answer");

    let head = |operation: &str, authorization: &str, length: usize| {
        format!(
            "POST /service/v1/entrypoint/runtime/request/{operation} HTTP/1.1\r\nHost: 127.0.0.1\r\n\
             Content-Type: application/json\r\n{authorization}Content-Length: {length}\r\n\r\n"
        )
    };
    let requests: Vec<_> = server.requests().into_iter().map(|request| request.raw).collect();
    let authorization = "Authorization: Bearer api\r\n";
    let expected = [
        head("create-token", "", 42) + r#"{"runtime_id":"5","password":"pass\/word"}"#,
        head("interchange", authorization, 47) + r#"{"outgoing_commands":[],"consumed_commands":[]}"#,
        head("interchange", authorization, 52) + r#"{"outgoing_commands":[],"consumed_commands":["100"]}"#,
    ];
    assert_eq!(requests, expected);
}

#[test]
fn commands_are_encoded_as_lua_does() {
    for (variant, stop) in [(Variant::Ref, "[]"), (Variant::Sdk097a1e2, r#"{"__object":true}"#)] {
        let server = Server::start(|request, before, stream| {
            if request.operation() == "endpoint" {
                upgrade(request, stream);
                read_frame(stream);
                return false;
            }
            respond_as_service(request, before, stream, &|_: &str, _| String::new())
        });
        let mut runtime = runtime(&server, variant, false);
        assert_eq!(runtime.is_linked(), variant == Variant::Ref);
        if variant == Variant::Ref {
            assert!(
                runtime.kick_client("1").is_err(),
                "not started before the socket is open"
            );
        }
        frames_until(&mut runtime, |_, events| events == [started()]);
        runtime.respond_client("1", &"a/b".into()).unwrap();
        runtime.set_profile("1", &json!({"played": 1, "bag": {}})).unwrap();
        runtime.set_attributes("1", &json!({"level": 3})).unwrap();
        runtime.multicast_message(&["1", "2"], &json!([])).unwrap();
        runtime.broadcast_message(&json!({"n": 0.5})).unwrap();
        runtime.kick_client("1").unwrap();
        runtime.request_matchmaking("1", "death-match").unwrap();
        runtime.stop_matchmaking().unwrap();
        runtime.upgrade_connection("1").unwrap();
        tick(&mut runtime);
        let expected = [
            r#"{"qualifier":"RESPOND_CLIENT","body":{"client_id":"1","message":"a\/b"}}"#,
            r#"{"qualifier":"SET_PROFILE","body":{"client_id":"1","profile":{"bag":[],"played":1}}}"#,
            r#"{"qualifier":"SET_ATTRIBUTES","body":{"client_id":"1","attributes":{"attributes":{"level":3}}}}"#,
            r#"{"qualifier":"MULTICAST_MESSAGE","body":{"clients":["1","2"],"message":[]}}"#,
            r#"{"qualifier":"BROADCAST_MESSAGE","body":{"message":{"n":0.5}}}"#,
            r#"{"qualifier":"KICK_CLIENT","body":{"client_id":"1"}}"#,
            r#"{"qualifier":"REQUEST_MATCHMAKING","body":{"client_id":"1","mode":"death-match"}}"#,
            &format!(r#"{{"qualifier":"STOP_MATCHMAKING","body":{stop}}}"#),
            r#"{"qualifier":"UPGRADE_CONNECTION","body":{"client_id":"1","protocol":"DISPATCHER"}}"#,
        ]
        .join(",");
        let body = server.requests_of("interchange")[0].body().to_owned();
        assert_eq!(
            body,
            format!(r#"{{"outgoing_commands":[{expected}],"consumed_commands":[]}}"#)
        );
    }
}

#[test]
fn a_linked_runtime_polls_only_after_its_socket_is_open() {
    let server = Server::start(|request, before, stream| {
        if request.operation() == "endpoint" {
            thread::sleep(Duration::from_millis(100));
            upgrade(request, stream);
            read_frame(stream);
            return false;
        }
        respond_as_service(request, before, stream, &|_: &str, _| String::new())
    });
    let mut runtime = runtime(&server, Variant::Sdk097a1e2, true);
    for _ in 0..5 {
        runtime.update(2.0);
    }
    assert_eq!(server.requests_of("interchange").len(), 0);
    frames_until(&mut runtime, |_, events| events == [started()]);
    tick(&mut runtime);
    assert_eq!(server.requests_of("interchange").len(), 1);
    assert!(server.requests_of("endpoint")[0].raw.contains("?ws_token=ws HTTP"));
}

#[test]
fn a_refusal_in_json_ends_the_process_with_code_four_without_a_repetition() {
    for (operation, status) in [
        ("create-token", 401),
        ("create-token", 404),
        ("interchange", 404),
        ("interchange", 500),
    ] {
        let server = Server::start(move |request, before, stream| {
            if request.operation() == operation {
                return respond(stream, status, r#"{"qualifier":"RUNTIME_NOT_FOUND"}"#);
            }
            respond_as_service(request, before, stream, &|_: &str, _| String::new())
        });
        let mut runtime = runtime(&server, Variant::Sdk097a1e2, false);
        tick(&mut runtime);
        let exit = runtime.exit().expect(operation);
        assert_eq!(exit.code, 4);
        assert!(
            exit.reason.contains(&format!("response_status={status}")),
            "{}",
            exit.reason
        );
        assert_eq!(server.requests_of(operation).len(), 1);
    }
}

#[test]
fn an_answer_that_is_not_as_expected_leaves_a_living_process_that_never_polls_again() {
    for (status, body) in [
        (500, ""),
        (502, "<html>"),
        (200, "oops"),
        (200, "{}"),
        (200, r#"{"incoming_commands":null}"#),
        (200, r#"{"incoming_commands":[{"qualifier":"ADD_CLIENT","body":{}}]}"#),
        (
            200,
            r#"{"incoming_commands":[{"id":"a-b","qualifier":"ADD_CLIENT","body":{}}]}"#,
        ),
    ] {
        let server = Server::start(move |request, before, stream| match request.operation() {
            "interchange" => respond(stream, status, body),
            _ => respond_as_service(request, before, stream, &|_: &str, _| String::new()),
        });
        let mut runtime = runtime(&server, Variant::Sdk097a1e2, false);
        for _ in 0..3 {
            tick(&mut runtime);
        }
        assert!(runtime.is_silent() && runtime.exit().is_none(), "{status} {body}");
        assert_eq!(server.requests_of("interchange").len(), 1, "{status} {body}");
    }
}

#[test]
fn a_service_that_is_away_silences_the_process_too() {
    let server = Server::start(|request, before, stream| {
        respond_as_service(request, before, stream, &|_: &str, _| String::new());
        false
    });
    let mut runtime = runtime(&server, Variant::Sdk097a1e2, false);
    tick(&mut runtime);
    assert!(!runtime.is_silent(), "a stale connection is replaced");

    let unanswered = Server::start(|request, before, stream| match request.operation() {
        "interchange" => false,
        _ => respond_as_service(request, before, stream, &|_: &str, _| String::new()),
    });
    let mut runtime = self::runtime(&unanswered, Variant::Sdk097a1e2, false);
    tick(&mut runtime);
    assert!(runtime.is_silent() && runtime.exit().is_none());
}

#[test]
fn the_end_of_the_dispatcher_connection_is_exit_code_five() {
    for close in [true, false] {
        let server = Server::start(move |request, before, stream| {
            if request.operation() == "endpoint" {
                upgrade(request, stream);
                if close {
                    stream.write_all(&frame(8, b"\x03\xea")).unwrap();
                    read_frame(stream);
                }
                return false;
            }
            respond_as_service(request, before, stream, &|_: &str, _| String::new())
        });
        let mut runtime = runtime(&server, Variant::Sdk097a1e2, true);
        frames_until(&mut runtime, |runtime, _| runtime.exit().is_some());
        assert_eq!(runtime.exit().unwrap().code, 5);
        assert_eq!(runtime.update(2.0), [], "nothing more happens");
    }
}

#[test]
fn dispatcher_frames_are_json_texts_in_both_directions() {
    let (sender, sent) = sync_channel(8);
    let server = Server::start(move |request, before, stream| {
        if request.operation() == "endpoint" {
            upgrade(request, stream);
            stream
                .write_all(&frame(TEXT, br#"{"client_id":"1","encoding":"TXT","message":"hi"}"#))
                .unwrap();
            stream
                .write_all(&frame(TEXT, br#"{"client_id":"2","encoding":"B64","message":"AP8="}"#))
                .unwrap();
            stream.write_all(&frame(TEXT, b"not json")).unwrap();
            while let Some((opcode, payload)) = read_frame(stream) {
                assert_eq!(opcode, TEXT);
                sender.send(String::from_utf8(payload).unwrap()).unwrap();
            }
            return false;
        }
        respond_as_service(request, before, stream, &|_: &str, _| String::new())
    });
    let mut runtime = runtime(&server, Variant::Sdk097a1e2, true);
    let mut events = Vec::new();
    frames_until(&mut runtime, |_, more| {
        events.extend(more);
        events.len() >= 3
    });
    let message = |client_id: &str, payload| RuntimeEvent::MessageReceived {
        client_id: client_id.into(),
        payload,
    };
    assert_eq!(
        events,
        [
            started(),
            message("1", Payload::Text("hi".into())),
            message("2", Payload::Binary(vec![0, 255]))
        ]
    );
    let text = Payload::Text("a/b".into());
    runtime.respond_over_dispatcher("1", &text).unwrap();
    runtime
        .multicast_over_dispatcher(&["1", "2"], &Payload::Binary(vec![0, 255]))
        .unwrap();
    runtime.broadcast_over_dispatcher(&text).unwrap();
    assert!(runtime.multicast_over_dispatcher(&[], &text).is_err());
    let mut frames = Vec::new();
    frames_until(&mut runtime, |_, _| {
        frames.extend(sent.try_iter());
        frames.len() == 3
    });
    assert_eq!(
        frames,
        [
            r#"{"clients":["1"],"encoding":"TXT","message":"a\/b"}"#,
            r#"{"clients":["1","2"],"encoding":"B64","message":"AP8="}"#,
            r#"{"encoding":"TXT","message":"a\/b"}"#,
        ]
    );
    assert_eq!(
        runtime.take_script_errors().len(),
        1,
        "a frame that is not JSON is an error and no more"
    );
    assert!(runtime.exit().is_none());
}
