//! Connections are counted, and those that ask nothing are closed; what is under way is not.

mod support;

use std::time::Duration;

use bytes::Bytes;
use hyper::Request;
use hyper_util::rt::{TokioExecutor, TokioIo};
use support::{DEADLINE, World, eventually, request, text};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Shorter than what is asked for takes.
const SHORT: Duration = Duration::from_millis(400);

async fn is_closed(mut stream: TcpStream) {
    let mut buffer = [0; 1_024];
    let closed = async { while matches!(stream.read(&mut buffer).await, Ok(1..)) {} };
    timeout(DEADLINE, closed).await.expect("it is closed in time");
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_do_not_keep_others_out() {
    let world = World::start_with(|config| {
        config.bounds.http_max_connections = 20;
        config.bounds.http_first_request_timeout = SHORT;
    })
    .await;
    let mut silent = Vec::new();
    for number in 0..20 {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        if number % 2 == 1 {
            stream.write_all(b"PRI * HTTP/2.0\r\n").await.unwrap();
        }
        silent.push(stream);
    }
    let answer = request(world.address, Request::get("/service/echo"), Bytes::new()).await;
    assert_eq!(answer.status().as_u16(), 200);
    for stream in silent {
        is_closed(stream).await;
    }
    world.check_metric("dispatcher_connections 0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sockets_long_polls_and_slow_uploads_are_not_idle() {
    let world = World::start_with(|config| {
        config.bounds.http_first_request_timeout = SHORT;
        config.bounds.http_idle_timeout = SHORT;
    })
    .await;
    let mut runtime = world.mux_runtime(1).await;
    let mut player = world.player(1, 11).await;
    let mut piped = support::connect(world.address, "/connector/socket", &[]).await.unwrap();
    runtime.expect_frames(&["synced", "+11"]).await;
    let mut upload = TcpStream::connect(world.address).await.unwrap();
    let head = b"POST /service/swallow HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 15\r\n\r\n";
    upload.write_all(head).await.unwrap();
    let late = tokio::spawn(request(world.address, Request::get("/service/late"), Bytes::new()));
    for _ in 0..15 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        upload.write_all(b"x").await.unwrap();
    }
    let mut answer = String::new();
    timeout(DEADLINE, upload.read_to_string(&mut answer))
        .await
        .expect("an answer in time")
        .unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("15"),
        "{answer}"
    );
    assert_eq!(late.await.unwrap().body(), "late");
    piped.send_text("still here").await;
    assert_eq!(piped.next().await, text("still here"));
    player.send_binary(b"still here").await;
    runtime.expect_frames(&["11 binary: still here"]).await;
    world.check_metric("dispatcher_connections 3").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn http_2_without_requests_is_closed() {
    let world = World::start_with(|config| config.bounds.http_idle_timeout = SHORT).await;
    let stream = TcpStream::connect(world.address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    for path in ["echo", "late", "echo"] {
        let asked = Request::get(format!("http://{}/service/{path}", world.address));
        let asked = asked.body(http_body_util::Empty::<Bytes>::new()).unwrap();
        let answer = timeout(DEADLINE, sender.send_request(asked)).await.unwrap().unwrap();
        assert_eq!(answer.status().as_u16(), 200);
    }
    timeout(DEADLINE, connection)
        .await
        .expect("it is closed in time")
        .unwrap()
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn http_2_whose_answers_are_not_taken_is_closed() {
    let world = World::start_with(|config| config.bounds.http_idle_timeout = SHORT).await;
    let stream = TcpStream::connect(world.address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(1_024)
        .handshake(TokioIo::new(stream))
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let asked = Request::post(format!("http://{}/service/echo", world.address));
    let asked = asked
        .body(http_body_util::Full::new(Bytes::from(vec![b'x'; 10_000])))
        .unwrap();
    let answer = timeout(DEADLINE, sender.send_request(asked)).await.unwrap().unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    // It is neither read nor dropped.
    let closed = timeout(DEADLINE, connection).await;
    assert!(closed.expect("it is closed in time").unwrap().is_err());
    drop(answer);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_address_cannot_take_all_places() {
    let world = World::start_with(|config| config.bounds.http_max_connections_per_address = 3).await;
    let mut streams = Vec::new();
    for _ in 0..4 {
        streams.push(TcpStream::connect(world.address).await.unwrap());
    }
    is_closed(streams.pop().unwrap()).await;
    let (_, metrics) = world.get_management("/metrics").await;
    for line in ["dispatcher_connections 3", "dispatcher_turned_away_connections_total 1"] {
        assert!(metrics.lines().any(|shown| shown == line), "{line} is not in {metrics}");
    }
    streams.clear();
    eventually("there is room again", async || {
        let (_, metrics) = world.get_management("/metrics").await;
        metrics.contains("dispatcher_connections 0\n")
    })
    .await;
    let answer = request(world.address, Request::get("/service/echo"), Bytes::new()).await;
    assert_eq!(answer.status().as_u16(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_come_through_one_trusted_proxy() {
    let world = World::start_with(|config| {
        config.bounds.http_max_connections_per_address = 1;
        config.trust_forwarded_headers = true;
    })
    .await;
    let _other = TcpStream::connect(world.address).await.unwrap();
    world.check_metric("dispatcher_connections 1").await;
    let answer = request(world.address, Request::get("/service/echo"), Bytes::new()).await;
    assert_eq!(answer.status().as_u16(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn supervisors_of_older_installations_ask_for_health() {
    let world = World::start().await;
    assert_eq!(world.get_management("/health").await, (200, "ready".to_owned()));
    assert_eq!(
        world.get_management("/health").await,
        world.get_management("/health/ready").await
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_does_not_wait_for_half_a_request() {
    let world = World::start().await;
    let mut halves = Vec::new();
    for address in [world.address, world.management] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /health HT").await.unwrap();
        halves.push(stream);
    }
    // Nothing tells that half a request has arrived.
    tokio::time::sleep(Duration::from_millis(500)).await;
    world.shutdown.cancel();
    for stream in halves {
        is_closed(stream).await;
    }
    let served = timeout(DEADLINE, world.serving).await.expect("it stops");
    served.unwrap().unwrap();
}
