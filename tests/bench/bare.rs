//! The least that an HTTP server here can cost: hyper, which reads a request and answers as much as the service does. It says
//! what of the service's figures is the machine's.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

use crate::machine::{self, Process};

/// As which this program is the server.
pub(crate) const NAME: &str = "bare-http";
const READY_WAIT: Duration = Duration::from_secs(30);
const ANSWER: &[u8] = br#"{"id":"790000000000000001"}"#;

/// A process of its own, so that its CPU can be told apart.
pub(crate) struct Bare {
    pub(crate) process: Process,
    pub(crate) address: String,
}

impl Bare {
    pub(crate) async fn start(folder: &Path) -> Result<Self> {
        let port = machine::free_port()?;
        let arguments = [NAME, "--port", &port.to_string()];
        let program = std::env::current_exe()?;
        let mut process = Process::start(&program, &arguments, &[], &folder.join("bare.log"))?;
        let address = format!("127.0.0.1:{port}");
        let deadline = Instant::now() + READY_WAIT;
        while TcpStream::connect(&address).await.is_err() {
            process.check()?;
            ensure!(Instant::now() < deadline, "nobody listens on {address}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(Self { process, address })
    }
}

/// The server; it ends with whoever started it.
pub(crate) async fn serve(port: Option<u16>) -> Result<()> {
    let port = port.context("`--port` is missing")?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer));
        tokio::spawn(connection);
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    request.into_body().collect().await.ok();
    let mut response = Response::new(Full::new(Bytes::from_static(ANSWER)));
    let json = hyper::header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    Ok(response)
}
