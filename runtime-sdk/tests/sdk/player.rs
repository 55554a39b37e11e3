//! A player over real sockets, against a service that knows one player and a dispatcher that echoes.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use fastwebsockets::{Frame, OpCode};
use omgservers_runtime_sdk::Error;
use omgservers_runtime_sdk::player::{Client, Event, Player, Service};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

#[derive(Default)]
struct World {
    waiting: Vec<Value>,
    next_id: u64,
    arrived: Vec<Value>,
    lost_replies: u32,
    logins: u32,
    oldest_token: u32,
    clients: u64,
    renewals: u32,
    sockets: u32,
    open_sockets: u32,
    used_tokens: HashSet<String>,
}

#[derive(Clone, Default)]
struct Fake {
    world: Arc<Mutex<World>>,
    changed: Arc<Notify>,
    /// Ends the sockets that are open.
    cut: Arc<Notify>,
}

impl Fake {
    async fn start() -> (Self, String) {
        let fake = Self::default();
        let request = |name: &str| format!("/service/v1/entrypoint/player/request/{name}");
        let router = Router::new()
            .route(
                &request("create-user"),
                post(async || Json(json!({"user_id": "3", "password": "secret"}))),
            )
            .route(&request("create-token"), post(create_token))
            .route(&request("create-client"), post(create_client))
            .route(&request("interchange"), post(interchange))
            .route(&request("renew-connection"), post(renew))
            .route("/dispatcher/v1/entrypoint/websocket/endpoint", get(open_socket))
            .with_state(fake.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        (fake, url)
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    fn tell(&self, qualifier: &str, body: Value) {
        let mut world = self.world();
        world.next_id += 1;
        let id = world.next_id.to_string();
        world
            .waiting
            .push(json!({"id": id, "qualifier": qualifier, "body": body}));
        self.changed.notify_waiters();
    }

    fn assign(&self, runtime: &str, qualifier: &str) {
        let config = json!({"lobby_config": null, "match_config": null, "version_config": {"modes": []}});
        self.tell(
            "RUNTIME_ASSIGNMENT_MESSAGE",
            json!({"runtime_id": runtime, "runtime_qualifier": qualifier, "runtime_config": config}),
        );
    }

    fn upgrade(&self, token: &str) {
        let config = json!({"ws_token": token});
        let body = json!({"client_id": "7", "protocol": "DISPATCHER", "web_socket_config": config});
        self.tell("CONNECTION_UPGRADE_MESSAGE", body);
    }

    async fn until(&self, what: &str, is_true: impl Fn(&World) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(15);
        while !is_true(&self.world()) {
            assert!(Instant::now() < deadline, "waited in vain until {what}");
            let _ = timeout(Duration::from_millis(20), self.changed.notified()).await;
        }
    }
}

fn refuse(status: StatusCode, qualifier: &str) -> Response {
    (
        status,
        Json(json!({"qualifier": qualifier, "message": "as the test wants"})),
    )
        .into_response()
}

async fn create_token(State(fake): State<Fake>, Json(request): Json<Value>) -> Response {
    if request["password"] != "secret" {
        return refuse(StatusCode::UNAUTHORIZED, "WRONG_CREDENTIALS");
    }
    let mut world = fake.world();
    world.logins += 1;
    Json(json!({"raw_token": format!("api-{}", world.logins)})).into_response()
}

async fn create_client(State(fake): State<Fake>, Json(request): Json<Value>) -> Response {
    if request["stage"] != "prod" {
        return refuse(StatusCode::NOT_FOUND, "DEPLOYMENT_NOT_FOUND");
    }
    let mut world = fake.world();
    world.clients += 1;
    Json(json!({"client_id": (6 + world.clients).to_string()})).into_response()
}

async fn interchange(State(fake): State<Fake>, headers: HeaderMap, Json(request): Json<Value>) -> Response {
    let token = headers["authorization"]
        .to_str()
        .unwrap()
        .trim_start_matches("Bearer api-");
    let until = Instant::now() + Duration::from_millis(request["wait_ms"].as_u64().unwrap_or_default());
    {
        let mut world = fake.world();
        if token.parse::<u32>().unwrap() < world.oldest_token {
            return refuse(StatusCode::UNAUTHORIZED, "WRONG_CREDENTIALS");
        }
        world
            .arrived
            .extend(request["outgoing_messages"].as_array().unwrap().iter().cloned());
        let consumed = request["consumed_messages"].as_array().unwrap().clone();
        world.waiting.retain(|message| !consumed.contains(&message["id"]));
        if world.lost_replies > 0 {
            world.lost_replies -= 1;
            return refuse(StatusCode::BAD_GATEWAY, "INTERNAL_EXCEPTION_OCCURRED");
        }
    }
    loop {
        let changed = fake.changed.notified();
        {
            let world = fake.world();
            if !world.waiting.is_empty() || Instant::now() >= until {
                return Json(json!({"incoming_messages": world.waiting})).into_response();
            }
        }
        let _ = tokio::time::timeout_at(until, changed).await;
    }
}

async fn renew(State(fake): State<Fake>) -> Response {
    let mut world = fake.world();
    world.renewals += 1;
    Json(json!({"runtime_id": "2", "ws_token": format!("renewed-{}", world.renewals)})).into_response()
}

async fn open_socket(State(fake): State<Fake>, mut request: Request) -> Response {
    let token = request.uri().query().unwrap_or_default().to_owned();
    if !token.starts_with("ws_token=") || !fake.world().used_tokens.insert(token) {
        return refuse(StatusCode::UNAUTHORIZED, "WRONG_CREDENTIALS");
    }
    let protocol = request.headers()["sec-websocket-protocol"].clone();
    assert_eq!(protocol, "omgservers");
    let (mut response, upgraded) = fastwebsockets::upgrade::upgrade(&mut request).unwrap();
    response.headers_mut().insert("sec-websocket-protocol", protocol);
    tokio::spawn(async move {
        let mut socket = upgraded.await.unwrap();
        {
            let mut world = fake.world();
            world.sockets += 1;
            world.open_sockets += 1;
        }
        let echo = async {
            while let Ok(frame) = socket.read_frame().await {
                match frame.opcode {
                    OpCode::Text if *frame.payload == *b"kick me" => {
                        socket.write_frame(Frame::close(1008, b"as you wish")).await.unwrap();
                    }
                    OpCode::Text | OpCode::Binary => socket.write_frame(frame).await.unwrap(),
                    OpCode::Close => break,
                    _ => {}
                }
            }
        };
        tokio::select! {
            () = echo => {}
            () = fake.cut.notified() => {}
        }
        fake.world().open_sockets -= 1;
        fake.changed.notify_waiters();
    });
    response.map(|_| axum::body::Body::empty()).into_response()
}

async fn enter(url: &str) -> Client {
    let player = Player::sign_up(url).await.unwrap();
    player.create_client("acme", "shooter", "prod").await.unwrap()
}

async fn next(client: &mut Client) -> Event {
    let event = timeout(Duration::from_secs(15), client.next()).await;
    event.expect("an event within 15 s").expect("an event")
}

async fn echo(client: &mut Client, word: &str) {
    client.send_text(word).unwrap();
    let event = next(client).await;
    assert!(
        matches!(&event, Event::Packet { text: true, bytes } if *bytes == word),
        "{event:?}"
    );
}

#[tokio::test]
async fn a_player_signs_up_enters_and_talks_through_the_service() {
    let (fake, url) = Fake::start().await;
    let player = Player::sign_up(&url).await.unwrap();
    let error = player.create_client("acme", "shooter", "test").await.unwrap_err();
    assert!(
        matches!(&error, Error::Refused(reason) if reason.contains("DeploymentNotFound")),
        "{error}"
    );
    let mut client = player.create_client("acme", "shooter", "prod").await.unwrap();
    assert_eq!(client.id().get(), 7);
    let welcome = json!({"tenant_id": "1", "version_id": "2", "version_created": "2025-01-23T10:00:00.123Z"});
    fake.tell("SERVER_WELCOME_MESSAGE", welcome);
    fake.tell("MATCHMAKER_ASSIGNMENT_MESSAGE", json!({"matchmaker_id": "4"}));
    fake.tell(
        "PROVISIONING_STATUS_MESSAGE",
        json!({"stage": "QUEUED", "position": 3, "detail": null}),
    );
    fake.assign("1", "LOBBY");
    assert!(matches!(next(&mut client).await, Event::Welcome { version_created, .. } if version_created.len() == 24));
    assert!(matches!(
        next(&mut client).await,
        Event::Status { position: Some(3), .. }
    ));
    assert!(matches!(next(&mut client).await, Event::Assigned { runtime, .. } if runtime.get() == 1));
    client.send(&json!({"play": "duel"})).unwrap();
    fake.until("the message is there", |world| world.arrived.len() == 1)
        .await;
    assert_eq!(fake.world().arrived[0]["body"]["data"], json!({"play": "duel"}));
    fake.tell("SERVER_OUTGOING_MESSAGE", json!({"message": "patience"}));
    assert!(matches!(next(&mut client).await, Event::Message(message) if message.get() == "\"patience\""));
    fake.tell("DISCONNECTION_REASON_MESSAGE", json!({"reason": "CLIENT_INACTIVITY"}));
    assert!(matches!(next(&mut client).await, Event::Removed { .. }));
    assert!(client.next().await.is_none());

    let service = Service::new(&url).unwrap();
    assert!(
        Player::sign_in(&service, player.user(), player.password())
            .await
            .is_ok()
    );
    assert!(matches!(
        Player::sign_in(&service, player.user(), "wrong").await,
        Err(Error::Refused(_))
    ));
}

#[tokio::test]
async fn each_message_is_seen_once_and_tokens_are_renewed() {
    let (fake, url) = Fake::start().await;
    let mut client = enter(&url).await;
    for number in 0..20 {
        match number % 5 {
            0 => fake.world().lost_replies += 1,
            1 => {
                let mut world = fake.world();
                world.oldest_token = world.logins + 1;
            }
            _ => {}
        }
        fake.tell("SERVER_OUTGOING_MESSAGE", json!({"message": number}));
        let event = next(&mut client).await;
        assert!(
            matches!(&event, Event::Message(message) if message.get() == number.to_string()),
            "{event:?}"
        );
    }
    fake.until("everything is acknowledged", |world| world.waiting.is_empty())
        .await;
    assert!(client.try_next().is_none());
}

#[tokio::test]
async fn the_socket_follows_the_player_from_runtime_to_runtime() {
    let (fake, url) = Fake::start().await;
    let mut client = enter(&url).await;
    assert!(matches!(client.send_packet(b"x"), Err(Error::NoLink)));
    fake.assign("1", "MATCH");
    fake.upgrade("one");
    assert!(matches!(next(&mut client).await, Event::Assigned { .. }));
    assert!(matches!(next(&mut client).await, Event::Connected));
    echo(&mut client, "hello").await;
    let long = vec![9; 60_000];
    client.send_packet(&long).unwrap();
    assert!(matches!(next(&mut client).await, Event::Packet { text: false, bytes } if bytes == long));

    fake.assign("2", "MATCH");
    assert!(matches!(next(&mut client).await, Event::Disconnected { .. }));
    assert!(matches!(next(&mut client).await, Event::Assigned { .. }));
    fake.until("the old socket is closed", |world| world.open_sockets == 0)
        .await;
    fake.upgrade("two");
    assert!(matches!(next(&mut client).await, Event::Connected));
    echo(&mut client, "hello again").await;
    assert_eq!(fake.world().sockets, 2);
}

#[tokio::test]
async fn a_lost_socket_comes_back_and_one_that_was_closed_on_purpose_does_not() {
    let (fake, url) = Fake::start().await;
    let mut client = enter(&url).await;
    fake.assign("2", "MATCH");
    fake.upgrade("one");
    assert!(matches!(next(&mut client).await, Event::Assigned { .. }));
    assert!(matches!(next(&mut client).await, Event::Connected));
    for renewals in 1..4 {
        echo(&mut client, "still there").await;
        fake.cut.notify_waiters();
        assert!(matches!(next(&mut client).await, Event::Disconnected { .. }));
        assert!(matches!(next(&mut client).await, Event::Connected));
        assert_eq!(fake.world().renewals, renewals);
    }
    client.send_text("kick me").unwrap();
    let event = next(&mut client).await;
    assert!(
        matches!(&event, Event::Disconnected { reason } if reason == "as you wish"),
        "{event:?}"
    );
    fake.tell("SERVER_OUTGOING_MESSAGE", json!({"message": 1}));
    assert!(matches!(next(&mut client).await, Event::Message(_)));
    assert!(!client.is_connected() && fake.world().renewals == 3);
}

#[tokio::test]
async fn many_players_share_one_process() {
    let (fake, url) = Fake::start().await;
    let service = Service::new(&url).unwrap();
    let mut clients = Vec::new();
    for _ in 0..100 {
        let player = Player::sign_up_at(&service).await.unwrap();
        clients.push(player.create_client("acme", "shooter", "prod").await.unwrap());
    }
    for client in &clients {
        client.send("hello").unwrap();
    }
    fake.until("all have spoken", |world| world.arrived.len() == 100).await;
}
