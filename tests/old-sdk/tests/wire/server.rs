//! A server that does exactly what a test tells it to, and remembers what it was sent.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use sha1::{Digest, Sha1};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// How long anything in these tests may take before it counts as never.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

pub(crate) const TEXT: u8 = 1;
pub(crate) const BINARY: u8 = 2;
pub(crate) const CLOSE: u8 = 8;
pub(crate) const PING: u8 = 9;
pub(crate) const PONG: u8 = 10;

/// One request as it came over the wire.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// Number of the connection, from 0.
    pub(crate) connection: usize,
    pub(crate) raw: String,
}

impl Request {
    /// Last part of the path, without the query.
    pub(crate) fn operation(&self) -> &str {
        let path = self.raw.split(' ').nth(1).unwrap();
        path.split('?').next().unwrap().rsplit('/').next().unwrap()
    }

    pub(crate) fn body(&self) -> &str {
        self.raw.split_once("\r\n\r\n").unwrap().1
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.raw
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

pub(crate) struct Server {
    port: u16,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// The handler answers on the stream and says whether the connection goes on. It also gets the number of requests
    /// of the same operation that came before.
    pub(crate) fn start(handler: impl Fn(&Request, usize, &mut TcpStream) -> bool + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(Mutex::new(Vec::<Request>::new()));
        let (handler, log) = (Arc::new(handler), requests.clone());
        thread::spawn(move || {
            for (connection, stream) in listener.incoming().enumerate() {
                let (mut stream, handler, log) = (stream.unwrap(), handler.clone(), log.clone());
                stream.set_read_timeout(Some(LIMIT)).unwrap();
                thread::spawn(move || {
                    while let Some(raw) = read_request(&mut stream) {
                        let request = Request { connection, raw };
                        let before = {
                            let mut log = log.lock().unwrap();
                            log.push(request.clone());
                            log.iter()
                                .filter(|other| other.operation() == request.operation())
                                .count()
                                - 1
                        };
                        if !handler(&request, before, &mut stream) {
                            break;
                        }
                    }
                });
            }
        });
        Server { port, requests }
    }

    /// A service where everything works. The argument answers interchanges: body and number in, lists' content out.
    pub(crate) fn service(interchange: impl Fn(&str, usize) -> String + Send + Sync + 'static) -> Self {
        Self::start(move |request, before, stream| respond_as_service(request, before, stream, &interchange))
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    pub(crate) fn requests_of(&self, operation: &str) -> Vec<Request> {
        self.requests()
            .into_iter()
            .filter(|request| request.operation() == operation)
            .collect()
    }

    /// Waits until so many requests of an operation have come.
    pub(crate) fn wait_for(&self, operation: &str, count: usize) -> Vec<Request> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let requests = self.requests_of(operation);
            if requests.len() >= count {
                return requests;
            }
            assert!(
                Instant::now() < deadline,
                "{count} × {operation} did not come: {requests:#?}"
            );
            thread::sleep(Duration::from_millis(2));
        }
    }
}

pub(crate) fn respond_as_service(
    request: &Request,
    before: usize,
    stream: &mut TcpStream,
    interchange: &(impl Fn(&str, usize) -> String + ?Sized),
) -> bool {
    let runtime = request.raw.contains("/runtime/");
    let body = match request.operation() {
        "ping-service" => r#"{"message":"pong"}"#.to_owned(),
        "create-user" => r#"{"user_id":"7","password":"secret"}"#.to_owned(),
        "create-token" if runtime => r#"{"api_token":"api","ws_token":"ws"}"#.to_owned(),
        "create-token" => r#"{"raw_token":"jwt"}"#.to_owned(),
        "create-client" => r#"{"client_id":"42"}"#.to_owned(),
        "interchange" => {
            let list = if runtime {
                "incoming_commands"
            } else {
                "incoming_messages"
            };
            format!(r#"{{"{list}":[{}]}}"#, interchange(request.body(), before))
        }
        other => panic!("unexpected request {other}"),
    };
    respond(stream, 200, &body)
}

pub(crate) fn respond(stream: &mut TcpStream, status: u16, body: &str) -> bool {
    let head = format!("HTTP/1.1 {status} Whatever\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).is_ok()
}

/// The key that belongs to a handshake.
pub(crate) fn accept_key(request: &Request) -> String {
    let key = request.header("Sec-WebSocket-Key").expect("a handshake has a key");
    BASE64.encode(Sha1::digest(format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11")))
}

/// A correct answer to a handshake.
pub(crate) fn upgrade(request: &Request, stream: &mut TcpStream) {
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: WebSocket\r\nsec-websocket-accept: {}\r\n\r\n",
        accept_key(request)
    );
    stream.write_all(head.as_bytes()).unwrap();
}

pub(crate) fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80 | opcode];
    match u8::try_from(payload.len()) {
        Ok(length @ 0..=125) => frame.push(length),
        _ => {
            frame.push(126);
            frame.extend_from_slice(&u16::try_from(payload.len()).unwrap().to_be_bytes());
        }
    }
    frame.extend_from_slice(payload);
    frame
}

/// The next frame of the client, which must be masked; `None` at the end of the connection.
pub(crate) fn read_frame(stream: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let mut head = [0; 2];
    stream.read_exact(&mut head).ok()?;
    assert_eq!(head[0] & 0xf0, 0x80, "whole frames only");
    assert_eq!(head[1] & 0x80, 0x80, "clients mask");
    let length = match head[1] & 0x7f {
        126 => {
            let mut length = [0; 2];
            stream.read_exact(&mut length).ok()?;
            usize::from(u16::from_be_bytes(length))
        }
        127 => {
            let mut length = [0; 8];
            stream.read_exact(&mut length).ok()?;
            usize::try_from(u64::from_be_bytes(length)).unwrap()
        }
        length => usize::from(length),
    };
    let mut mask = [0; 4];
    stream.read_exact(&mut mask).ok()?;
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).ok()?;
    for (position, byte) in payload.iter_mut().enumerate() {
        *byte ^= mask[position % 4];
    }
    Some((head[0] & 0x0f, payload))
}

fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut raw = Vec::new();
    let mut byte = [0; 1];
    while !raw.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        raw.push(byte[0]);
    }
    let head = String::from_utf8(raw).unwrap();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "))
        .map_or(0, |n| n.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some(head + &String::from_utf8(body).unwrap())
}
