//! The sockets of a player's client: carries out what its [`Session`] asks for.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use omgservers_protocol::client::{CallError, Client};
use omgservers_protocol::player::{CreateToken, Interchange};
use omgservers_protocol::{Call, Json, Qualifier};
use tokio::sync::futures::Notified;

use super::session::{Input, Output, Session};
use crate::exchange::{Backoff, Failure};
use crate::shell::{self, Shared};
use crate::socket::{Carrier, Traffic};
use crate::transport::{CALL_TIMEOUT, Connections, failure, within};

/// The sub-protocol of players.
const PROTOCOL: &str = "omgservers";
/// How often a call that begins something is tried while nobody answers: about two seconds in all.
const ATTEMPTS_MAX: u32 = 6;

/// One call that begins something, tried again while the service is away.
pub(super) async fn call<C: Call>(service: &Client, call: &C) -> Result<C::Reply, CallError> {
    let mut backoff = Backoff::new(0);
    let mut attempts = 0;
    loop {
        attempts += 1;
        let error = match within(CALL_TIMEOUT, service.send(call)).await {
            Ok(reply) => return Ok(reply),
            Err(error) => error,
        };
        let is_final = matches!(&error, CallError::Refused { status, .. } if *status < 500 && *status != 429);
        if is_final || attempts >= ATTEMPTS_MAX {
            return Err(error);
        }
        backoff.failed(Duration::ZERO);
        tokio::time::sleep(backoff.until()).await;
    }
}

/// Drives the session of a client until it is over.
pub(super) async fn drive(shared: Arc<Shared<Session>>, connections: Connections, login: CreateToken) {
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
            Input::LoggedIn(
                reply
                    .map(|reply| reply.raw_token)
                    .map_err(|error| failure(error, is_gone)),
            )
        }
        Output::Poll(token, call) => {
            let reply = interchange(&service.with_token(&*token.text), &call).await;
            Input::Polled(token, reply)
        }
        Output::Send(token, call) => {
            let reply = interchange(&service.with_token(&*token.text), &call).await;
            Input::Sent(token, reply)
        }
        Output::Renew(token, socket, call) => {
            let reply = within(CALL_TIMEOUT, service.with_token(&*token.text).send(&call)).await;
            Input::Renewed(token, socket, reply.map_err(|error| failure(error, is_gone)))
        }
        Output::OpenSocket(number, token) => match sockets.open(Carrier::Query, &token, PROTOCOL).await {
            Ok(socket) => {
                shared.handle(Input::SocketOpened(number));
                let closed = socket.run(&Connection { shared, number }).await;
                Input::SocketClosed(number, closed.code, closed.reason)
            }
            Err(reason) => Input::SocketClosed(number, None, reason),
        },
    }
}

async fn interchange(service: &Client, call: &Interchange) -> Result<Vec<Json>, Failure> {
    let limit = CALL_TIMEOUT + Duration::from_millis(call.wait_ms.unwrap_or_default());
    let reply = within(limit, service.send(call)).await;
    Ok(reply.map_err(|error| failure(error, is_gone))?.incoming_messages)
}

fn is_gone(qualifier: Qualifier) -> bool {
    matches!(qualifier, Qualifier::ObjectNotFound | Qualifier::UserNotFound)
}

/// One socket of a client; a later one has a larger number.
struct Connection {
    shared: Arc<Shared<Session>>,
    number: u64,
}

impl Traffic for Connection {
    async fn received(&self, text: bool, bytes: Bytes) {
        self.shared.relieved().await;
        self.shared.handle(Input::SocketReceived(self.number, text, bytes));
    }

    fn next(&self) -> Option<(bool, BytesMut)> {
        self.shared.core().next_packet(self.number)
    }

    fn woken(&self) -> Notified<'_> {
        self.shared.socket_woken()
    }

    fn is_closing(&self) -> bool {
        !self.shared.core().is_current(self.number)
    }
}
