//! The eye on a Docker host: its event stream, and a ping in case the stream is silent because the host is gone.

use std::{collections::HashSet, sync::Arc, time::Duration};

use bollard::{models::EventMessage, query_parameters::EventsOptions};
use futures_util::StreamExt;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use tokio::sync::mpsc;

use super::Inner;
use crate::host::{HostError, HostEvent, LABEL_GENERATION, LABEL_RUNTIME};

/// Events that wait for a slow reader; beyond that the stream waits.
const EVENTS_MAX: usize = 256;
/// Delay before the second attempt to connect; doubled with each further one.
const RETRY_DELAY_MIN: Duration = Duration::from_millis(250);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(8);

pub(super) fn start(host: Arc<Inner>) -> mpsc::Receiver<HostEvent> {
    let (sender, receiver) = mpsc::channel(EVENTS_MAX);
    tokio::spawn(async move {
        let unwatched = sender.clone();
        tokio::select! {
            () = unwatched.closed() => {}
            () = run(&host, sender) => {}
        }
    });
    receiver
}

async fn run(host: &Inner, sender: mpsc::Sender<HostEvent>) {
    let mut delay = RETRY_DELAY_MIN;
    let mut told = None;
    loop {
        let mut connected = false;
        let Err(error) = follow(host, &sender, &mut connected).await else {
            return; // nobody listens any more
        };
        if connected {
            delay = RETRY_DELAY_MIN;
            told = None;
        }
        // Each reason once, not at each attempt.
        let reason = error.to_string();
        if told.as_ref() != Some(&reason) {
            told = Some(reason.clone());
            if sender.send(HostEvent::Lost { reason }).await.is_err() {
                return;
            }
        }
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(RETRY_DELAY_MAX);
    }
}

/// Follows the host until it is lost; `Ok` when nobody listens any more.
async fn follow(host: &Inner, sender: &mpsc::Sender<HostEvent>, connected: &mut bool) -> Result<(), HostError> {
    let limit = host.settings.ping_interval.min(host.settings.connect_timeout);
    host.ping(limit).await?;
    let docker = host.docker()?;
    // The stream begins at this moment of the daemon's clock, so nothing is missed between here and its first event.
    let info = docker
        .info()
        .await
        .map_err(|cause| host.failure("describe itself", &cause))?;
    let mut filters = host.own();
    filters.insert("type".to_owned(), vec!["container".to_owned()]);
    filters.insert("event".to_owned(), vec!["die".to_owned(), "oom".to_owned()]);
    let options = EventsOptions {
        since: info.system_time.as_deref().and_then(since),
        until: None,
        filters: Some(filters),
    };
    let mut events = std::pin::pin!(docker.events(Some(options)));

    let mut pings = tokio::time::interval(host.settings.ping_interval);
    pings.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    pings.tick().await; // the first is immediate, and the host has just answered
    if sender.send(HostEvent::Connected).await.is_err() {
        return Ok(());
    }
    *connected = true;
    // Containers that ran out of memory and whose end is about to be told.
    let mut starved = HashSet::new();
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            _ = pings.tick() => {
                host.ping(limit).await?;
                continue;
            }
        };
        let Some(event) = event else {
            return Err(HostError::Unreachable(format!(
                "host `{}` ended its event stream",
                host.address
            )));
        };
        let event = event.map_err(|cause| host.failure("tell its events", &cause))?;
        if let Some(died) = translate(&event, &mut starved)
            && sender.send(died).await.is_err()
        {
            return Ok(());
        }
    }
}

fn translate(event: &EventMessage, starved: &mut HashSet<String>) -> Option<HostEvent> {
    let actor = event.actor.as_ref()?;
    let id = actor.id.clone()?;
    if event.action.as_deref() == Some("oom") {
        // A container may lose one process and live on, so not every one of these is followed by an end.
        if starved.len() >= EVENTS_MAX {
            starved.clear();
        }
        starved.insert(id);
        return None;
    }
    let attributes = actor.attributes.as_ref()?;
    let code = attributes.get("exitCode").map_or("unknown", String::as_str);
    let detail = match starved.remove(&id) {
        true => format!("exited with code {code}: it ran out of memory"),
        false => format!("exited with code {code}"),
    };
    Some(HostEvent::Died {
        name: attributes.get("name")?.clone(),
        runtime_id: attributes.get(LABEL_RUNTIME)?.parse().ok()?,
        generation: attributes.get(LABEL_GENERATION)?.parse().ok()?,
        detail,
    })
}

/// The daemon's time in the form in which it wants to be told a time.
fn since(system_time: &str) -> Option<String> {
    let time = OffsetDateTime::parse(system_time, &Rfc3339).ok()?;
    Some(format!("{}.{:09}", time.unix_timestamp(), time.nanosecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemons_time_is_told_back_to_it_to_the_nanosecond() {
        assert_eq!(
            since("2024-01-02T03:04:05.000000678Z").as_deref(),
            Some("1704164645.000000678")
        );
        assert_eq!(since("yesterday"), None);
    }
}
