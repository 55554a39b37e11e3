//! The sockets of a runtime: carries out what the [`Session`] asks for and tells it what came of it.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use omgservers_protocol::client::{CallError, Client};
use omgservers_protocol::runtime::{CreateToken, Interchange};
use omgservers_protocol::{Json, Qualifier, mux};
use tokio::sync::futures::Notified;
use tokio::time::timeout;

use crate::exchange::Failure;
use crate::session::{Input, Output, Session};
use crate::shell::{self, Shared};
use crate::socket::{Carrier, Sockets, Traffic};
use crate::{Error, Settings};

/// For an answer, beyond the time that it may be held.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Both ways to an installation. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Connections {
    pub(crate) service: Client,
    pub(crate) sockets: Sockets,
}

impl Connections {
    pub(crate) fn new(service_url: &str) -> Result<Self, Error> {
        let failed = |cause: CallError| Error::Unreachable(cause.to_string());
        Ok(Self {
            service: Client::new(service_url).map_err(failed)?,
            sockets: Sockets::new(service_url).map_err(failed)?,
        })
    }
}

/// Drives the session of a runtime until it is over.
pub(crate) async fn drive(shared: Arc<Shared<Session>>, connections: Connections, settings: Settings) {
    let login = CreateToken {
        runtime_id: settings.runtime_id,
        password: settings.password,
    };
    let here = Arc::clone(&shared);
    let carry_out = move |output| carry_out(Arc::clone(&here), connections.clone(), login.clone(), output);
    shell::drive(shared, carry_out).await;
}

async fn carry_out(
    shared: Arc<Shared<Session>>,
    connections: Connections,
    login: CreateToken,
    output: Output,
) -> Input {
    let Connections { service, sockets } = connections;
    match output {
        Output::LogIn => {
            let reply = within(CALL_TIMEOUT, service.send(&login)).await;
            Input::LoggedIn(reply.map_err(|error| failure(error, is_unknown_runtime)))
        }
        Output::Poll(token, call) => {
            let reply = interchange(&service.with_token(&*token.text), &call).await;
            Input::Polled(token, reply)
        }
        Output::Send(token, call) => {
            let reply = interchange(&service.with_token(&*token.text), &call).await;
            Input::Sent(token, reply)
        }
        Output::OpenLink(token) => match sockets.open(Carrier::Header, &token, mux::PROTOCOL).await {
            Ok(socket) => {
                shared.handle(Input::LinkOpened);
                Input::LinkClosed(socket.run(&*shared).await.reason)
            }
            Err(reason) => Input::LinkClosed(reason),
        },
    }
}

async fn interchange(service: &Client, call: &Interchange) -> Result<Vec<Json>, Failure> {
    let limit = CALL_TIMEOUT + Duration::from_millis(call.wait_ms.unwrap_or_default());
    let reply = within(limit, service.send(call)).await;
    let reply = reply.map_err(|error| failure(error, |qualifier| qualifier == Qualifier::RuntimeNotFound));
    Ok(reply?.incoming_commands)
}

fn is_unknown_runtime(qualifier: Qualifier) -> bool {
    matches!(qualifier, Qualifier::RuntimeNotFound | Qualifier::ObjectNotFound)
}

pub(crate) async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    timeout(limit, call).await.unwrap_or_else(|_| {
        Err(CallError::Unreachable {
            url: "the service".to_owned(),
            cause: format!("no answer within {} s", limit.as_secs()),
        })
    })
}

/// What a failed call means for the next one. `is_gone` tells the 404 that is meant for the caller from one of somebody
/// in between.
pub(crate) fn failure(error: CallError, is_gone: impl Fn(Qualifier) -> bool) -> Failure {
    let reason = error.to_string();
    tracing::debug!(reason, "a call failed");
    match error {
        CallError::Refused { status: 401, .. } => Failure::Unauthorized(reason),
        CallError::Refused {
            status: 404, qualifier, ..
        } if is_gone(qualifier) => Failure::Gone(reason),
        CallError::Refused {
            status: 400 | 413 | 422,
            ..
        } => Failure::Refused(reason),
        _ => Failure::Unavailable(reason),
    }
}

/// Tells the session when this process is asked to end, as PID 1 of a container or otherwise.
pub(crate) async fn wait_for_signal(shared: Arc<Shared<Session>>) {
    use tokio::signal::unix::{SignalKind, signal};
    let handlers = signal(SignalKind::terminate()).and_then(|term| Ok((term, signal(SignalKind::interrupt())?)));
    match handlers {
        Ok((mut terminate, mut interrupt)) => {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::info!("asked to stop by a signal");
            shared.core().stop();
            shared.news.notify_one();
        }
        Err(cause) => tracing::warn!(%cause, "signals cannot be handled here"),
    }
}

impl Traffic for Shared<Session> {
    async fn received(&self, text: bool, bytes: Bytes) {
        if text {
            tracing::warn!("left out a text of the dispatcher: the link is binary");
            return;
        }
        self.relieved().await;
        self.handle(Input::LinkReceived(bytes));
    }

    fn next(&self) -> Option<(bool, BytesMut)> {
        self.core().link().take_batch().map(|batch| (false, batch))
    }

    fn woken(&self) -> Notified<'_> {
        self.socket_woken()
    }

    fn is_closing(&self) -> bool {
        self.core().is_closing()
    }
}
