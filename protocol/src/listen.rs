//! How the two servers take connections: so many at a time, so many of one address, and none for long that asks nothing.
//! What is asked and answered is somebody else's.
//!
//! A connection counts as busy from the head of a request until its answer is sent, however long that takes: replies that
//! are held, slow uploads and slow downloads are not cut off, unless the other side takes nothing at all. One that
//! switched protocols is no longer watched, only counted.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::convert::Infallible;
use std::io::IoSlice;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::text;

/// How often the other end of an HTTP/2 connection is asked whether it is still there.
const PING_EVERY: Duration = Duration::from_secs(25);

/// Requests at a time on one HTTP/2 connection.
const STREAMS_MAX: u32 = 256;

/// An answer of which nothing was taken for so many times of being idle is given up. The kernel asks for more only when it
/// has sent much of what it has, so a slow client takes nothing for minutes.
const STALLED: u32 = 4;

/// When the server stops, a connection that is not busy has so long to end.
const FAREWELL: Duration = Duration::from_secs(1);

/// How many connections a server has, and how long one may say nothing.
#[derive(clap::Args, Debug, Clone)]
pub struct Bounds {
    /// Connections at a time, sockets and plain requests together. Further ones wait in the kernel's queue.
    #[arg(long, env = "OMGSERVERS_HTTP_MAX_CONNECTIONS", default_value_t = 15_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub http_max_connections: u32,
    /// Connections at a time from one address (of IPv6: one /64 network), which is no trusted proxy. Further ones are
    /// closed at once; 0 is no limit.
    #[arg(long, env = "OMGSERVERS_HTTP_MAX_CONNECTIONS_PER_ADDRESS", default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub http_max_connections_per_address: u32,
    /// A connection whose first request has not come after so long is closed, such as `20s`.
    #[arg(long, env = "OMGSERVERS_HTTP_FIRST_REQUEST_TIMEOUT", default_value = "20s", value_parser = text::duration)]
    pub http_first_request_timeout: Duration,
    /// A connection without a request for so long after the last one is closed, such as `75s`.
    #[arg(long, env = "OMGSERVERS_HTTP_IDLE_TIMEOUT", default_value = "75s", value_parser = text::duration)]
    pub http_idle_timeout: Duration,
}

/// Where connections come in. It counts them.
pub struct Door {
    bounds: Bounds,
    is_proxy: Box<dyn Fn(IpAddr) -> bool + Send + Sync>,
    permits: Arc<Semaphore>,
    addresses: Mutex<HashMap<IpAddr, u32>>,
    open: AtomicUsize,
    turned_away: AtomicU64,
}

/// The other end of a connection. While it is held, the connection counts.
#[derive(Clone)]
pub struct Peer {
    /// As the kernel knows it: of a proxy its own.
    pub address: SocketAddr,
    _place: Arc<Place>,
}

/// One of the connections that may be open.
struct Place {
    door: Arc<Door>,
    /// Whom it is counted for.
    address: Option<IpAddr>,
    _permit: OwnedSemaphorePermit,
}

