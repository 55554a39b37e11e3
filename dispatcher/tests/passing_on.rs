//! What is not the dispatcher's own reaches the service, and its answers come back.

mod support;

use std::time::Duration;

use bytes::Bytes;
use fastwebsockets::OpCode;
use http_body_util::BodyExt as _;
use hyper::Request;
use hyper_util::rt::TokioIo;
use support::{Service, World, close, eventually, request, text};
use tokio::net::{TcpListener, TcpStream};

#[tokio::test(flavor = "multi_thread")]
async fn requests_arrive_with_their_headers_and_body_and_who_sent_them() {
    let world = World::start().await;
    let body = Bytes::from(vec![b'x'; 3_000_000]);
    let asked = Request::post("/service/echo?a=1&b=%20")
        .header("authorization", "Bearer secret")
        .header("connection", "keep-alive, x-private")
        .header("x-private", "for the dispatcher")
        .header("x-forwarded-for", "6.6.6.6")
        .header("traceparent", "00-1-2-03");
    let response = request(world.address, asked, body.clone()).await;
    assert_eq!(response.status().as_u16(), 200);
    let header = |name: &str| response.headers()[name].to_str().unwrap();
    assert_eq!(header("x-method"), "POST");
    assert_eq!(header("x-uri"), "/service/echo?a=1&b=%20");
    let seen: Vec<_> = header("x-headers").split('|').collect();
    let host = format!("host={}", world.address);
    let forwarded_host = format!("x-forwarded-host={}", world.address);
    for expected in [
        "authorization=Bearer secret",
        "traceparent=00-1-2-03",
        "x-forwarded-for=127.0.0.1",
        "x-forwarded-proto=http",
        "content-length=3000000",
        &host,
        &forwarded_host,
    ] {
        assert!(seen.contains(&expected), "{expected} is not in {seen:?}");
    }
    assert!(!seen.iter().any(|header| header.starts_with("x-private")), "{seen:?}");
    assert_eq!(response.body(), &body);
    let unknown = request(world.address, Request::get("/nowhere"), Bytes::new()).await;
    assert_eq!(unknown.status().as_u16(), 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn late_answers_and_answers_in_pieces_pass() {
    let world = World::start().await;
    let late = request(world.address, Request::get("/service/late"), Bytes::new()).await;
    assert_eq!(late.body(), "late");

    let stream = TcpStream::connect(world.address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let asked = Request::get("/service/pieces").header("host", "x");
    let asked = asked.body(http_body_util::Empty::<Bytes>::new()).unwrap();
    let mut answer = sender.send_request(asked).await.unwrap();
    let mut pieces = Vec::new();
    while let Some(frame) = answer.body_mut().frame().await {
        pieces.push(String::from_utf8(frame.unwrap().into_data().unwrap().to_vec()).unwrap());
    }
    assert_eq!(pieces, ["one ", "two ", "three"], "each piece comes when it is sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_too_long_is_refused_whether_its_length_is_told_or_not() {
    let world = World::start().await;
    let longest = Bytes::from(vec![0; 10 * 1024 * 1024]);
    let taken = request(world.address, Request::post("/service/swallow"), longest.clone()).await;
    assert_eq!(taken.body(), &longest.len().to_string());

    // Only the head, so that the answer does not race with the body.
    let told = format!("content-length: {}", longest.len() + 1);
    let (status, _stream) = support::begin(world.address, &told, 0).await;
    assert_eq!(status, "HTTP/1.1 413");

    let (status, _stream) = support::begin(world.address, "transfer-encoding: chunked", 161).await;
    assert_eq!(status, "HTTP/1.1 413");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_is_down_is_replaced_by_another() {
    let (service, address, guard) = Service::start("b").await;
    // Nobody listens there any more.
    let down = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let mut world = World::start_at(service, guard, &[down, address, down], |_| {}).await;
    for length in [0, 10, 200_000] {
        let body = Bytes::from(vec![b'x'; length]);
        let response = request(world.address, Request::post("/service/echo"), body.clone()).await;
        assert_eq!(
            (response.status().as_u16(), &response.headers()["x-instance"]),
            (200, &"b".parse().unwrap())
        );
        assert_eq!(response.body(), &body);
    }

    world.stop_service();
    eventually("the service is down", async || {
        TcpStream::connect(address).await.is_err()
    })
    .await;
    let response = request(world.address, Request::get("/service/echo"), Bytes::new()).await;
    assert_eq!(response.status().as_u16(), 503);
    let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
    assert_eq!(body["qualifier"], "INTERNAL_EXCEPTION_OCCURRED");
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_take_turns() {
    let (service, first, guard) = Service::start("first").await;
    let (_, second, _second_guard) = Service::start("second").await;
    let world = World::start_at(service, guard, &[first, second], |_| {}).await;
    let mut answered = std::collections::BTreeSet::new();
    for _ in 0..4 {
        let response = request(world.address, Request::get("/service/echo"), Bytes::new()).await;
        answered.insert(response.headers()["x-instance"].to_str().unwrap().to_owned());
    }
    assert_eq!(answered.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn sockets_of_the_service_are_piped_through() {
    let world = World::start().await;
    let headers = [("sec-websocket-protocol", "omgservers")];
    let mut socket = support::connect(world.address, "/connector/socket", &headers)
        .await
        .unwrap();
    assert_eq!(socket.connection_header, "Upgrade");
    for round in 0..3 {
        socket.send_text(&format!("round {round}")).await;
        assert_eq!(socket.next().await, text(&format!("round {round}")));
    }
    socket.send(OpCode::Close, &[3, 232]).await;
    assert_eq!(socket.next().await, close(1000, ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn http_2_is_understood() {
    let world = World::start().await;
    let stream = TcpStream::connect(world.address).await.unwrap();
    let executor = hyper_util::rt::TokioExecutor::new();
    let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let asked = Request::post(format!("http://{}/service/echo", world.address));
    let asked = asked
        .body(http_body_util::Full::new(Bytes::from_static(b"hello")))
        .unwrap();
    let answered = tokio::time::timeout(Duration::from_secs(10), sender.send_request(asked)).await;
    let answer = answered.unwrap().unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    assert!(
        answer.headers()["x-headers"]
            .to_str()
            .unwrap()
            .contains(&format!("host={}", world.address))
    );
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "hello");
}
