//! What a Docker host's failure means to those who asked.

use std::time::Duration;

use bollard::errors::Error as DockerError;

use super::Inner;
use crate::host::HostError;

impl Inner {
    pub(super) fn silent(&self, limit: Duration) -> HostError {
        HostError::Unreachable(format!(
            "host `{}` did not answer within {} s",
            self.address,
            limit.as_secs_f32()
        ))
    }

    /// The one translation of bollard's errors.
    pub(super) fn failure(&self, what: &str, cause: &DockerError) -> HostError {
        let address = &self.address;
        match cause {
            DockerError::DockerResponseServerError { message, .. }
            | DockerError::DockerStreamError { error: message } => {
                let text = format!("host `{address}` could not {what}: {}", message.trim());
                if lacks_room(message) {
                    HostError::Full(text)
                } else if lacks_program(message) {
                    HostError::Image(text)
                } else {
                    HostError::Refused(text)
                }
            }
            DockerError::RequestTimeoutError => self.silent(self.settings.response_timeout),
            DockerError::JsonDataError { .. } | DockerError::JsonSerdeError { .. } => {
                HostError::Refused(format!("host `{address}` gave an answer that makes no sense: {cause}"))
            }
            DockerError::SocketNotFoundError(_) => {
                HostError::Unreachable(format!("host `{address}` is not there: no such socket"))
            }
            _ => HostError::Unreachable(format!("host `{address}` cannot be reached: {}", causes(cause))),
        }
    }
}

pub(super) fn status(cause: &DockerError) -> Option<u16> {
    match cause {
        DockerError::DockerResponseServerError { status_code, .. } => Some(*status_code),
        _ => None,
    }
}

pub(super) fn message(cause: &DockerError) -> &str {
    match cause {
        DockerError::DockerResponseServerError { message, .. } => message,
        _ => "",
    }
}

fn lacks_room(message: &str) -> bool {
    let message = message.to_lowercase();
    [
        "no space left on device",
        "cannot allocate memory",
        "resource temporarily unavailable",
        "too many open files",
        "address pool",
        "no available ip",
    ]
    .iter()
    .any(|sign| message.contains(sign))
}

fn lacks_program(message: &str) -> bool {
    let message = message.to_lowercase();
    message.contains("no such image")
        || message.contains("no command specified")
        || (message.contains("runtime create failed")
            && [
                "executable file not found",
                "no such file",
                "exec format error",
                "permission denied",
            ]
            .iter()
            .any(|sign| message.contains(sign)))
}

/// An error with what caused it, down to the operating system's word.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}
