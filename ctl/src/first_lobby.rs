//! Waiting for the first lobby of a deployment, which tells whether a game runs at all.

use std::time::Duration;

use omgservers_protocol::developer::VenueStatus;
use tokio::time::Instant;

use crate::failure::Result;
use crate::output::Output;

/// How long it may take before the reader is left to wait alone.
pub(crate) const WITHIN: Duration = Duration::from_secs(60);

const POLL: Duration = Duration::from_millis(250);

/// Tells how it comes up, by what `ask` says of lobbies and matches; what was told last when none is open in time.
pub(crate) async fn wait(
    within: Duration,
    output: Output,
    mut ask: impl AsyncFnMut() -> Result<Vec<VenueStatus>>,
) -> Result<std::result::Result<(), String>> {
    let deadline = Instant::now() + within;
    let mut told = String::new();
    loop {
        let venues = ask().await?;
        let lobbies: Vec<_> = venues.iter().filter(|venue| venue.qualifier == "LOBBY").collect();
        if lobbies
            .iter()
            .any(|lobby| matches!(lobby.state.as_str(), "READY" | "OPEN"))
        {
            return Ok(Ok(()));
        }
        if let Some(news) = lobbies.last().map(|lobby| describe(lobby)).filter(|news| *news != told) {
            output.note(format_args!("{news}"));
            told = news;
        }
        if Instant::now() + POLL > deadline {
            return Ok(Err(told));
        }
        tokio::time::sleep(POLL).await;
    }
}

fn describe(lobby: &VenueStatus) -> String {
    let state = lobby.state.to_lowercase();
    match &lobby.reason {
        Some(reason) => format!("the first lobby is {state}: {reason}"),
        None => format!("the first lobby is {state}"),
    }
}
