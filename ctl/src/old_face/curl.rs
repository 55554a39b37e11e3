//! Requests as the old script made them, by `curl`: the same messages and exit codes when nobody answers.

use std::time::{Duration, Instant};

use reqwest::RequestBuilder;
use reqwest::multipart::{Form, Part};
use reqwest::redirect::Policy;

pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: String,
}

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Silence {
    pub(super) exit: u8,
    pub(super) message: String,
}

pub(super) async fn post(url: &str, token: Option<&str>, body: String) -> Result<Answer, Silence> {
    ask(url, token, Duration::from_secs(30), |request| {
        request.header("content-type", "application/json").body(body)
    })
    .await
}

/// Sends an archive in a form, with the version as it was typed.
pub(super) async fn upload(
    url: &str,
    token: &str,
    tenant: &str,
    version: &str,
    archive: Vec<u8>,
) -> Result<Answer, Silence> {
    let form = Form::new()
        .text("tenant", tenant.to_owned())
        .text("tenantVersionId", version.to_owned())
        .part("version.zip", Part::bytes(archive).file_name("version.zip"));
    ask(url, Some(token), Duration::from_secs(600), |request| {
        request.multipart(form)
    })
    .await
}

async fn ask(
    url: &str,
    token: Option<&str>,
    patience: Duration,
    fill: impl FnOnce(RequestBuilder) -> RequestBuilder,
) -> Result<Answer, Silence> {
    let started = Instant::now();
    let url = &with_scheme(url);
    let silence = |cause: &dyn std::error::Error| Silence::new(url, &deepest(cause), started.elapsed());
    let mut builder = reqwest::Client::builder()
        .connect_timeout(Duration::from_secs(5))
        .timeout(patience)
        .redirect(Policy::none())
        .no_proxy();
    if url.starts_with("http://") {
        // No certificates are needed, and a bare container has none.
        builder = builder.tls_certs_only([]);
    }
    let client = builder.build().map_err(|cause| silence(&cause))?;
    let mut request = fill(client.post(url));
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    let response = request.send().await.map_err(|cause| silence(&cause))?;
    let status = response.status().as_u16();
    let body = response.text().await.map_err(|cause| silence(&cause))?;
    Ok(Answer { status, body })
}

/// An address without a scheme is one of HTTP.
fn with_scheme(url: &str) -> String {
    if url.contains("://") {
        url.to_owned()
    } else {
        format!("http://{url}")
    }
}

fn deepest(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(deeper) = error.source() {
        error = deeper;
    }
    error.to_string()
}

/// What `rustls` says of a peer that cannot agree with it, or does not speak TLS at all.
const HANDSHAKE_WORDS: [&str; 5] = [
    "handshake",
    "fatal alert",
    "corrupt message",
    "peer is incompatible",
    "misbehaved",
];

impl Silence {
    fn new(url: &str, cause: &str, after: Duration) -> Self {
        let Ok(parsed) = reqwest::Url::parse(url) else {
            return Self::of(3, "URL using bad/illegal format or missing URL");
        };
        let host = parsed.host_str().unwrap_or_default();
        let port = parsed.port_or_known_default().unwrap_or_default();
        let connecting = format!("Failed to connect to {host} port {port} after {} ms", after.as_millis());
        let words = cause.to_lowercase();
        if words.contains("lookup") || words.contains("resolve") {
            Self::of(6, &format!("Could not resolve host: {host}"))
        } else if words.contains("timed out") || words.contains("elapsed") {
            Self::of(28, &format!("{connecting}: Timeout was reached"))
        } else if words.contains("peer certificate") {
            Self::of(60, &format!("SSL certificate problem: {cause}"))
        } else if HANDSHAKE_WORDS.iter().any(|word| words.contains(word)) {
            Self::of(35, &format!("TLS connect error: {cause}"))
        } else if words.contains("reset") {
            Self::of(56, "Recv failure: Connection reset by peer")
        } else if words.contains("closed") {
            Self::of(52, "Empty reply from server")
        } else {
            Self::of(7, &format!("{connecting}: Couldn't connect to server"))
        }
    }

    fn of(exit: u8, message: &str) -> Self {
        Self {
            exit,
            message: format!("curl: ({exit}) {message}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_tells_what_is_missing() {
        let check = |url: &str, cause: &str, exit: u8, message: &str| {
            let silence = Silence::new(url, cause, Duration::from_millis(5));
            assert_eq!((silence.exit, silence.message.as_str()), (exit, message));
        };
        check(
            "http://localhost:1/x",
            "Connection refused (os error 111)",
            7,
            "curl: (7) Failed to connect to localhost port 1 after 5 ms: Couldn't connect to server",
        );
        check(
            "https://nowhere/x",
            "failed to lookup address information: Name or service not known",
            6,
            "curl: (6) Could not resolve host: nowhere",
        );
        check(
            "http://localhost/x",
            "deadline has elapsed",
            28,
            "curl: (28) Failed to connect to localhost port 80 after 5 ms: Timeout was reached",
        );
        check(
            "http://localhost/x",
            "connection closed before message completed",
            52,
            "curl: (52) Empty reply from server",
        );
        check(
            "http://localhost/x",
            "Connection reset by peer (os error 104)",
            56,
            "curl: (56) Recv failure: Connection reset by peer",
        );
        for (cause, exit) in [
            ("invalid peer certificate: UnknownIssuer", 60),
            ("received corrupt message of type InvalidContentType", 35),
            ("received fatal alert: HandshakeFailure", 35),
            ("tls handshake eof", 35),
        ] {
            assert_eq!(Silence::new("https://localhost/x", cause, Duration::ZERO).exit, exit);
        }
        check(
            "http://[",
            "",
            3,
            "curl: (3) URL using bad/illegal format or missing URL",
        );
    }

    #[test]
    fn an_address_without_a_scheme_is_one_of_http() {
        assert_eq!(with_scheme("localhost:8080/x"), "http://localhost:8080/x");
        assert_eq!(with_scheme("https://localhost/x"), "https://localhost/x");
    }
}