impl Door {
    /// Proxies have many connections for many people: they are not bound by address.
    pub fn new(bounds: Bounds, is_proxy: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            permits: Arc::new(Semaphore::new(bounds.http_max_connections as usize)),
            bounds,
            is_proxy: Box::new(is_proxy),
            addresses: Mutex::default(),
            open: AtomicUsize::new(0),
            turned_away: AtomicU64::new(0),
        })
    }

    /// Connections that are open now.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Connections that were closed because their address had too many, since the start.
    pub fn turned_away(&self) -> u64 {
        self.turned_away.load(Ordering::Relaxed)
    }

    /// Takes connections until `stopping` is cancelled and has their requests answered, each connection in one of `tasks`.
    /// Then connections end as soon as what they are busy with is answered: close `tasks` and wait for them.
    pub async fn serve<A, F, B>(
        self: &Arc<Self>,
        listener: TcpListener,
        tasks: &TaskTracker,
        stopping: &CancellationToken,
        answer: A,
    ) where
        A: Fn(Peer, Request<Incoming>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body + Send + Unpin + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_EVERY)
            .max_concurrent_streams(STREAMS_MAX);
        let builder = Arc::new(builder);
        let accepted = async || {
            let permit = self.permits.clone().acquire_owned().await.expect("never closed");
            (listener.accept().await, permit)
        };
        while let Some((accepted, permit)) = stopping.run_until_cancelled(accepted()).await {
            match accepted {
                Ok((stream, address)) => {
                    let Some(place) = self.enter(address.ip(), permit) else {
                        continue;
                    };
                    // What is written is sent at once, not when the kernel has gathered enough.
                    stream.set_nodelay(true).ok();
                    let peer = Peer {
                        address,
                        _place: Arc::new(place),
                    };
                    let (builder, stopping, answer) = (builder.clone(), stopping.clone(), answer.clone());
                    let bounds = self.bounds.clone();
                    tasks.spawn(async move { converse(&bounds, &builder, &stopping, stream, peer, answer).await });
                }
                Err(error) => {
                    tracing::error!(%error, "connections cannot be accepted");
                    // Out of file descriptors, usually: trying at once would spin.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    /// A place for a connection, unless its address has too many.
    fn enter(self: &Arc<Self>, address: IpAddr, permit: OwnedSemaphorePermit) -> Option<Place> {
        let max = self.bounds.http_max_connections_per_address;
        let is_bound = max > 0 && !(self.is_proxy)(address.to_canonical());
        let address = counted(address.to_canonical());
        if is_bound {
            let mut addresses = self.addresses();
            let count = addresses.entry(address).or_default();
            if *count >= max {
                let times = self.turned_away.fetch_add(1, Ordering::Relaxed) + 1;
                if times.is_power_of_two() {
                    tracing::warn!(
                        times,
                        max,
                        "an address has too many connections; further ones are closed"
                    );
                }
                return None;
            }
            *count += 1;
        }
        self.open.fetch_add(1, Ordering::Relaxed);
        Some(Place {
            door: self.clone(),
            address: is_bound.then_some(address),
            _permit: permit,
        })
    }

    fn addresses(&self) -> MutexGuard<'_, HashMap<IpAddr, u32>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.door.open.fetch_sub(1, Ordering::Relaxed);
        if let Some(address) = self.address
            && let Entry::Occupied(mut count) = self.door.addresses().entry(address)
        {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// Whom a connection is counted for. Of IPv6 the network of one household or machine: everybody has a whole one of them.
fn counted(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) & !u128::from(u64::MAX)).into(),
    }
}

/// Answers the requests of one connection until it ends, or has been without one for too long.
async fn converse<A, F, B>(
    bounds: &Bounds,
    builder: &auto::Builder<TokioExecutor>,
    stopping: &CancellationToken,
    stream: TcpStream,
    peer: Peer,
    answer: A,
) where
    A: Fn(Peer, Request<Incoming>) -> F,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let activity = Arc::new(Activity::new());
    let stream = Stream {
        stream,
        activity: activity.clone(),
    };
    let service = service_fn(|request| {
        let mut busy = Busy::new(&activity);
        let answered = answer(peer.clone(), request);
        async move {
            let answer = answered.await;
            busy.wait_for_us(false);
            Ok::<_, Infallible>(answer.map(|body| Answer { body, busy }))
        }
    });
    let mut connection = std::pin::pin!(builder.serve_connection_with_upgrades(TokioIo::new(stream), service));
    let served = tokio::select! {
        biased;
        served = &mut connection => served,
        () = stopping.cancelled() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                served = &mut connection => served,
                _ = activity.ceased(FAREWELL, FAREWELL) => return,
            }
        }
        why = activity.ceased(bounds.http_first_request_timeout, bounds.http_idle_timeout) => {
            if why != Ceased::Idle {
                tracing::debug!(?why, "a connection is given up");
                return;
            }
            // A request that is just coming in is still answered.
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                served = &mut connection => served,
                _ = activity.ceased(bounds.http_idle_timeout, bounds.http_idle_timeout) => return,
            }
        }
    };
    if let Err(error) = served {
        tracing::debug!(error, "a connection broke");
    }
}

/// What a connection is busy with.
struct Activity {
    opened: Instant,
    /// Requests that are under way.
    requests: AtomicU32,
    /// Those of them that wait for us, not for the other side.
    ours: AtomicU32,
    /// Something is to be sent that the kernel does not take yet.
    is_blocked: AtomicBool,
    /// Grows whenever something of an answer is taken.
    steps: AtomicU32,
    /// Milliseconds after `opened` at which the last request ended; `NEVER` before.
    ended_ms: AtomicU64,
}

