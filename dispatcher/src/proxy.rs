//! Passes requests on to the service: bodies stream both ways, an instance that cannot be reached is replaced by another,
//! and WebSockets that are not ours are piped through.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::{Body as _, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{self, HeaderValue};
use hyper::http::uri::{Authority, PathAndQuery, Scheme};
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response, StatusCode, Uri, Version};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use omgservers_protocol::Call as _;
use omgservers_protocol::developer::UploadFilesArchive;
use omgservers_protocol::listen::Peer;
use omgservers_protocol::{Qualifier, trace};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::forwarding::{add_forwarded, remove_hop_by_hop, upgrade_of};
use crate::handshake::error;
use crate::{Body, BoxError, Config, Edge};

/// The longest body of a request, as the service itself allows.
const BODY_BYTES_MAX: usize = 10 * 1024 * 1024;

/// The longest body of an archive that is uploaded. The service has its own, smaller limit; here nothing of it is held.
const UPLOAD_BYTES_MAX: usize = 520 * 1024 * 1024;

/// Until an instance accepts a connection.
const CONNECT: Duration = Duration::from_secs(2);

/// Until the service begins to answer; long polls take 20 s. Later, between two pieces of a body.
const ANSWER: Duration = Duration::from_secs(60);

/// The same while an archive is being uploaded.
const UPLOAD_ANSWER: Duration = Duration::from_secs(660);

/// An instance that could not be reached is tried last for so long.
const AVOIDED: Duration = Duration::from_secs(2);

/// A piped connection without a byte for so long is closed; WebSockets are pinged more often.
const PIPE_IDLE: Duration = Duration::from_secs(120);

pub(crate) struct Proxy {
    client: Client<HttpConnector, Body>,
    instances: Vec<Instance>,
    next: AtomicUsize,
    started: Instant,
    trust_forwarded: bool,
    access_logs: bool,
}

struct Instance {
    authority: Authority,
    /// Milliseconds since the start until which it is avoided.
    avoided_until_ms: AtomicU64,
}

impl Proxy {
    pub(crate) fn new(config: &Config) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT));
        connector.set_keepalive(Some(Duration::from_secs(30)));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(20))
            .pool_max_idle_per_host(256)
            .build(connector);
        let instances = config.service_uri.iter().map(|uri| Instance {
            authority: uri.authority().clone(),
            avoided_until_ms: AtomicU64::new(0),
        });
        Self {
            client,
            instances: instances.collect(),
            next: AtomicUsize::new(0),
            started: Instant::now(),
            trust_forwarded: config.trust_forwarded_headers,
            access_logs: config.telemetry.access_logs_enabled,
        }
    }

    /// Gets a small document of the service.
    pub(crate) async fn fetch(&self, path: &'static str) -> anyhow::Result<Bytes> {
        let mut last = anyhow::anyhow!("there is no instance");
        for instance in self.in_order() {
            let body = crate::whole_body(http_body_util::Empty::new());
            let mut request = Request::new(body);
            *request.uri_mut() = uri_at(instance, PathAndQuery::from_static(path));
            match self.client.request(request).await {
                Ok(response) if response.status().is_success() => {
                    let body = Limited::new(response.into_body(), 64 * 1024).collect().await;
                    return Ok(body.map_err(anyhow::Error::from_boxed)?.to_bytes());
                }
                Ok(response) => last = anyhow::anyhow!("`{}` answers {}", instance.authority, response.status()),
                Err(error) => {
                    self.avoid(instance);
                    last = anyhow::Error::new(error).context(format!("`{}` does not answer", instance.authority));
                }
            }
        }
        Err(last)
    }

    /// Every instance once: those in good standing in turn, then the others.
    fn in_order(&self) -> impl Iterator<Item = &Instance> {
        let now_ms = self.started.elapsed().as_millis() as u64;
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let is_avoided = move |instance: &&Instance| instance.avoided_until_ms.load(Ordering::Relaxed) > now_ms;
        let all = move || {
            (0..self.instances.len()).map(move |offset| &self.instances[(first + offset) % self.instances.len()])
        };
        all()
            .filter(move |instance| !is_avoided(instance))
            .chain(all().filter(is_avoided))
    }

    fn avoid(&self, instance: &Instance) {
        let until = self.started.elapsed() + AVOIDED;
        instance
            .avoided_until_ms
            .store(until.as_millis() as u64, Ordering::Relaxed);
    }
}

fn uri_at(instance: &Instance, path: PathAndQuery) -> Uri {
    let mut parts = hyper::http::uri::Parts::default();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = Some(instance.authority.clone());
    parts.path_and_query = Some(path);
    Uri::from_parts(parts).expect("scheme, authority and path make an address")
}

