//! Too much is refused: requests of one address, of one user, wrong passwords. Others do not notice.

use std::time::Duration;

use harness::{Installation, Options, Studio, eventually};
use omgservers_protocol::id::RuntimeId;
use omgservers_protocol::token::Role;
use omgservers_protocol::{Call, admin, developer, dispatcher, player, runtime, support};
use omgservers_service::auth;
use reqwest::Method;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};

struct Answer {
    status: u16,
    qualifier: String,
    headers: HeaderMap,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("it is text"))
    }

    fn retry_after_s(&self) -> u64 {
        self.header("retry-after")
            .expect("it says when")
            .parse()
            .expect("it is in seconds")
    }
}

async fn send(method: Method, url: String, headers: &[(&str, &str)], body: &Value) -> Answer {
    rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).build();
    let mut request = client.expect("a client").request(method, url).json(body);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = request.send().await.expect("an answer");
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let body: Value = serde_json::from_slice(&response.bytes().await.expect("a body")).unwrap_or_default();
    let qualifier = body["qualifier"].as_str().unwrap_or_default().to_owned();
    Answer {
        status,
        qualifier,
        headers,
    }
}

/// To the service itself, as if a proxy on this machine passed it on for `address`.
async fn from(installation: &Installation, address: &str, route: &str, body: &Value) -> Answer {
    let url = format!("http://{}{route}", installation.service_address(0));
    send(Method::POST, url, &[("x-forwarded-for", address)], body).await
}

async fn ping(installation: &Installation, address: &str) -> Answer {
    from(
        installation,
        address,
        player::PingService::ROUTE,
        &json!({"message": "ping"}),
    )
    .await
}

fn check_refusal(answer: &Answer) {
    assert_eq!((answer.status, answer.qualifier.as_str()), (429, "TOO_MANY_REQUESTS"));
    assert!(answer.retry_after_s() >= 1);
}

