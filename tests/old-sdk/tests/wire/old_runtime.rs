//! The binary `old-runtime` with its small game, as a process.

use crate::server::{LIMIT, Server, TEXT, frame, read_frame, respond, respond_as_service, upgrade};
use std::io::Write;
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

/// A process that does not outlive its test.
struct Process(Child);

impl Process {
    fn start(url: &str, qualifier: &str, more: &[(&str, &str)]) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_old-runtime"))
            .env_clear()
            .env("OMGSERVERS_SERVICE_URL", url)
            .env("OMGSERVERS_RUNTIME_ID", "5")
            .env("OMGSERVERS_PASSWORD", "password")
            .env("OMGSERVERS_RUNTIME_QUALIFIER", qualifier)
            .envs(more.iter().copied())
            .stdout(Stdio::null())
            .spawn();
        Process(child.unwrap())
    }

    fn exit_code(&mut self) -> i32 {
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code().unwrap();
            }
            assert!(Instant::now() < deadline, "the process lives on");
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn is_alive(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_for_polls(polls: &AtomicUsize, count: usize) {
    let deadline = Instant::now() + LIMIT;
    while polls.load(Relaxed) < count {
        assert!(Instant::now() < deadline, "the runtime does not poll");
        thread::sleep(Duration::from_millis(5));
    }
}

fn command(id: u32, qualifier: &str, body: &str) -> String {
    format!(r#"{{"id":"{id}","qualifier":"{qualifier}","body":{body}}}"#)
}

fn message(id: u32, text: &str) -> String {
    command(
        id,
        "HANDLE_MESSAGE",
        &format!(r#"{{"client_id":"1","message":"{text}"}}"#),
    )
}

const INIT: &str =
    r#"{"id":"100","qualifier":"INIT_RUNTIME","body":{"runtime_config":{"version_config":{"modes":[]}}}}"#;

/// The outgoing commands of one interchange.
fn commands(body: &str) -> &str {
    body.strip_prefix(r#"{"outgoing_commands":["#)
        .unwrap()
        .split_once(r#"],"consumed_commands":"#)
        .unwrap()
        .0
}

#[test]
fn a_missing_variable_is_exit_code_one() {
    let mut child = Process(
        Command::new(env!("CARGO_BIN_EXE_old-runtime"))
            .env_clear()
            .env("OMGSERVERS_SERVICE_URL", "http://127.0.0.1:1")
            .stdout(Stdio::null())
            .spawn()
            .unwrap(),
    );
    assert_eq!(child.exit_code(), 1);
}

#[test]
fn a_refused_runtime_exits_with_code_four_and_a_closed_socket_with_five() {
    let refusing = Server::start(|_, _, stream| respond(stream, 401, r#"{"qualifier":"WRONG_CREDENTIALS"}"#));
    assert_eq!(Process::start(&refusing.url(), "LOBBY", &[]).exit_code(), 4);
    let closing = Server::start(|request, before, stream| match request.operation() {
        "endpoint" => {
            upgrade(request, stream);
            stream.write_all(&frame(8, b"\x03\xe9")).unwrap();
            false
        }
        _ => respond_as_service(request, before, stream, &|_: &str, _| String::new()),
    });
    assert_eq!(Process::start(&closing.url(), "MATCH", &[]).exit_code(), 5);
    let lobby = [("OLD_RUNTIME_VARIANT", "ref")];
    assert_eq!(
        Process::start(&closing.url(), "LOBBY", &lobby).exit_code(),
        5,
        "the old variant always links"
    );
}

#[test]
fn a_gateway_error_leaves_a_process_that_lives_and_does_nothing() {
    let server = Server::start(|_, _, stream| respond(stream, 502, "<html>"));
    let mut process = Process::start(&server.url(), "LOBBY", &[]);
    server.wait_for("create-token", 1);
    thread::sleep(Duration::from_millis(700));
    assert!(process.is_alive());
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_lobby_echoes_plays_broadcasts_and_kicks() {
    let server = Server::service(|_, before| match before {
        0 => [
            INIT.to_owned(),
            command(
                101,
                "ADD_CLIENT",
                r#"{"user_id":"7","client_id":"1","profile":{"played":2}}"#,
            ),
            message(102, "echo:hi"),
            message(103, "play:death-match"),
            message(104, "broadcast:all"),
            message(105, "who"),
            message(106, "kickme"),
        ]
        .join(","),
        1 => message(107, "exit:9"),
        _ => String::new(),
    });
    let mut process = Process::start(&server.url(), "LOBBY", &[]);
    assert_eq!(process.exit_code(), 9);
    let requests = server.requests_of("interchange");
    assert_eq!(
        commands(requests[1].body()),
        [
            r#"{"qualifier":"RESPOND_CLIENT","body":{"client_id":"1","message":"echo:hi"}}"#,
            r#"{"qualifier":"SET_PROFILE","body":{"client_id":"1","profile":{"played":3}}}"#,
            r#"{"qualifier":"REQUEST_MATCHMAKING","body":{"client_id":"1","mode":"death-match"}}"#,
            r#"{"qualifier":"BROADCAST_MESSAGE","body":{"message":"broadcast:all"}}"#,
            r#"{"qualifier":"RESPOND_CLIENT","body":{"client_id":"1","message":"{\"group\":null,\"profile\":{\"played\":3}}"}}"#,
            r#"{"qualifier":"KICK_CLIENT","body":{"client_id":"1"}}"#,
        ]
        .join(",")
    );
    assert!(
        requests[1]
            .body()
            .ends_with(r#""consumed_commands":["100","101","102","103","104","105","106"]}"#)
    );
    assert_eq!(
        server.requests_of("endpoint").len(),
        0,
        "lobbies do not link by default"
    );
}

#[test]
fn a_match_upgrades_its_players_and_talks_over_the_dispatcher() {
    let (sender, sent) = sync_channel(16);
    let polls = Arc::new(AtomicUsize::new(0));
    let server = Server::start(move |request, before, stream| {
        if request.operation() == "endpoint" {
            upgrade(request, stream);
            let say = |stream: &mut TcpStream, encoding: &str, text: &str| {
                let player = format!(r#"{{"client_id":"1","encoding":"{encoding}","message":"{text}"}}"#);
                stream.write_all(&frame(TEXT, player.as_bytes())).unwrap();
            };
            // The second poll acknowledges the player, who may talk from then on.
            wait_for_polls(&polls, 2);
            for (encoding, text) in [("TXT", "who"), ("B64", "AAEC"), ("TXT", "all:hello")] {
                say(stream, encoding, text);
                sender.send(read_frame(stream).unwrap()).unwrap();
            }
            say(stream, "TXT", "stop");
            say(stream, "TXT", "leave");
            // The frame in between has read both by the second poll after this one.
            wait_for_polls(&polls, polls.load(Relaxed) + 2);
            say(stream, "TXT", "exit:3");
            read_frame(stream);
            return false;
        }
        if request.operation() == "interchange" {
            polls.fetch_add(1, Relaxed);
        }
        respond_as_service(request, before, stream, &|_: &str, before| match before {
            0 => {
                let added = r#"{"user_id":"7","client_id":"1","group_name":"red","profile":{}}"#;
                [INIT.to_owned(), command(101, "ADD_MATCH_CLIENT", added)].join(",")
            }
            _ => String::new(),
        })
    });
    let mut process = Process::start(&server.url(), "MATCH", &[]);
    assert_eq!(process.exit_code(), 3);
    let texts: Vec<String> = sent
        .iter()
        .take(3)
        .map(|(_, payload)| String::from_utf8(payload).unwrap())
        .collect();
    assert_eq!(
        texts,
        [
            r#"{"clients":["1"],"encoding":"TXT","message":"{\"group\":\"red\",\"profile\":{}}"}"#,
            r#"{"clients":["1"],"encoding":"B64","message":"AAEC"}"#,
            r#"{"encoding":"TXT","message":"all:hello"}"#,
        ]
    );
    let all: Vec<String> = server
        .requests_of("interchange")
        .iter()
        .map(|request| commands(request.body()).to_owned())
        .collect();
    assert_eq!(
        all[1],
        r#"{"qualifier":"UPGRADE_CONNECTION","body":{"client_id":"1","protocol":"DISPATCHER"}}"#
    );
    let rest = all[2..].join("");
    let stop = rest.find(r#"{"qualifier":"STOP_MATCHMAKING","body":{"__object":true}}"#);
    let leave = rest.find(r#"{"qualifier":"KICK_CLIENT","body":{"client_id":"1"}}"#);
    assert!(stop.is_some() && stop < leave, "{rest}");
}
