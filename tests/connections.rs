//! Connections to the service: those that ask nothing are closed, no address has all of them, what is under way is waited
//! for. The dispatcher's are in `dispatcher/tests/connections.rs`.

use std::net::SocketAddr;
use std::time::Duration;

use harness::{DEADLINE, Installation, Options, eventually};
use omgservers_protocol::{Call as _, player};
use reqwest::Method;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::http;

const BODY: &str = r#"{"message": "ping"}"#;

/// The head of a call that ends its connection.
fn head() -> String {
    let (route, length) = (player::PingService::ROUTE, BODY.len());
    format!(
        "POST {route} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
}

async fn connect(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let streams = (0..count).map(|_| TcpStream::connect(address));
    let streams = futures_util::future::try_join_all(streams).await;
    streams.expect("the kernel takes connections")
}

/// What is said until the connection is closed.
async fn read_all(stream: &mut TcpStream) -> String {
    let mut said = Vec::new();
    let read = timeout(DEADLINE, stream.read_to_end(&mut said)).await;
    read.expect("it is closed in time").ok();
    String::from_utf8_lossy(&said).into_owned()
}

async fn ask(mut stream: TcpStream) -> String {
    // One that was turned away may be closed already.
    stream.write_all(format!("{}{BODY}", head()).as_bytes()).await.ok();
    read_all(&mut stream).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_does_not_wait_for_who_says_nothing() {
    let installation = Installation::start(Options {
        configure: |config| {
            config.bounds.http_max_connections = 40;
            config.bounds.http_first_request_timeout = Duration::from_millis(500);
        },
        ..Options::default()
    })
    .await;
    let mut silent = connect(installation.service_address(0), 80).await;
    let answer = ask(TcpStream::connect(installation.service_address(0))
        .await
        .expect("a connection"))
    .await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    for stream in &mut silent {
        assert_eq!(read_all(stream).await, "");
    }
    let management = installation.services[0].management_address();
    let get = async |path: &str| {
        http::send(
            Method::GET,
            &format!("http://{management}{path}"),
            None,
            "",
            String::new(),
        )
        .await
    };
    let health = get("/health").await;
    assert_eq!((health.status, health.body.as_str()), (200, "ready"));
    assert!(get("/metrics").await.body.contains("\nomgservers_connections "));
    installation.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_waits_for_a_call_that_comes_slowly() {
    let installation = Installation::start(Options {
        configure: |config| {
            config.bounds.http_first_request_timeout = Duration::from_millis(400);
            config.bounds.http_idle_timeout = Duration::from_millis(400);
        },
        ..Options::default()
    })
    .await;
    let mut stream = connect(installation.service_address(0), 1).await.remove(0);
    stream.write_all(head().as_bytes()).await.expect("it is open");
    for byte in BODY.bytes() {
        tokio::time::sleep(Duration::from_millis(100)).await;
        stream.write_all(&[byte]).await.expect("it is open");
    }
    let answer = read_all(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    installation.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_has_so_many_connections_to_the_service_unless_it_is_a_trusted_proxy() {
    let turned_away = async |installation: &Installation| {
        let streams = connect(installation.service_address(0), 60).await;
        let answers = futures_util::future::join_all(streams.into_iter().map(|mut stream| async move {
            // All are open before the first is done.
            let said = head();
            stream.write_all(said.as_bytes()).await.ok();
            tokio::time::sleep(Duration::from_secs(1)).await;
            stream.write_all(BODY.as_bytes()).await.ok();
            read_all(&mut stream).await
        }));
        answers.await.iter().filter(|answer| answer.is_empty()).count()
    };
    let installation = Installation::start(Options {
        configure: |config| {
            config.bounds.http_max_connections_per_address = 30;
            config.trusted_proxies = "".parse().expect("no proxies");
        },
        ..Options::default()
    })
    .await;
    // The dispatcher is at the same address and has some, too.
    assert!(turned_away(&installation).await >= 30);
    eventually("there is room again", || async {
        let stream = TcpStream::connect(installation.service_address(0)).await.ok()?;
        ask(stream).await.starts_with("HTTP/1.1 200 OK").then_some(())
    })
    .await;
    installation.stop().await;

    let installation = Installation::start(Options {
        configure: |config| config.bounds.http_max_connections_per_address = 30,
        ..Options::default()
    })
    .await;
    assert_eq!(turned_away(&installation).await, 0);
    installation.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_does_not_wait_for_half_a_request() {
    let installation = Installation::start(Options::default()).await;
    let service = &installation.services[0];
    let mut halves = Vec::new();
    for address in [service.address(), service.management_address()] {
        let mut stream = connect(address, 1).await.remove(0);
        // The first is answered, so that the connection is known to be served.
        let whole = "GET /health HTTP/1.1\r\nhost: x\r\n\r\n";
        stream.write_all(whole.as_bytes()).await.expect("it is open");
        assert_ne!(stream.read(&mut [0; 4_096]).await.expect("an answer"), 0);
        stream.write_all(&whole.as_bytes()[..20]).await.expect("it is open");
        halves.push(stream);
        let mut stream = connect(address, 1).await.remove(0);
        stream.write_all(&whole.as_bytes()[..20]).await.expect("it is open");
        halves.push(stream);
    }
    // Nothing tells that half a request has arrived.
    tokio::time::sleep(Duration::from_millis(500)).await;
    timeout(DEADLINE, installation.stop()).await.expect("it stops");
}