/// So much of a refused body is read, and for so long.
const READ_AWAY_BYTES_MAX: usize = 32 * 1_024 * 1_024;
const READ_AWAY_WAIT: Duration = Duration::from_secs(10);

/// Passes a request on and its answer back, and the trace along with it.
pub(crate) async fn pass_on(edge: &Arc<Edge>, peer: Peer, mut request: Request<Incoming>) -> Response<Body> {
    use tracing::Instrument as _;
    if !trace::is_on() {
        return pass_on_untraced(edge, peer, request).await;
    }
    let (method, path) = (request.method().as_str(), request.uri().path());
    let span = tracing::info_span!(
        "pass_on",
        otel.name = method,
        otel.kind = "server",
        http.request.method = method,
        url.path = path
    );
    trace::go_on(&span, request.headers());
    trace::pass_on(&span, request.headers_mut());
    let response = pass_on_untraced(edge, peer, request).instrument(span.clone()).await;
    trace::answered(&span, response.status().as_u16());
    response
}

async fn pass_on_untraced(edge: &Arc<Edge>, peer: Peer, request: Request<Incoming>) -> Response<Body> {
    let started = Instant::now();
    let logged = edge
        .proxy
        .access_logs
        .then(|| (request.method().clone(), request.uri().path().to_owned()));
    let response = match try_to_pass_on(edge, peer, request).await {
        Ok(response) => {
            edge.meters.passed_on.increment(1);
            response
        }
        Err(failure) => {
            edge.meters.not_passed_on.increment(1);
            failure.into_response()
        }
    };
    if let Some((method, path)) = logged {
        let duration_ms = started.elapsed().as_millis() as u64;
        tracing::info!(%method, path, status = response.status().as_u16(), duration_ms, "request");
    }
    response
}

/// Why a request was not answered by the service.
#[derive(Debug)]
enum Failure {
    TooLong,
    Unreachable,
    Late,
    Broken,
}

impl Failure {
    fn into_response(self) -> Response<Body> {
        let (status, qualifier, message) = match self {
            Self::TooLong => (
                StatusCode::PAYLOAD_TOO_LARGE,
                Qualifier::WrongRequest,
                "the body is too long",
            ),
            Self::Unreachable => (
                StatusCode::SERVICE_UNAVAILABLE,
                Qualifier::InternalExceptionOccurred,
                "the service cannot be reached",
            ),
            Self::Late => (
                StatusCode::GATEWAY_TIMEOUT,
                Qualifier::InternalExceptionOccurred,
                "the service did not answer in time",
            ),
            Self::Broken => (
                StatusCode::BAD_GATEWAY,
                Qualifier::InternalExceptionOccurred,
                "the connection to the service was lost",
            ),
        };
        error(status, qualifier, message).map(crate::whole_body)
    }
}

/// Reads a refused body to its end, within bounds: a sender that is cut off while it sends does not hear why.
async fn read_away(mut body: Incoming) {
    let reading = async {
        let mut left = READ_AWAY_BYTES_MAX;
        while let Some(Ok(frame)) = body.frame().await {
            let length = frame.data_ref().map_or(0, Bytes::len);
            if length > left {
                break;
            }
            left -= length;
        }
    };
    timeout(READ_AWAY_WAIT, reading).await.ok();
}

async fn try_to_pass_on(
    edge: &Arc<Edge>,
    peer: Peer,
    mut request: Request<Incoming>,
) -> Result<Response<Body>, Failure> {
    let is_upload = request.uri().path() == UploadFilesArchive::ROUTE;
    let (bytes_max, answer_max) = match is_upload {
        true => (UPLOAD_BYTES_MAX, UPLOAD_ANSWER),
        false => (BODY_BYTES_MAX, ANSWER),
    };
    if request.body().size_hint().lower() > bytes_max as u64 {
        read_away(request.into_body()).await;
        return Err(Failure::TooLong);
    }
    let upgrade = upgrade_of(request.headers());
    let on_upgrade = upgrade.is_some().then(|| hyper::upgrade::on(&mut request));
    let (mut head, body) = request.into_parts();
    let path = head
        .uri
        .path_and_query()
        .cloned()
        .unwrap_or(PathAndQuery::from_static("/"));
    if !head.headers.contains_key(header::HOST)
        && let Some(host) = head
            .uri
            .authority()
            .and_then(|host| HeaderValue::from_str(host.as_str()).ok())
    {
        // An HTTP/2 request has no such header.
        head.headers.insert(header::HOST, host);
    }
    remove_hop_by_hop(&mut head.headers);
    add_forwarded(&mut head.headers, peer.address.ip(), edge.proxy.trust_forwarded);
    if let Some(upgrade) = &upgrade {
        head.headers
            .insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        head.headers.insert(header::UPGRADE, upgrade.clone());
    }
    let body = SharedBody::new(body, bytes_max);

    for instance in edge.proxy.in_order() {
        let mut attempt = Request::new(body.clone().boxed());
        *attempt.method_mut() = head.method.clone();
        *attempt.uri_mut() = uri_at(instance, path.clone());
        *attempt.headers_mut() = head.headers.clone();
        match timeout(answer_max, edge.proxy.client.request(attempt)).await {
            Err(_) => return Err(Failure::Late),
            Ok(Ok(response)) => return Ok(answer(edge, peer, on_upgrade, response)),
            Ok(Err(error)) if error.is_connect() && !body.is_touched() => {
                edge.proxy.avoid(instance);
                tracing::warn!(instance = %instance.authority, "an instance of the service cannot be reached");
            }
            Ok(Err(error)) if is_too_long(&error) => return Err(Failure::TooLong),
            Ok(Err(error)) => {
                tracing::warn!(instance = %instance.authority, %error, "the connection to the service was lost");
                return Err(Failure::Broken);
            }
        }
    }
    Err(Failure::Unreachable)
}

