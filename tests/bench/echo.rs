//! Both echoes: a game server of the platform that says everything back, and a plain WebSocket server that does.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use fastwebsockets::{FragmentCollector, OpCode, upgrade};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use omgservers_runtime_sdk::{Event, Runtime, Settings};
use omgservers_service::archive::{self, ImageFile};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

/// As which this program is the game server.
pub(crate) const NAME: &str = "echo-runtime";
/// Longer than any bench. A game server whose platform was killed must not stay.
const LIFE: Duration = Duration::from_secs(900);

/// Packs this very program as the image of a game that echoes.
pub(crate) fn pack(folder: &Path) -> Result<String> {
    let path = folder.join("echo.tar");
    let command = ["/bench", NAME].map(str::to_owned);
    let file = ImageFile {
        path: command[0].clone(),
        source: std::env::current_exe()?,
        mode: 0o755,
    };
    archive::write(&path, "bench/echo:1", &command, &[file], &[])?;
    Ok(format!("file://{}", path.display()))
}

/// The game: what a player says over its socket, it hears.
pub(crate) async fn run_runtime() -> Result<()> {
    let mut runtime = Runtime::connect(Settings::from_environment()?).await?;
    runtime.ready();
    let echo = async {
        while let Some(event) = runtime.next().await {
            match event {
                Event::Packet {
                    client, lane, bytes, ..
                } => runtime.send(client, lane, bytes)?,
                Event::Stop => break,
                _ => {}
            }
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(LIFE, echo).await.unwrap_or(Ok(()))
}

/// A WebSocket server on loopback that runs until it is dropped.
pub(crate) struct EchoServer {
    pub(crate) address: SocketAddr,
    _accepting: AbortOnDropHandle<()>,
}

impl EchoServer {
    pub(crate) async fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream));
            }
        });
        Ok(Self {
            address,
            _accepting: AbortOnDropHandle::new(accepting),
        })
    }
}

async fn serve(stream: TcpStream) {
    stream.set_nodelay(true).ok();
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer));
    connection.with_upgrades().await.ok();
}

async fn answer(mut request: Request<Incoming>) -> Result<Response<Empty<Bytes>>, Infallible> {
    let Ok((response, opening)) = upgrade::upgrade(&mut request) else {
        let mut response = Response::new(Empty::new());
        *response.status_mut() = StatusCode::BAD_REQUEST;
        return Ok(response);
    };
    tokio::spawn(async move {
        let Ok(socket) = opening.await else { return };
        let mut socket = FragmentCollector::new(socket);
        while let Ok(frame) = socket.read_frame().await {
            if frame.opcode == OpCode::Close || socket.write_frame(frame).await.is_err() {
                return;
            }
        }
    });
    Ok(response)
}
