//! What the dispatcher has to do with the service: it fetches the keys of tokens, logs in, and reports who is connected.
//! Every call has a timeout and is tried on each instance; what fails is tried again with growing delay.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use omgservers_protocol::Call;
use omgservers_protocol::client::{CallError, Client};
use omgservers_protocol::dispatcher::{CreateToken, KEYS_ROUTE, Report, RoomEvent};
use omgservers_protocol::id::ClientId;
use omgservers_protocol::token::Keys;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::{Config, Edge};

/// Keys change seldom; a token by an unknown key makes them be fetched at once.
const KEYS_EVERY: Duration = Duration::from_secs(300);

/// Between two attempts to fetch them, whatever tokens come.
const KEYS_PAUSE_MIN: Duration = Duration::from_millis(500);

/// How long one instance may take to answer.
const CALL: Duration = Duration::from_secs(5);

/// Events of so long a time make one report.
const GATHER: Duration = Duration::from_millis(100);

/// How often everybody who is connected is named.
const ROLL_CALL_EVERY: Duration = Duration::from_secs(5);

/// Entries of a report.
const REPORT_MAX: usize = 1_000;

/// Events that wait for the service; the oldest give way.
const EVENTS_MAX: usize = 10_000;

/// How long the last report may take.
const LAST_REPORT: Duration = Duration::from_secs(1);

/// The instances of the service, seen as one.
pub(crate) struct Service {
    instances: Vec<Client>,
    /// The instance that answered last.
    preferred: AtomicUsize,
    login: CreateToken,
    token: watch::Sender<Option<String>>,
    token_wanted: Notify,
    renew_token_every: Duration,
}

impl Service {
    /// With the sender that events go to, and the task that reports them.
    pub(crate) fn new(config: &Config) -> anyhow::Result<(Self, mpsc::Sender<RoomEvent>, Reporter)> {
        let instances = config
            .service_uri
            .iter()
            .map(|uri| Client::new(&uri.to_string()))
            .collect::<Result<Vec<_>, _>>()?;
        anyhow::ensure!(!instances.is_empty(), "OMGSERVERS_SERVICE_URI names no instance");
        let (user, password) = config.login()?;
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        let service = Self {
            instances,
            preferred: AtomicUsize::new(0),
            login: CreateToken { user, password },
            token: watch::Sender::new(None),
            token_wanted: Notify::new(),
            renew_token_every: config.refresh_token_interval,
        };
        let reporter = Reporter {
            events,
            pending: VecDeque::new(),
        };
        Ok((service, sender, reporter))
    }

    pub(crate) fn has_token(&self) -> bool {
        self.token.borrow().is_some()
    }

    /// Asks one instance after the other, beginning with the one that answered last.
    async fn call<C: Call>(&self, token: Option<&str>, call: &C) -> Result<C::Reply, CallError> {
        let first = self.preferred.load(Ordering::Relaxed);
        let mut last = None;
        for offset in 0..self.instances.len() {
            let index = (first + offset) % self.instances.len();
            let mut client = self.instances[index].clone();
            if let Some(token) = token {
                client = client.with_token(token);
            }
            let answer = timeout(CALL, client.send(call)).await.unwrap_or_else(|_| {
                Err(CallError::Unreachable {
                    url: client.base().to_owned(),
                    cause: format!("no answer within {CALL:?}"),
                })
            });
            match answer {
                Err(error) if error.status().is_none_or(|status| status >= 500) => last = Some(error),
                answer => {
                    self.preferred.store(index, Ordering::Relaxed);
                    return answer;
                }
            }
        }
        Err(last.expect("there is at least one instance"))
    }
}

/// Fetches the keys until they come, then now and then, and whenever a token makes it necessary.
pub(crate) async fn keep_keys(edge: Arc<Edge>) {
    let mut backoff = Backoff::default();
    loop {
        let fetched = edge.stopping.run_until_cancelled(fetch_keys(&edge)).await;
        let pause = match fetched {
            None => return,
            Some(Ok(())) => {
                backoff = Backoff::default();
                KEYS_EVERY
            }
            Some(Err(error)) => {
                let pause = backoff.next();
                tracing::warn!(
                    error = format!("{error:#}"),
                    ?pause,
                    "the keys of the service cannot be fetched"
                );
                pause
            }
        };
        let wanted = async {
            // Bad tokens must not become a load on the service.
            sleep(KEYS_PAUSE_MIN).await;
            edge.admission.keys_wanted().await;
        };
        tokio::select! {
            () = sleep(pause) => {}
            () = wanted => {}
            () = edge.stopping.cancelled() => return,
        }
    }
}

async fn fetch_keys(edge: &Edge) -> anyhow::Result<()> {
    let body = timeout(CALL * 2, edge.proxy.fetch(KEYS_ROUTE))
        .await
        .context("no answer in time")??;
    let keys: Keys = serde_json::from_slice(&body).context("they are not a JSON Web Key Set")?;
    anyhow::ensure!(!keys.keys.is_empty(), "there are none");
    edge.admission.set_keys(&keys)?;
    Ok(())
}

