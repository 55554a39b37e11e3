//! Players and runtimes on real sockets: who gets in, who hears what, how connections end.

mod support;

use std::time::{Duration, Instant};

use fastwebsockets::OpCode;
use omgservers_protocol::id::ClientId;
use omgservers_protocol::mux::{self, Lane, To, put_kick, put_send};
use omgservers_protocol::token::{Audience, Role};
use support::{Said, World, close, text};

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_taken_from_the_query_the_header_and_the_sub_protocols() {
    let world = World::start().await;
    let _runtime = world.json_runtime(5).await;
    let carried = |separator: &str, token: String| {
        format!("bearer-token-carrier,quarkus-http-upgrade{separator}Authorization{separator}Bearer{token}")
    };
    let token = || world.player_token(5, 7);
    let cases = [
        (format!("?ws_token={}", token()), None, None, None),
        (
            format!("?ws_token={}", token()),
            None,
            Some("omgservers".to_owned()),
            Some("omgservers"),
        ),
        (String::new(), Some(format!("Bearer {}", token())), None, None),
        (
            String::new(),
            None,
            Some(carried("%23", format!("+{}", token()))),
            Some("bearer-token-carrier"),
        ),
        (
            String::new(),
            None,
            Some(carried("%23", format!("%20{}", token()))),
            Some("bearer-token-carrier"),
        ),
        (
            String::new(),
            None,
            Some(carried("#", format!(" {}", token()))),
            Some("bearer-token-carrier"),
        ),
    ];
    for (query, authorization, protocols, expected) in cases {
        let mut headers = Vec::new();
        headers.extend(authorization.as_deref().map(|value| ("authorization", value)));
        headers.extend(protocols.as_deref().map(|value| ("sec-websocket-protocol", value)));
        let socket = world.connect(&query, &headers).await.expect("the token is good");
        assert_eq!(socket.protocol.as_deref(), expected);
        assert_eq!(socket.connection_header, "Upgrade");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_tokens_are_refused_before_the_socket_opens() {
    let world = World::start().await;
    let _runtime = world.json_runtime(5).await;
    let signed = |change: fn(&mut omgservers_protocol::token::Claims)| {
        let mut claims = world.claims(Role::Player, 5, 7);
        change(&mut claims);
        format!("?ws_token={}", world.service.signer.sign(&claims))
    };
    let used = format!("?ws_token={}", world.player_token(5, 7));
    let _player = world.connect(&used, &[]).await.unwrap();
    let cases = [
        (String::new(), 401, "WRONG_CREDENTIALS"),
        ("?ws_token=nonsense".to_owned(), 401, "WRONG_CREDENTIALS"),
        (used, 401, "WRONG_CREDENTIALS"),
        (signed(|claims| claims.exp = claims.iat - 100), 401, "WRONG_CREDENTIALS"),
        (signed(|claims| claims.iat -= 3_600), 401, "WRONG_CREDENTIALS"),
        (
            signed(|claims| claims.aud = Audience::User.claim("omgservers")),
            403,
            "PERMISSION_NOT_FOUND",
        ),
        (
            signed(|claims| claims.groups = vec![Role::Player]),
            403,
            "PERMISSION_NOT_FOUND",
        ),
    ];
    for (query, status, qualifier) in cases {
        let Err(response) = world.connect(&query, &[]).await else {
            panic!("{query} is accepted")
        };
        assert_eq!(response.status().as_u16(), status, "{query}");
        let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(body["qualifier"], qualifier);
        assert!(body["message"].as_str().is_some_and(|message| !message.is_empty()));
        let challenge = response.headers().get("www-authenticate");
        assert_eq!(challenge.is_some_and(|value| value == "ws_token"), status == 401);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_wish_to_upgrade_even_a_good_token_opens_nothing() {
    let world = World::start().await;
    let path = format!("{}?ws_token={}", support::ENDPOINT, world.player_token(5, 7));
    let response = support::request(world.address, hyper::Request::get(path), bytes::Bytes::new()).await;
    assert_eq!(response.status().as_u16(), 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_runtime_speaks_json_with_its_players() {
    let world = World::start().await;
    let mut runtime = world.json_runtime(5).await;
    assert_eq!(runtime.protocol.as_deref(), Some("omgservers"));
    let mut first = world.player(5, 245515657456648192).await;
    let mut second = world.player(5, 8).await;

    first.send_text("say \"ä\"").await;
    assert_eq!(
        runtime.next().await,
        text(r#"{"client_id":"245515657456648192","encoding":"TXT","message":"say \"ä\""}"#)
    );
    second.send_binary(b"hallo").await;
    assert_eq!(
        runtime.next().await,
        text(r#"{"client_id":"8","encoding":"B64","message":"aGFsbG8="}"#)
    );
    second.send_text("").await;
    assert_eq!(
        runtime.next().await,
        text(r#"{"client_id":"8","encoding":"TXT","message":""}"#)
    );

    // Bad frames are ignored, and nothing is closed.
    for bad in [
        "nonsense",
        r#"{"clients":["x"],"encoding":"TXT","message":"m"}"#,
        r#"{"encoding":"XML","message":"m"}"#,
    ] {
        runtime.send_text(bad).await;
    }
    runtime.send_binary(b"ignored").await;
    runtime
        .send_text(r#"{"clients":[],"encoding":"TXT","message":"nobody"}"#)
        .await;
    runtime
        .send_text(r#"{"clients":["8",99],"encoding":"TXT","message":"to one"}"#)
        .await;
    runtime
        .send_text(r#"{"clients":null,"encoding":"B64","message":"AAH/"}"#)
        .await;
    runtime.send_text(r#"{"encoding":"TXT","message":"to all"}"#).await;
    assert_eq!(first.next().await, Said::Binary(vec![0, 1, 255]));
    assert_eq!(first.next().await, text("to all"));
    assert_eq!(second.next().await, text("to one"));
    assert_eq!(second.next().await, Said::Binary(vec![0, 1, 255]));
    assert_eq!(second.next().await, text("to all"));

    drop(runtime);
    assert_eq!(first.next().await, close(1001, "Room was removed"));
    assert_eq!(second.next().await, close(1001, "Room was removed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_binary_link_carries_joins_messages_kicks_and_leaves() {
    let world = World::start().await;
    let mut runtime = world.mux_runtime(5).await;
    assert_eq!(runtime.protocol.as_deref(), Some(mux::PROTOCOL));
    runtime.expect_frames(&["synced"]).await;
    let mut first = world.player(5, 7).await;
    runtime.expect_frames(&["+7"]).await;
    let mut second = world.player(5, 8).await;
    runtime.expect_frames(&["+8"]).await;

    first.send_text("hello").await;
    runtime.expect_frames(&["7: hello"]).await;
    second.send_binary(b"raw").await;
    runtime.expect_frames(&["8 binary: raw"]).await;

    runtime
        .send_batch(|batch| {
            put_send(batch, To::One(ClientId(7)), Lane::Reliable, true, b"one").unwrap();
            put_send(
                batch,
                To::Many(&[ClientId(7), ClientId(8)]),
                Lane::Reliable,
                false,
                b"many",
            )
            .unwrap();
            put_send(batch, To::All, Lane::Unreliable, true, b"all").unwrap();
        })
        .await;
    assert_eq!(first.next().await, text("one"));
    for player in [&mut first, &mut second] {
        assert_eq!(player.next().await, Said::Binary(b"many".to_vec()));
        assert_eq!(player.next().await, text("all"));
    }

    runtime
        .send_batch(|batch| {
            put_send(batch, To::All, Lane::Reliable, true, b"bye").unwrap();
            put_kick(batch, ClientId(8), "game over").unwrap();
        })
        .await;
    assert_eq!(second.next().await, text("bye"));
    assert_eq!(second.next().await, close(1008, "game over"));
    runtime.expect_frames(&["-8 Kicked"]).await;
    assert_eq!(first.next().await, text("bye"));
    first.send(OpCode::Close, &1000_u16.to_be_bytes()).await;
    assert_eq!(first.next().await, close(1000, ""));
    runtime.expect_frames(&["-7 Closed"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_room_a_player_is_let_in_and_turned_away() {
    let world = World::start().await;
    let mut player = world.player(5, 7).await;
    assert_eq!(
        player.next().await,
        close(1002, "Failed to open the dispatcher connection")
    );
    assert_eq!(player.next().await, Said::Lost);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_connection_wins() {
    let world = World::start().await;
    let mut runtime = world.mux_runtime(5).await;
    let mut old_player = world.player(5, 7).await;
    let mut player = world.player(5, 7).await;
    assert_eq!(old_player.next().await, close(1008, "Replaced by a newer connection"));
    runtime.expect_frames(&["synced", "+7", "-7 Replaced", "+7"]).await;

    let mut new_runtime = world.mux_runtime(5).await;
    assert_eq!(runtime.next().await, close(1008, "Replaced by a newer connection"));
    new_runtime.expect_frames(&["+7", "synced"]).await;
    player.send_text("hello").await;
    new_runtime.expect_frames(&["7: hello"]).await;
    new_runtime
        .send_batch(|batch| put_send(batch, To::All, Lane::Reliable, true, b"welcome").unwrap())
        .await;
    assert_eq!(player.next().await, text("welcome"));
}

#[tokio::test(flavor = "multi_thread")]
async fn players_are_held_while_a_runtime_links_again() {
    let world = World::start().await;
    let mut runtime = world.mux_runtime(5).await;
    let mut player = world.player(5, 7).await;
    runtime.expect_frames(&["synced", "+7"]).await;
    drop(runtime);
    world.check_metric("dispatcher_rooms_linked 0").await;
    player.send_text("anybody there?").await;
    let mut runtime = world.mux_runtime(5).await;
    runtime.expect_frames(&["+7", "synced", "7: anybody there?"]).await;
    runtime
        .send_batch(|batch| put_send(batch, To::All, Lane::Reliable, true, b"yes").unwrap())
        .await;
    assert_eq!(player.next().await, text("yes"));
}

#[tokio::test(flavor = "multi_thread")]
async fn players_are_let_go_when_the_runtime_does_not_come_back() {
    let world = World::start_with(|config| config.room_grace = Duration::from_millis(200)).await;
    let runtime = world.mux_runtime(5).await;
    let mut player = world.player(5, 7).await;
    drop(runtime);
    assert_eq!(player.next().await, close(1001, "Room was removed"));
    let mut late = world.player(5, 8).await;
    assert_eq!(
        late.next().await,
        close(1002, "Failed to open the dispatcher connection")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_player_is_dropped_and_slows_nobody() {
    let world = World::start().await;
    let mut runtime = world.mux_runtime(5).await;
    let mut slow = world.player(5, 7).await;
    let mut quick = world.player(5, 8).await;
    runtime.expect_frames(&["synced", "+7", "+8"]).await;
    let message = vec![b'x'; 60_000];
    let mut longest = Duration::ZERO;
    // Until the kernel's buffers and the outbox of the slow one are full; it never reads.
    let begun = Instant::now();
    for round in 0.. {
        assert!(begun.elapsed() < support::DEADLINE, "the slow player is never dropped");
        let started = Instant::now();
        runtime
            .send_batch(|batch| put_send(batch, To::All, Lane::Reliable, false, &message).unwrap())
            .await;
        assert_eq!(quick.next().await, Said::Binary(message.clone()));
        longest = longest.max(started.elapsed());
        let (_, metrics) = if round % 20 == 0 {
            world.get_management("/metrics").await
        } else {
            continue;
        };
        if metrics.contains("dispatcher_closed_connections_total{reason=\"too_slow\"} 1") {
            break;
        }
    }
    runtime.expect_frames(&["-7 Overflowed"]).await;
    assert!(longest < Duration::from_secs(1), "the quick player waited {longest:?}");
    // What was on its way may still arrive; then the end.
    while let Said::Binary(_) = slow.next().await {}
}

#[tokio::test(flavor = "multi_thread")]
async fn a_room_whose_runtime_does_not_read_slows_no_other_room() {
    let world = World::start().await;
    let _stuck = world.json_runtime(5).await;
    let mut flood = world.player(5, 7).await;
    let mut runtime = world.json_runtime(6).await;
    let mut player = world.player(6, 8).await;
    let flooding = tokio::spawn(async move {
        let message = "x".repeat(60_000);
        loop {
            let frame = fastwebsockets::Frame::text(message.clone().into_bytes().into());
            if flood.socket.write_frame(frame).await.is_err() {
                return;
            }
        }
    });
    let mut longest = Duration::ZERO;
    let begun = Instant::now();
    while !flooding.is_finished() {
        assert!(begun.elapsed() < support::DEADLINE, "the flood is never stopped");
        let started = Instant::now();
        player.send_text("ping").await;
        assert!(matches!(runtime.next().await, Said::Text(_)));
        runtime.send_text(r#"{"encoding":"TXT","message":"pong"}"#).await;
        assert_eq!(player.next().await, text("pong"));
        longest = longest.max(started.elapsed());
    }
    assert!(longest < Duration::from_secs(1), "the other room waited {longest:?}");
    world
        .check_metric("dispatcher_closed_connections_total{reason=\"too_fast\"} 1")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_in_several_frames_arrive_as_one_and_pings_are_answered() {
    let world = World::start().await;
    let mut runtime = world.mux_runtime(5).await;
    let mut player = world.player(5, 7).await;
    runtime.expect_frames(&["synced", "+7"]).await;
    let (head, tail) = "hällo".as_bytes().split_at(2);
    player.send_frame(false, OpCode::Text, head).await;
    player.send_frame(true, OpCode::Ping, b"are you there").await;
    player.send_frame(true, OpCode::Continuation, tail).await;
    runtime.expect_frames(&["7: hällo"]).await;
    let frame = tokio::time::timeout(support::DEADLINE, player.socket.read_frame())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (frame.opcode, &frame.payload[..]),
        (OpCode::Pong, &b"are you there"[..])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn who_breaks_the_rules_is_told_which_and_dropped() {
    let world = World::start().await;
    let mut runtime = world.mux_runtime(5).await;
    runtime.expect_frames(&["synced"]).await;
    let long = vec![b'x'; mux::MESSAGE_BYTES_MAX];
    let longer = vec![b'x'; mux::MESSAGE_BYTES_MAX + 1];
    type Frames<'a> = &'a [(bool, OpCode, &'a [u8])];
    let cases: [(Frames<'_>, Said); 5] = [
        (&[(true, OpCode::Binary, &longer)], close(1009, "Message is too big")),
        (
            &[(false, OpCode::Binary, &long), (true, OpCode::Continuation, b"x")],
            close(1009, "Message is too big"),
        ),
        (&[(true, OpCode::Text, &[0xff])], close(1007, "Text is not UTF-8")),
        (
            &[(false, OpCode::Text, &[0xff]), (true, OpCode::Continuation, b"")],
            close(1007, "Text is not UTF-8"),
        ),
        (
            &[(true, OpCode::Continuation, b"x")],
            close(1002, "A message without a beginning"),
        ),
    ];
    for (frames, expected) in cases {
        let mut player = world.player(5, 7).await;
        for (fin, opcode, bytes) in frames {
            player.send_frame(*fin, *opcode, bytes).await;
        }
        assert_eq!(player.next().await, expected);
        runtime.expect_frames(&["+7", "-7 Misbehaved"]).await;
    }
    let mut player = world.player(5, 7).await;
    player.send_binary(&long).await;
    runtime
        .expect_frames(&["+7", &format!("7 binary: {}", "x".repeat(long.len()))])
        .await;

    runtime.send_binary(b"not a batch").await;
    assert_eq!(runtime.next().await, close(1002, "Malformed batch"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_connection_is_pinged_and_closed_when_it_does_not_answer() {
    let world = World::start_with(|config| {
        config.idle_timeout = Duration::from_millis(600);
        config.ping_interval = Duration::from_millis(150);
    })
    .await;
    let mut runtime = world.mux_runtime(5).await;
    let mut lively = world.player(5, 7).await;
    let mut dead = world.player(5, 8).await;
    runtime.expect_frames(&["synced", "+7", "+8"]).await;
    // Reading answers pings; the dead one does not read until later.
    tokio::select! {
        said = lively.next() => panic!("the lively one is closed: {said:?}"),
        () = runtime.expect_frames(&["-8 Idle"]) => {}
    }
    assert_eq!(
        dead.next().await,
        close(1002, "Connection timed out due to inactivity.")
    );
    runtime
        .send_batch(|batch| put_send(batch, To::All, Lane::Reliable, true, b"hi").unwrap())
        .await;
    assert_eq!(lively.next().await, text("hi"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_tells_everybody_and_takes_seconds_at_most() {
    let world = World::start().await;
    let mut runtime = world.mux_runtime(5).await;
    let mut player = world.player(5, 7).await;
    runtime.expect_frames(&["synced", "+7"]).await;
    world.shutdown.cancel();
    assert_eq!(player.next().await, close(1001, "The dispatcher is stopping"));
    assert_eq!(runtime.next().await, close(1001, "The dispatcher is stopping"));
    let served = tokio::time::timeout(Duration::from_secs(5), world.serving).await;
    served.expect("it ends within seconds").unwrap().unwrap();
    assert!(tokio::net::TcpStream::connect(world.address).await.is_err());
}