/// Makes an answer of the service ours.
fn answer(
    edge: &Arc<Edge>,
    peer: Peer,
    on_upgrade: Option<OnUpgrade>,
    mut response: Response<Incoming>,
) -> Response<Body> {
    let upgrade = upgrade_of(response.headers());
    *response.version_mut() = Version::default();
    if response.status() == StatusCode::SWITCHING_PROTOCOLS
        && let (Some(ours), Some(upgrade)) = (on_upgrade, upgrade)
    {
        let theirs = hyper::upgrade::on(&mut response);
        edge.tasks.spawn(pipe(edge.clone(), peer, ours, theirs));
        remove_hop_by_hop(response.headers_mut());
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, upgrade);
        return response.map(|_| crate::whole_body(http_body_util::Empty::new()));
    }
    remove_hop_by_hop(response.headers_mut());
    response.map(|body| tower_http::timeout::TimeoutBody::new(ANSWER, body).boxed())
}

fn is_too_long(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<LengthLimitError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// A request's body that survives an attempt which never began to read it.
#[derive(Clone)]
struct SharedBody(Arc<Mutex<OneBody>>);

struct OneBody {
    body: Limited<Incoming>,
    touched: bool,
}

impl SharedBody {
    fn new(body: Incoming, bytes_max: usize) -> Self {
        Self(Arc::new(Mutex::new(OneBody {
            body: Limited::new(body, bytes_max),
            touched: false,
        })))
    }

    fn is_touched(&self) -> bool {
        self.lock().touched
    }

    fn lock(&self) -> MutexGuard<'_, OneBody> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl hyper::body::Body for SharedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut shared = self.lock();
        shared.touched = true;
        Pin::new(&mut shared.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.lock().body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.lock().body.size_hint()
    }
}

/// Carries bytes between two switched connections until both are done.
async fn pipe(edge: Arc<Edge>, peer: Peer, ours: OnUpgrade, theirs: OnUpgrade) {
    let both = async { tokio::try_join!(ours, theirs) };
    let Ok(Ok((ours, theirs))) = timeout(CONNECT * 5, both).await else {
        return;
    };
    let (our_read, our_write) = tokio::io::split(TokioIo::new(ours));
    let (their_read, their_write) = tokio::io::split(TokioIo::new(theirs));
    let both_ways = async { tokio::join!(pump(our_read, their_write), pump(their_read, our_write)) };
    edge.stopping.run_until_cancelled(both_ways).await;
    drop(peer);
}

async fn pump(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
    let mut buffer = vec![0; 8 * 1024];
    while let Ok(Ok(count @ 1..)) = timeout(PIPE_IDLE, from.read(&mut buffer)).await
        && let Ok(Ok(())) = timeout(ANSWER, to.write_all(&buffer[..count])).await
        && let Ok(Ok(())) = timeout(ANSWER, to.flush()).await
    {}
    let _ = timeout(CONNECT, to.shutdown()).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_that_failed_is_tried_last() {
        let uris = ["http://a", "http://b", "http://c"].map(|uri| uri.parse().unwrap());
        let proxy = Proxy::new(&Config::for_tests(uris.to_vec(), "x"));
        let order = || {
            proxy
                .in_order()
                .map(|instance| instance.authority.host())
                .collect::<String>()
        };
        assert_eq!([order(), order(), order(), order()], ["abc", "bca", "cab", "abc"]);
        proxy.avoid(&proxy.instances[2]);
        assert_eq!([order(), order()], ["bac", "abc"]);
    }
}
