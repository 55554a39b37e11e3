//! Requests as the old script made them, by `curl`: the same messages and exit codes when nobody answers.

use std::time::{Duration, Instant};

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
    let started = Instant::now();
    let silence = |cause: &dyn std::error::Error| Silence::new(url, &deepest(cause), started.elapsed());
    let mut builder = reqwest::Client::builder()
        .connect_timeout(Duration::from_secs(5))
        .timeout(Duration::from_secs(30))
        .no_proxy();
    if url.starts_with("http://") {
        // No certificates are needed, and a bare container has none.
        builder = builder.tls_certs_only([]);
    }
    let client = builder.build().map_err(|cause| silence(&cause))?;
    let mut request = client.post(url).header("content-type", "application/json").body(body);
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    let response = request.send().await.map_err(|cause| silence(&cause))?;
    let status = response.status().as_u16();
    let body = response.text().await.map_err(|cause| silence(&cause))?;
    Ok(Answer { status, body })
}

fn deepest(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(deeper) = error.source() {
        error = deeper;
    }
    error.to_string()
}

impl Silence {
    pub(super) fn new(url: &str, cause: &str, after: Duration) -> Self {
        let Ok(parsed) = reqwest::Url::parse(url) else {
            return Self::of(3, "URL using bad/illegal format or missing URL");
        };
        let host = parsed.host_str().unwrap_or_default();
        let port = parsed.port_or_known_default().unwrap_or_default();
        let connecting = format!("Failed to connect to {host} port {port} after {} ms", after.as_millis());
        let cause = cause.to_lowercase();
        if cause.contains("lookup") || cause.contains("resolve") {
            Self::of(6, &format!("Could not resolve host: {host}"))
        } else if cause.contains("timed out") || cause.contains("elapsed") {
            Self::of(28, &format!("{connecting}: Timeout was reached"))
        } else if cause.contains("closed") || cause.contains("reset") {
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
            "localhost",
            "",
            3,
            "curl: (3) URL using bad/illegal format or missing URL",
        );
    }
}
