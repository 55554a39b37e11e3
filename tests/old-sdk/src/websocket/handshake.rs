//! The opening handshake, as strict as the engine's.

use super::random;
use crate::http::{Head, ServiceUrl, find, time_left};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use sha1::{Digest, Sha1};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

/// Size of the extension's buffer for the answer to the handshake.
const HANDSHAKE_BYTES_MAX: usize = 64 << 10;
/// From RFC 6455.
const ACCEPT_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// A connection after its handshake.
#[derive(Debug)]
pub(super) struct Opened {
    /// Does not block.
    pub(super) stream: TcpStream,
    /// Bytes that came in one piece with the end of the handshake.
    pub(super) rest: Vec<u8>,
}

/// Connects and shakes hands before the deadline.
pub(super) fn shake_hands(url: &ServiceUrl, path: &str, deadline: Instant) -> Result<Opened, String> {
    let mut stream = url
        .connect(deadline)
        .map_err(|error| format!("Failed to open connection: {error}"))?;
    let key = BASE64.encode((u128::from(random()) << 64 | u128::from(random())).to_be_bytes());
    let answer = exchange(&mut stream, &handshake(url, path, &key), deadline).map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => "Connect sequence timed out".to_owned(),
        _ => format!("Failed receiving handshake headers. {error}"),
    })?;
    let end = find(&answer, b"\r\n\r\n").expect("the exchange ends with the head") + 4;
    verify(&String::from_utf8_lossy(&answer[..end]), &key)?;
    stream.set_nonblocking(true).map_err(|error| error.to_string())?;
    Ok(Opened {
        stream,
        rest: answer[end..].to_vec(),
    })
}

fn handshake(url: &ServiceUrl, path: &str, key: &str) -> Vec<u8> {
    let port = if matches!(url.port, 80 | 443) {
        String::new()
    } else {
        format!(":{}", url.port)
    };
    format!(
        "GET {path} HTTP/1.1\r\nHost: {}{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: omgservers\r\n\r\n",
        url.host
    )
    .into_bytes()
}

fn exchange(stream: &mut TcpStream, request: &[u8], deadline: Instant) -> io::Result<Vec<u8>> {
    stream.set_write_timeout(Some(time_left(deadline)?))?;
    stream.write_all(request)?;
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    while find(&answer, b"\r\n\r\n").is_none() {
        stream.set_read_timeout(Some(time_left(deadline)?))?;
        let count = stream.read(&mut buffer)?;
        if count == 0 || answer.len() > HANDSHAKE_BYTES_MAX {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        answer.extend_from_slice(&buffer[..count]);
    }
    Ok(answer)
}

fn verify(head: &str, key: &str) -> Result<(), String> {
    let refused = |text: &str| Err(format!("Failed verifying handshake headers: {text}"));
    let head = match Head::parse(head) {
        Ok(head) => head,
        Err(error) => return refused(&error.to_string()),
    };
    if head.status != 101 {
        return Err(format!("Wrong response status: {}", head.status));
    }
    if !head
        .header("Connection")
        .is_some_and(|value| value.eq_ignore_ascii_case("Upgrade"))
    {
        return refused("Connection");
    }
    if !head
        .header("Upgrade")
        .is_some_and(|value| value.eq_ignore_ascii_case("websocket"))
    {
        return refused("Upgrade");
    }
    let accept = BASE64.encode(Sha1::digest(format!("{key}{ACCEPT_SUFFIX}")));
    if head.header("Sec-WebSocket-Accept") != Some(&accept) {
        return refused("Sec-WebSocket-Accept");
    }
    Ok(())
}
