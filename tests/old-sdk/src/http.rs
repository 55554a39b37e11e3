//! The engine's HTTP client: HTTP/1.1 with one kept connection, on a thread of its own.
//!
//! It sends no header of its own but `Host` (without a port, whatever the port is) and `Content-Length`. Any failure to
//! get a whole answer is status 0 with an empty body. It repeats a request by itself in one case: a kept connection that
//! ends before the first byte of the answer is taken for a stale one, and the same bytes go over a new connection.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Requests waiting for their turn. The SDKs never have more than a few; a caller that asks for more is told.
const QUEUE: usize = 16;
/// Bytes of an answer; a server that sends more is broken.
const BODY_BYTES_MAX: usize = 64 << 20;
/// Bytes of the head of an answer, the size of the engine's buffer.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// A service address that is not of the form `http://host[:port][/path]`; TLS is not emulated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadUrl(pub String);

impl fmt::Display for BadUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "`{}` is not a plain http:// address", self.0)
    }
}

impl std::error::Error for BadUrl {}

/// Where the service is. Paths are appended to the text as given, as Lua does it.
#[derive(Clone, Debug)]
pub(crate) struct ServiceUrl {
    pub(crate) host: String,
    pub(crate) port: u16,
    prefix: String,
}

impl ServiceUrl {
    pub(crate) fn parse(text: &str) -> Result<Self, BadUrl> {
        let bad = || BadUrl(text.to_owned());
        let rest = text.strip_prefix("http://").ok_or_else(bad)?;
        let (authority, prefix) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().map_err(|_| bad())?),
            None => (authority, 80),
        };
        if host.is_empty() {
            return Err(bad());
        }
        Ok(ServiceUrl {
            host: host.to_owned(),
            port,
            prefix: prefix.to_owned(),
        })
    }

    pub(crate) fn path(&self, path: &str) -> String {
        format!("{}{path}", self.prefix)
    }

    /// Opens a connection to the first address that answers before the deadline.
    pub(crate) fn connect(&self, deadline: Instant) -> io::Result<TcpStream> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in (self.host.as_str(), self.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, time_left(deadline)?) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// One request exactly as it goes over the wire.
    pub(crate) fn post(&self, path: &str, token: Option<&str>, body: &str) -> Vec<u8> {
        let authorization = token
            .map(|token| format!("Authorization: Bearer {token}\r\n"))
            .unwrap_or_default();
        format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n{authorization}Content-Length: {}\r\n\r\n{body}",
            self.path(path),
            self.host,
            body.len(),
        )
        .into_bytes()
    }
}

/// An answer as Lua sees it; status 0 means that there was none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// The thread that talks; it ends when this handle is dropped and its current request is over.
#[derive(Debug)]
pub(crate) struct Client {
    requests: SyncSender<Vec<u8>>,
    answers: Receiver<Response>,
}

impl Client {
    pub(crate) fn start(url: ServiceUrl, timeout: Duration) -> Self {
        let (requests, incoming) = sync_channel::<Vec<u8>>(QUEUE);
        let (outgoing, answers) = sync_channel(QUEUE);
        thread::spawn(move || {
            let mut kept = None;
            while let Ok(request) = incoming.recv() {
                let answer = exchange(&url, &mut kept, &request, timeout).unwrap_or_else(|_| Response {
                    status: 0,
                    body: Vec::new(),
                });
                if outgoing.send(answer).is_err() {
                    break;
                }
            }
        });
        Client { requests, answers }
    }

    /// Queues a request; answers come in the order of the requests. `false` when too many are waiting already.
    pub(crate) fn send(&self, request: Vec<u8>) -> bool {
        self.requests.try_send(request).is_ok()
    }

    pub(crate) fn poll(&self) -> Option<Response> {
        self.answers.try_recv().ok()
    }

    pub(crate) fn wait(&self, limit: Duration) -> Option<Response> {
        self.answers.recv_timeout(limit).ok()
    }
}

fn exchange(url: &ServiceUrl, kept: &mut Option<TcpStream>, request: &[u8], timeout: Duration) -> io::Result<Response> {
    let deadline = Instant::now() + timeout;
    if let Some(stream) = kept.take() {
        let mut answer = Answer::new(stream);
        match answer.exchange(request, deadline) {
            Err(_) if answer.received.is_empty() && Instant::now() < deadline => {}
            outcome => return outcome.map(|response| keep(kept, answer, response)),
        }
    }
    let mut answer = Answer::new(url.connect(deadline)?);
    let response = answer.exchange(request, deadline)?;
    Ok(keep(kept, answer, response))
}

fn keep(kept: &mut Option<TcpStream>, answer: Answer, response: Response) -> Response {
    if !answer.last {
        *kept = Some(answer.stream);
    }
    response
}