/// Asks until it is refused, which must happen soon.
async fn until_refused<F: Future<Output = Answer>>(ask: impl Fn() -> F) -> Answer {
    for _ in 0..100 {
        let answers = futures_util::future::join_all((0..20).map(|_| ask())).await;
        if let Some(refused) = answers.into_iter().find(|answer| answer.status != 200) {
            return refused;
        }
    }
    panic!("2000 requests were answered");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_asks_too_much_is_told_to_wait_and_others_are_not() {
    let installation = Installation::start(Options {
        configure: |config| config.rate_limit_address = 5,
        ..Options::default()
    })
    .await;
    let refused = until_refused(|| ping(&installation, "203.0.113.7")).await;
    check_refusal(&refused);
    assert_eq!(
        refused.header("access-control-allow-origin"),
        Some("*"),
        "a page may read it"
    );
    assert_eq!(ping(&installation, "203.0.113.8").await.status, 200);
    eventually("the address may ask again", || async {
        (ping(&installation, "203.0.113.7").await.status == 200).then_some(())
    })
    .await;
    // Whatever somebody outside says about himself: the dispatcher knows the address.
    let url = format!("{}{}", installation.base, player::PingService::ROUTE);
    let body = json!({"message": "ping"});
    let number = std::sync::atomic::AtomicU8::new(0);
    let refused = until_refused(|| {
        let number = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (url, body) = (url.clone(), body.clone());
        async move {
            let address = format!("198.51.100.{number}");
            send(Method::POST, url, &[("x-forwarded-for", &address)], &body).await
        }
    })
    .await;
    check_refusal(&refused);
    installation.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_asks_too_much_is_told_to_wait_and_others_are_not() {
    let installation = Installation::start(Options {
        configure: |config| config.rate_limit_user = 5,
        ..Options::default()
    })
    .await;
    let users = [1, 2].map(|user| {
        let token = installation.services[0]
            .app()
            .tokens
            .for_user(user.into(), Role::Admin, 0);
        format!("Bearer {token}")
    });
    let url = format!("{}{}", installation.base, admin::GenerateId::ROUTE);
    let generate = |user: usize| {
        let (url, token) = (url.clone(), users[user].clone());
        async move { send(Method::POST, url, &[("authorization", &token)], &json!({})).await }
    };
    check_refusal(&until_refused(|| generate(0)).await);
    assert_eq!(generate(1).await.status, 200);
    eventually("the user may ask again", || async {
        (generate(0).await.status == 200).then_some(())
    })
    .await;
    installation.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_passwords_make_one_wait_longer_and_longer_and_nobody_else() {
    let installation = Installation::start(Options::default()).await;
    let studio = Studio::open(&installation).await;
    let player = installation
        .client()
        .send(&player::CreateUser {})
        .await
        .expect("a player");
    let (runtime, runtime_password) = insert_runtime(&installation).await;
    let by_name = |user: &str| json!({"user": user, "password": user});
    let by_id = |id: String, password: &str| json!({"user_id": id, "password": password});
    let logins = [
        (admin::CreateToken::ROUTE, by_name("admin")),
        (support::CreateToken::ROUTE, by_name("support")),
        (dispatcher::CreateToken::ROUTE, by_name("dispatcher")),
        (
            developer::CreateToken::ROUTE,
            by_id(studio.user.to_string(), &studio.password),
        ),
        (
            player::CreateToken::ROUTE,
            by_id(player.user_id.to_string(), &player.password),
        ),
        (
            runtime::CreateToken::ROUTE,
            json!({"runtime_id": runtime.to_string(), "password": runtime_password}),
        ),
    ];
    let waiting = logins.iter().map(async |(route, right)| {
        let mut wrong = right.clone();
        wrong["password"] = json!("wrong");
        let try_wrong = async || from(&installation, "203.0.113.7", route, &wrong).await;
        let try_right = async |address: &str| from(&installation, address, route, right).await;
        assert_eq!(try_right("203.0.113.7").await.status, 200, "{route}");
        for _ in 0..3 {
            let answer = try_wrong().await;
            assert_eq!(
                (answer.status, answer.qualifier.as_str()),
                (401, "WRONG_CREDENTIALS"),
                "{route}"
            );
        }
        // Neither is looked at now, and asking does not make the wait longer.
        check_refusal(&try_wrong().await);
        check_refusal(&try_right("203.0.113.7").await);
        // Somebody at another address is not bothered, so nobody can lock a user out.
        assert_eq!(try_right("203.0.113.8").await.status, 200, "{route}");
        let refused = eventually("a fourth password is looked at", || async {
            let answer = try_wrong().await;
            (answer.status == 401).then_some(())
        });
        refused.await;
        let answer = try_wrong().await;
        check_refusal(&answer);
        assert_eq!(answer.retry_after_s(), 2, "{route}");
        // The right one makes up for all of them.
        eventually("the right password is looked at", || async {
            (try_right("203.0.113.7").await.status == 200).then_some(())
        })
        .await;
        for _ in 0..3 {
            assert_eq!(try_wrong().await.status, 401, "{route}");
        }
    });
    futures_util::future::join_all(waiting).await;
    installation.stop().await;
}

/// A runtime that somebody has started, as far as its login is concerned.
async fn insert_runtime(installation: &Installation) -> (RuntimeId, String) {
    let app = installation.services[0].app();
    let id: RuntimeId = app.ids.mint();
    let password = auth::generate_password();
    let mut tx = app.db.begin(id.get()).await.expect("a transaction");
    sqlx::query(
        "insert into runtime (id, deployment_id, tenant_id, project_id, stage_id, version_id, venue_id, qualifier, config, \
         image, cpu_limit, memory_limit, state, password_hash) \
         values ($1, 1, 1, 1, 1, 1, 1, 'LOBBY', '{}', 'none', 1, 1, 'ENDED', $2)",
    )
    .bind(id)
    .bind(auth::hash_generated(&password))
    .execute(&mut *tx)
    .await
    .expect("a runtime");
    tx.commit().await.expect("it is kept");
    (id, password)
}

#[tokio::test(flavor = "multi_thread")]
async fn many_wrong_passwords_at_once_do_not_outrun_the_count() {
    let installation = Installation::start(Options::default()).await;
    let body = json!({"user": "admin", "password": "wrong"});
    let tries = (0..64).map(|_| from(&installation, "203.0.113.7", admin::CreateToken::ROUTE, &body));
    let answers = futures_util::future::join_all(tries).await;
    let looked_at = answers.iter().filter(|answer| answer.status == 401).count();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    assert!(
        (3..=3 + cores).contains(&looked_at),
        "{looked_at} passwords were looked at"
    );
    answers
        .iter()
        .filter(|answer| answer.status != 401)
        .for_each(check_refusal);
    installation.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_other_sites_may_call_as_far_as_configured() {
    let preflight = async |installation: &Installation, origin: &str| {
        let url = format!("{}{}", installation.base, player::CreateUser::ROUTE);
        let headers = [
            ("origin", origin),
            ("access-control-request-method", "POST"),
            ("access-control-request-headers", "authorization,content-type"),
        ];
        send(Method::OPTIONS, url, &headers, &json!({})).await
    };
    let open = Installation::start(Options::default()).await;
    let answer = preflight(&open, "https://play.example").await;
    assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
    assert_eq!(
        answer.header("access-control-allow-headers"),
        Some("authorization,content-type")
    );
    assert_eq!(answer.header("access-control-allow-methods"), Some("POST"));
    assert_eq!(answer.header("access-control-allow-credentials"), None);
    open.stop().await;

    let closed = Installation::start(Options {
        configure: |config| {
            config.http_cors_origins = "https://play.example,https://other.example".parse().expect("two sites");
        },
        ..Options::default()
    })
    .await;
    for (origin, allowed) in [
        ("https://play.example", Some("https://play.example")),
        ("https://other.example", Some("https://other.example")),
        ("https://evil.example", None),
        ("http://play.example", None),
    ] {
        let answer = preflight(&closed, origin).await;
        assert_eq!(answer.header("access-control-allow-origin"), allowed, "{origin}");
    }
    closed.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_players_behind_one_address_are_normal() {
    let installation = Installation::start(Options::default()).await;
    // What they send in a second while they play; the limit is on the rate, so it is for this long.
    let begun = std::time::Instant::now();
    let answers = futures_util::future::join_all((0..500).map(|_| ping(&installation, "203.0.113.7"))).await;
    assert!(answers.iter().all(|answer| answer.status == 200));
    assert!(
        begun.elapsed() < Duration::from_secs(60),
        "it took {:?}",
        begun.elapsed()
    );
    installation.stop().await;
}
