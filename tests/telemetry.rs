//! Traces: one call is one trace from the dispatcher to the service, and nothing secret is in it.

use std::path::Path;
use std::sync::{Arc, Mutex};

use harness::{Server, cluster, free_port};
use omgservers_protocol::client::Client;
use omgservers_protocol::text::Text;
use omgservers_protocol::{Call as _, admin};
use omgservers_service::auth::{Tokens, generate_password};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;

/// What a collector was sent.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<ExportTraceServiceRequest>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        self.0.lock().expect("nobody panics with it").push(request.into_inner());
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    fn start() -> (Self, String) {
        let collector = Self::default();
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], free_port()));
        let serving = tonic::transport::Server::builder()
            .add_service(TraceServiceServer::new(collector.clone()))
            .serve(address);
        tokio::spawn(serving);
        (collector, format!("http://{address}"))
    }

    /// Spans with the names of the servers that sent them.
    fn spans(&self) -> Vec<(String, Span)> {
        let requests = self.0.lock().expect("nobody panics with it");
        let groups = requests.iter().flat_map(|request| &request.resource_spans);
        let spans = groups.flat_map(|group| {
            let attributes = group.resource.iter().flat_map(|resource| &resource.attributes);
            let name = attributes
                .filter(|attribute| attribute.key == "service.name")
                .find_map(|attribute| match &attribute.value.as_ref()?.value {
                    Some(Value::StringValue(name)) => Some(name.clone()),
                    _ => None,
                })
                .unwrap_or_default();
            let spans = group.scope_spans.iter().flat_map(|scope| scope.spans.clone());
            spans.map(move |span| (name.clone(), span))
        });
        spans.collect()
    }
}

/// A service on a database of its own, with proper secrets, as an installation with several machines has it.
async fn start_service(folder: &Path, password: &str, settings: &[(&str, &str)]) -> Server {
    let write = |name: &str, content: &str| {
        let path = folder.join(name);
        std::fs::write(&path, content).expect("it is written");
        path.to_str().expect("a path in UTF-8").to_owned()
    };
    let token_key = write("token.pem", &Tokens::generate_key().expect("a key"));
    let secrets_key = write("secrets.key", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n");
    let database = cluster().await.database().await;
    let data = folder.join("data");
    let own = [
        ("OMGSERVERS_DATA_DIRECTORY", data.to_str().expect("a path in UTF-8")),
        ("OMGSERVERS_DATABASE_URL", &database),
        ("OMGSERVERS_DATABASE_MAX_CONNECTIONS", "12"),
        ("OMGSERVERS_TOKEN_PRIVATE_KEY", &token_key),
        ("OMGSERVERS_SECRETS_KEY", &secrets_key),
        ("OMGSERVERS_BOOTSTRAP_ENABLED", "true"),
        ("OMGSERVERS_BOOTSTRAP_ADMIN_USER_PASSWORD", password),
        ("OMGSERVERS_BOOTSTRAP_DISPATCHER_USER_PASSWORD", password),
    ];
    Server::start("service", folder, &[&own[..], settings].concat())
        .ready()
        .await
}

async fn log_in(base: &str, password: &str) -> String {
    let text = |text: &str| Text::new(text).expect("a short text");
    let call = admin::CreateToken {
        user: text("admin"),
        password: text(password),
    };
    let client = Client::new(base).expect("the address is plain HTTP");
    client.send(&call).await.expect("the admin logs in").raw_token
}

#[tokio::test(flavor = "multi_thread")]
async fn one_call_is_one_trace_from_the_dispatcher_to_the_service_without_secrets() {
    rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (collector, endpoint) = Collector::start();
    let password = generate_password();
    // Quiet logs do not make traces incomplete.
    let traces = [
        ("OMGSERVERS_OTEL_DISABLED", "false"),
        ("OMGSERVERS_OTEL_ENDPOINT", endpoint.as_str()),
        ("OMGSERVERS_LOGGING_APP_LOGS_LEVEL", "ERROR"),
    ];
    let service = start_service(folder.path(), &password, &traces).await;
    let own = [
        ("OMGSERVERS_SERVICE_URI", service.base.as_str()),
        ("OMGSERVERS_DISPATCHER_USER_PASSWORD", &password),
        ("OMGSERVERS_APPLICATION_NAME", "edge"),
    ];
    let dispatcher = Server::start("dispatcher", folder.path(), &[&own[..], &traces].concat());
    let dispatcher = dispatcher.ready().await;

    let token = log_in(&dispatcher.base, &password).await;
    let (trace, caller) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).build();
    let answer = client
        .expect("a client")
        .post(format!(
            "{}{}?ws_token=query-secret",
            dispatcher.base,
            admin::GenerateId::ROUTE
        ))
        .header("traceparent", format!("00-{trace}-{caller}-01"))
        .bearer_auth(&token)
        .json(&admin::GenerateId {})
        .send();
    assert!(answer.await.expect("an answer").status().is_success());
    // What was gathered is sent at the stop, not lost.
    dispatcher.stop().await;
    service.stop().await;

    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let spans = collector.spans();
    let ours = |server: &str| {
        let found = spans
            .iter()
            .find(|(name, span)| name == server && hex(&span.trace_id) == trace);
        &found.unwrap_or_else(|| panic!("no span of {server} in {spans:#?}")).1
    };
    let (edge, inside) = (ours("edge"), ours("service"));
    assert_eq!(hex(&edge.parent_span_id), caller);
    assert_eq!(inside.parent_span_id, edge.span_id);
    assert_eq!((edge.name.as_str(), inside.name.as_str()), ("POST", "generate-id"));
    let said = format!("{spans:?}");
    assert!(
        said.contains("create-token") && said.contains("http.response.status_code"),
        "{said}"
    );
    for secret in [password.as_str(), token.as_str(), "query-secret", "Bearer"] {
        assert!(!said.contains(secret), "`{secret}` is in the traces: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_away_costs_nothing_but_a_warning() {
    rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let password = generate_password();
    let endpoint = format!("http://127.0.0.1:{}", free_port());
    let traces = [
        ("OMGSERVERS_OTEL_DISABLED", "false"),
        ("OMGSERVERS_OTEL_ENDPOINT", endpoint.as_str()),
    ];
    let service = start_service(folder.path(), &password, &traces).await;
    let warning = "the collector does not take traces";
    let client = Client::new(&service.base).expect("the address is plain HTTP");
    let client = client.with_token(log_in(&service.base, &password).await);
    harness::eventually("the warning is there", || async {
        client.send(&admin::GenerateId {}).await.expect("an id");
        service.log().contains(warning).then_some(())
    })
    .await;
    let log = service.stop().await;
    assert_eq!(log.matches(warning).count(), 1, "{log}");
}