/// One answer being read.
struct Answer {
    stream: TcpStream,
    received: Vec<u8>,
    /// The server ends the connection after this answer.
    last: bool,
}

impl Answer {
    fn new(stream: TcpStream) -> Self {
        Answer {
            stream,
            received: Vec::new(),
            last: false,
        }
    }

    fn exchange(&mut self, request: &[u8], deadline: Instant) -> io::Result<Response> {
        self.stream.set_write_timeout(Some(time_left(deadline)?))?;
        self.stream.write_all(request)?;
        let head_end = loop {
            if let Some(end) = find(&self.received, b"\r\n\r\n") {
                break end + 4;
            }
            if self.received.len() > HEAD_BYTES_MAX || !self.read_more(deadline)? {
                return Err(invalid("the head of the answer does not end"));
            }
        };
        let head = Head::parse(&String::from_utf8_lossy(&self.received[..head_end]))?;
        self.last = head.close;
        let body = if head.chunked {
            self.read_chunks(head_end, deadline)?
        } else if let Some(length) = head.content_length {
            self.read_to(head_end + length, deadline)?;
            self.received[head_end..head_end + length].to_vec()
        } else if head.status == 204 || head.status == 304 {
            Vec::new()
        } else {
            self.last = true;
            while self.read_more(deadline)? {}
            self.received[head_end..].to_vec()
        };
        Ok(Response {
            status: head.status,
            body,
        })
    }

    fn read_chunks(&mut self, mut position: usize, deadline: Instant) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line_end = loop {
                if let Some(end) = find(&self.received[position..], b"\r\n") {
                    break position + end;
                }
                self.read_to(self.received.len() + 1, deadline)?;
            };
            let line = String::from_utf8_lossy(&self.received[position..line_end]).into_owned();
            let size = line.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(size, 16).map_err(|_| invalid("a chunk has no size"))?;
            let start = line_end + 2;
            self.read_to(start + size + 2, deadline)?;
            if size == 0 {
                return Ok(body);
            }
            body.extend_from_slice(&self.received[start..start + size]);
            position = start + size + 2;
        }
    }

    fn read_to(&mut self, length: usize, deadline: Instant) -> io::Result<()> {
        while self.received.len() < length {
            if !self.read_more(deadline)? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    /// `false` at the end of the stream.
    fn read_more(&mut self, deadline: Instant) -> io::Result<bool> {
        if self.received.len() > BODY_BYTES_MAX {
            return Err(invalid("the answer is too long"));
        }
        let mut buffer = [0; 16 << 10];
        self.stream.set_read_timeout(Some(time_left(deadline)?))?;
        let count = self.stream.read(&mut buffer)?;
        self.received.extend_from_slice(&buffer[..count]);
        Ok(count > 0)
    }
}

/// What the client looks at in the head of an answer.
pub(crate) struct Head {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    content_length: Option<usize>,
    chunked: bool,
    close: bool,
}

impl Head {
    pub(crate) fn parse(text: &str) -> io::Result<Self> {
        let mut lines = text.split("\r\n");
        let mut words = lines.next().unwrap_or_default().split(' ');
        let version = words.next().unwrap_or_default();
        if !version.starts_with("HTTP/1.") {
            return Err(invalid("the answer is not HTTP/1"));
        }
        let status = words
            .next()
            .and_then(|word| word.parse().ok())
            .ok_or_else(|| invalid("the answer has no status"))?;
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect();
        let mut head = Head {
            status,
            headers,
            content_length: None,
            chunked: false,
            close: version == "HTTP/1.0",
        };
        if let Some(length) = head.header("Content-Length") {
            head.content_length = Some(length.parse().map_err(|_| invalid("the content length is no number"))?);
        }
        head.chunked = head
            .header("Transfer-Encoding")
            .is_some_and(|value| value.eq_ignore_ascii_case("chunked"));
        head.close |= head
            .header("Connection")
            .is_some_and(|value| value.eq_ignore_ascii_case("close"));
        Ok(head)
    }

    /// The whole value of the first header of that name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}

pub(crate) fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

/// Never zero, which would mean "forever" to a socket.
pub(crate) fn time_left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        Err(io::ErrorKind::TimedOut.into())
    } else {
        Ok(left)
    }
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_addresses_are_accepted() {
        for text in ["https://host", "host:80", "http://", "http://host:port"] {
            assert_eq!(ServiceUrl::parse(text).unwrap_err(), BadUrl(text.to_owned()));
        }
        let url = ServiceUrl::parse("http://host:8080/prefix").unwrap();
        assert_eq!(
            (url.host.as_str(), url.port, url.path("/x")),
            ("host", 8080, "/prefix/x".to_owned())
        );
    }
}