const NEVER: u64 = u64::MAX;

/// Why a connection is not waited for any longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ceased {
    /// No request ever came.
    Silent,
    /// No further one came.
    Idle,
    /// Nothing of an answer is taken.
    Stalled,
}

impl Activity {
    fn new() -> Self {
        Self {
            opened: Instant::now(),
            requests: AtomicU32::new(0),
            ours: AtomicU32::new(0),
            is_blocked: AtomicBool::new(false),
            steps: AtomicU32::new(0),
            ended_ms: AtomicU64::new(NEVER),
        }
    }

    /// Completes when there has been no request for `idle` after the last one, or none at all for `first`, or when answers
    /// are not taken.
    async fn ceased(&self, first: Duration, idle: Duration) -> Ceased {
        let mut next = Instant::now() + first.min(idle);
        let (mut steps, mut times) = (0, 0);
        loop {
            tokio::time::sleep_until(next).await;
            let now = Instant::now();
            if self.requests.load(Ordering::Acquire) > 0 || self.is_blocked.load(Ordering::Acquire) {
                let seen = std::mem::replace(&mut steps, self.steps.load(Ordering::Acquire));
                let has_moved = seen != steps || self.ours.load(Ordering::Acquire) > 0;
                times = if has_moved { 0 } else { times + 1 };
                if times == STALLED {
                    return Ceased::Stalled;
                }
                next = now + idle;
                continue;
            }
            let why;
            (next, why) = match self.ended_ms.load(Ordering::Acquire) {
                NEVER => (self.opened + first, Ceased::Silent),
                ended_ms => (self.opened + Duration::from_millis(ended_ms) + idle, Ceased::Idle),
            };
            if next <= now {
                return why;
            }
        }
    }

    fn step(&self) {
        self.steps.fetch_add(1, Ordering::AcqRel);
    }
}

/// A request that is under way.
struct Busy {
    activity: Arc<Activity>,
    is_ours: bool,
}

impl Busy {
    fn new(activity: &Arc<Activity>) -> Self {
        activity.requests.fetch_add(1, Ordering::AcqRel);
        activity.ours.fetch_add(1, Ordering::AcqRel);
        Self {
            activity: activity.clone(),
            is_ours: true,
        }
    }