/// Logs in, and renews the login before it expires.
pub(crate) async fn keep_token(edge: Arc<Edge>) {
    let service = &edge.service;
    let mut backoff = Backoff::default();
    loop {
        let answer = edge
            .stopping
            .run_until_cancelled(service.call(None, &service.login))
            .await;
        let pause = match answer {
            None => return,
            Some(Ok(token)) => {
                if service.token.send_replace(Some(token.raw_token)).is_none() {
                    tracing::info!("logged in at the service");
                }
                backoff = Backoff::default();
                service.renew_token_every
            }
            Some(Err(error)) => {
                let pause = backoff.next();
                if error.status().is_some() {
                    tracing::error!(%error, ?pause, "the service refuses the login of this dispatcher");
                } else {
                    tracing::warn!(%error, ?pause, "the service does not answer");
                }
                pause
            }
        };
        tokio::select! {
            () = sleep(pause) => {}
            () = service.token_wanted.notified() => {}
            () = edge.stopping.cancelled() => return,
        }
    }
}

/// Tells the service what happens in the rooms.
pub(crate) struct Reporter {
    events: mpsc::Receiver<RoomEvent>,
    pending: VecDeque<RoomEvent>,
}

impl Reporter {
    pub(crate) async fn run(mut self, edge: Arc<Edge>) {
        let mut backoff = Backoff::default();
        let mut roll_call_at = Instant::now() + ROLL_CALL_EVERY;
        // Not before this time is there another attempt.
        let mut not_before = Instant::now();
        while !edge.stopping.is_cancelled() {
            self.gather(&edge, roll_call_at, not_before).await;
            let is_roll_call = Instant::now() >= roll_call_at;
            if !is_roll_call && (self.pending.is_empty() || Instant::now() < not_before) {
                continue;
            }
            if is_roll_call {
                roll_call_at = Instant::now() + ROLL_CALL_EVERY;
            }
            let Some(token) = edge.service.token.borrow().clone() else {
                // The login is on its way.
                not_before = Instant::now() + GATHER;
                continue;
            };
            let clients = if is_roll_call { edge.rooms.clients() } else { Vec::new() };
            let sent = edge
                .stopping
                .run_until_cancelled(self.report(&edge, &token, &clients))
                .await;
            match sent {
                None => break,
                Some(Ok(())) => {
                    backoff = Backoff::default();
                    not_before = Instant::now();
                }
                Some(Err(error)) => {
                    let pause = backoff.next();
                    not_before = Instant::now() + pause;
                    edge.meters.failed_reports.increment(1);
                    tracing::warn!(%error, ?pause, waiting = self.pending.len(), "a report is not taken by the service");
                }
            }
        }
        self.say_goodbye(&edge).await;
    }

    /// Receives events until it is time to report.
    async fn gather(&mut self, edge: &Edge, roll_call_at: Instant, not_before: Instant) {
        let mut until = roll_call_at;
        if !self.pending.is_empty() {
            until = until.min(not_before);
        }
        loop {
            let received = tokio::select! {
                received = timeout_at(until, self.events.recv()) => received,
                () = edge.stopping.cancelled() => return,
            };
            let Ok(Some(event)) = received else { return };
            self.keep(edge, event);
            until = until.min(not_before.max(Instant::now() + GATHER));
        }
    }

    fn keep(&mut self, edge: &Edge, event: RoomEvent) {
        if self.pending.len() >= EVENTS_MAX {
            self.pending.pop_front();
            edge.meters.lost_events.increment(1);
        }
        self.pending.push_back(event);
    }

    /// Sends what waits, and who is connected if they are given, in as many reports as it takes.
    async fn report(&mut self, edge: &Edge, token: &str, clients: &[ClientId]) -> Result<(), CallError> {
        let mut chunks = clients.chunks(REPORT_MAX);
        let mut clients = chunks.next();
        loop {
            let count = self.pending.len().min(REPORT_MAX);
            let report = Report {
                events: self.pending.range(..count).cloned().collect(),
                connected_clients: clients.unwrap_or_default().to_vec(),
            };
            if let Err(error) = edge.service.call(Some(token), &report).await {
                if matches!(error.status(), Some(401 | 403)) {
                    edge.service.token_wanted.notify_one();
                }
                return Err(error);
            }
            self.pending.drain(..count);
            clients = chunks.next();
            if self.pending.is_empty() && clients.is_none() {
                return Ok(());
            }
        }
    }

    /// The last report: the rooms are gone.
    async fn say_goodbye(&mut self, edge: &Edge) {
        // Rooms are ended right after the stop; their events come within this time.
        let until = Instant::now() + GATHER;
        while let Ok(Some(event)) = timeout_at(until, self.events.recv()).await {
            self.keep(edge, event);
        }
        let token = edge.service.token.borrow().clone();
        if let (false, Some(token)) = (self.pending.is_empty(), token) {
            let _ = timeout(LAST_REPORT, self.report(edge, &token, &[])).await;
        }
    }
}

/// Growing delays: a quarter of a second, then twice as long each time, three seconds at most, so that a dispatcher that
/// starts before its service is ready soon after it.
#[derive(Default)]
struct Backoff(u32);

impl Backoff {
    fn next(&mut self) -> Duration {
        let pause = Duration::from_millis(250) * 2_u32.pow(self.0.min(5));
        self.0 += 1;
        pause.min(Duration::from_secs(3))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_a_limit() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u128> = (0..7).map(|_| backoff.next().as_millis()).collect();
        assert_eq!(pauses, [250, 500, 1_000, 2_000, 3_000, 3_000, 3_000]);
    }
}