    /// Says who has to do something next.
    fn wait_for_us(&mut self, is_ours: bool) {
        match (self.is_ours, is_ours) {
            (true, false) => self.activity.ours.fetch_sub(1, Ordering::AcqRel),
            (false, true) => self.activity.ours.fetch_add(1, Ordering::AcqRel),
            _ => return,
        };
        self.is_ours = is_ours;
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.wait_for_us(false);
        let ended_ms = self.activity.opened.elapsed().as_millis() as u64;
        self.activity.ended_ms.store(ended_ms, Ordering::Release);
        self.activity.requests.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The body of an answer. Its connection is busy until all of it is on its way.
struct Answer<B> {
    body: B,
    busy: Busy,
}

impl<B: Body + Unpin> Body for Answer<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        self.busy.wait_for_us(polled.is_pending());
        self.busy.activity.step();
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// An accepted connection, which knows whether what is written is taken.
pub struct Stream {
    stream: TcpStream,
    activity: Arc<Activity>,
}

impl Stream {
    /// The connection itself, for when it speaks HTTP no more.
    pub fn into_inner(self) -> TcpStream {
        self.stream
    }

    fn wrote<T>(&self, polled: Poll<std::io::Result<T>>) -> Poll<std::io::Result<T>> {
        self.activity.is_blocked.store(polled.is_pending(), Ordering::Release);
        if polled.is_ready() {
            self.activity.step();
        }
        polled
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.wrote(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.wrote(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::time::timeout;

    use super::*;

    /// Longer than anything takes that works.
    const DEADLINE: Duration = Duration::from_secs(60);

    /// Settings under which nothing is closed during a test.
    fn bounds() -> Bounds {
        Bounds {
            http_max_connections: 1_000,
            http_max_connections_per_address: 0,
            http_first_request_timeout: DEADLINE * 10,
            http_idle_timeout: DEADLINE * 10,
        }
    }

    struct Server {
        door: Arc<Door>,
        address: SocketAddr,
        stopping: CancellationToken,
        serving: tokio::task::JoinHandle<()>,
    }

    impl Server {
        async fn start(bounds: Bounds) -> Self {
            Self::start_behind(bounds, |_| false).await
        }

        /// `/late` is answered by and by, `/much` with more than the kernel holds, and everything with what was sent.
        async fn start_behind(bounds: Bounds, is_proxy: fn(IpAddr) -> bool) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let (door, stopping) = (Door::new(bounds, is_proxy), CancellationToken::new());
            let (entrance, stop) = (door.clone(), stopping.clone());
            let serving = tokio::spawn(async move {
                let tasks = TaskTracker::new();
                entrance.serve(listener, &tasks, &stop, answer).await;
                tasks.close();
                tasks.wait().await;
            });
            Self {
                door,
                address,
                stopping,
                serving,
            }
        }

        async fn connect(&self, said: &[u8]) -> TcpStream {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            stream.write_all(said).await.unwrap();
            stream
        }
    }

    async fn answer(_: Peer, request: Request<Incoming>) -> Response<String> {
        if request.uri().path() == "/late" {
            tokio::time::sleep(Duration::from_millis(1_500)).await;
        }
        if request.uri().path() == "/much" {
            return Response::new("x".repeat(24 << 20) + " bytes");
        }
        let mut body = request.into_body();
        let mut length = 0;
        while let Some(Ok(frame)) = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            length += frame.data_ref().map_or(0, |data| data.len());
        }
        Response::new(format!("{length} bytes"))
    }

    const ASK: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";
    const ASK_LATE: &[u8] = b"GET /late HTTP/1.1\r\nhost: x\r\n\r\n";
    /// An HTTP/2 connection with empty settings.
    const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

    /// Reads an answer, which ends with its length in bytes.
    async fn read_answer(stream: &mut TcpStream) -> String {
        let mut read = Vec::new();
        timeout(DEADLINE, async {
            while !read.ends_with(b" bytes") {
                assert_ne!(
                    stream.read_buf(&mut read).await.unwrap(),
                    0,
                    "closed instead of an answer"
                );
            }
        })
        .await
        .expect("an answer in time");
        String::from_utf8(read).unwrap()
    }

    /// Waits until the other side closes, whatever it says before.
    async fn is_closed(stream: &mut TcpStream) {
        let mut buffer = [0; 1_024];
        let closed = async { while matches!(stream.read(&mut buffer).await, Ok(1..)) {} };
        timeout(DEADLINE, closed).await.expect("it is closed in time");
    }

    #[tokio::test]
    async fn who_says_nothing_gives_his_place_to_others() {
        let server = Server::start(Bounds {
            http_max_connections: 4,
            http_first_request_timeout: Duration::from_millis(300),
            ..bounds()
        })
        .await;
        let openings: [&[u8]; 4] = [b"", b"PRI * HTTP/2.0\r\n", b"GET / HTTP/1.1\r\nho", HTTP2];
        let mut silent = Vec::new();
        for said in openings {
            silent.push(server.connect(said).await);
        }
        let mut other = server.connect(ASK).await;
        assert!(read_answer(&mut other).await.starts_with("HTTP/1.1 200 OK"));
        for mut stream in silent {
            is_closed(&mut stream).await;
        }
        assert_eq!(server.door.open(), 1);
    }

    #[tokio::test]
    async fn a_connection_without_further_requests_is_closed() {
        let server = Server::start(Bounds {
            http_idle_timeout: Duration::from_millis(300),
            http_first_request_timeout: Duration::from_millis(300),
            ..bounds()
        })
        .await;
        let mut stream = server.connect(ASK).await;
        read_answer(&mut stream).await;
        is_closed(&mut stream).await;
        // One that has begun to ask again is not waited for either.
        let mut stream = server.connect(ASK).await;
        read_answer(&mut stream).await;
        stream.write_all(&ASK[..10]).await.unwrap();
        is_closed(&mut stream).await;
    }

    #[tokio::test]
    async fn a_request_may_take_its_time() {
        let server = Server::start(Bounds {
            http_idle_timeout: Duration::from_millis(300),
            http_first_request_timeout: Duration::from_millis(300),
            ..bounds()
        })
        .await;
        let mut late = server.connect(ASK_LATE).await;
        let mut upload = server
            .connect(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 15\r\n\r\n")
            .await;
        for _ in 0..15 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            upload.write_all(b"x").await.unwrap();
        }
        assert!(read_answer(&mut upload).await.ends_with("15 bytes"));
        assert!(read_answer(&mut late).await.ends_with("0 bytes"));
    }

    #[tokio::test]
    async fn an_answer_that_is_taken_slowly_is_sent_and_one_that_is_not_taken_is_given_up() {
        let server = Server::start(Bounds {
            http_idle_timeout: Duration::from_millis(500),
            ..bounds()
        })
        .await;
        let ask = b"GET /much HTTP/1.1\r\nhost: x\r\n\r\n";
        let mut slow = server.connect(ask).await;
        let mut taken = 0;
        let mut buffer = vec![0; 4 << 20];
        while taken < 24 << 20 {
            tokio::time::sleep(Duration::from_millis(30)).await;
            let read = timeout(DEADLINE, slow.read(&mut buffer))
                .await
                .expect("more in time")
                .unwrap();
            assert_ne!(read, 0, "closed after {taken} bytes");
            taken += read;
        }
        let mut stalled = server.connect(ask).await;
        timeout(DEADLINE, async {
            while server.door.open() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await
        .expect("it is given up in time");
        is_closed(&mut stalled).await;
    }

    #[tokio::test]
    async fn one_address_has_so_many_connections_and_a_proxy_any_number() {
        let bounds = Bounds {
            http_max_connections_per_address: 2,
            ..bounds()
        };
        let server = Server::start(bounds.clone()).await;
        let mut first = server.connect(ASK).await;
        read_answer(&mut first).await;
        let mut second = server.connect(ASK).await;
        read_answer(&mut second).await;
        let mut third = TcpStream::connect(server.address).await.unwrap();
        is_closed(&mut third).await;
        assert_eq!((server.door.open(), server.door.turned_away()), (2, 1));
        drop(first);
        timeout(DEADLINE, async {
            while server.door.open() == 2 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await
        .expect("who left is no longer counted");
        let mut fourth = server.connect(ASK).await;
        read_answer(&mut fourth).await;

        let server = Server::start_behind(bounds, |address| address.is_loopback()).await;
        let mut streams = Vec::new();
        for _ in 0..10 {
            let mut stream = server.connect(ASK).await;
            read_answer(&mut stream).await;
            streams.push(stream);
        }
        assert_eq!(server.door.open(), 10);
    }

    #[test]
    fn addresses_are_counted_apart_and_ipv6_by_networks() {
        let door = Door::new(
            Bounds {
                http_max_connections_per_address: 1,
                ..bounds()
            },
            |_| false,
        );
        let enter = |address: &str| {
            let permit = door.permits.clone().try_acquire_owned().unwrap();
            door.enter(address.parse().unwrap(), permit)
        };
        let first = enter("203.0.113.7");
        assert!(first.is_some() && enter("203.0.113.7").is_none() && enter("::ffff:203.0.113.7").is_none());
        let network = enter("2001:db8:1:2::3");
        assert!(network.is_some() && enter("2001:db8:1:2:4::5").is_none());
        assert!(enter("2001:db8:1:3::3").is_some() && enter("203.0.113.8").is_some());
        drop((first, network));
        assert!(enter("203.0.113.7").is_some() && enter("2001:db8:1:2:4::5").is_some());
        assert!(door.addresses().is_empty(), "who has left is forgotten");
        assert_eq!((door.open(), door.permits.available_permits()), (0, 1_000));
    }

    #[tokio::test]
    async fn a_stop_waits_for_what_is_being_answered_and_for_nothing_else() {
        let server = Server::start(bounds()).await;
        let mut idle = server.connect(ASK).await;
        read_answer(&mut idle).await;
        let mut silent = server.connect(b"").await;
        let mut half = server.connect(&ASK[..10]).await;
        let mut late = server.connect(ASK_LATE).await;
        timeout(DEADLINE, async {
            while server.door.open() < 4 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await
        .expect("all are in");
        tokio::time::sleep(Duration::from_millis(200)).await;
        server.stopping.cancel();
        is_closed(&mut idle).await;
        is_closed(&mut silent).await;
        is_closed(&mut half).await;
        assert!(read_answer(&mut late).await.contains("connection: close"));
        timeout(DEADLINE, server.serving).await.expect("it ends").unwrap();
    }
}
