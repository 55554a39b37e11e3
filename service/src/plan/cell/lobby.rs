//! Lobbies: everybody who is in no match is in one of them, and a few are kept for those who come.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use omgservers_protocol::config::RuntimeQualifier;
use omgservers_protocol::id::ClientId;
use omgservers_protocol::message::{ProvisioningStage, ProvisioningStatus};

use super::{Cell, Plan, Seat, Seating, Step, Venue, VenueState, failed, living, starting};

/// A client that lost its place reads why for so long before it reads about the line, milliseconds.
const LOSS_READ_MS: u64 = 1_000;

/// An open lobby.
struct Lobby<'a> {
    venue: &'a Venue,
    /// When this plan is done.
    players: usize,
    was_empty: bool,
}

/// Brings those who wait to lobbies, the fullest with room first, so that people meet. `moved` are off to a match.
pub(super) fn plan(
    cell: &Cell<'_>,
    seating: &Seating<'_>,
    waiting: &[&Seat],
    moved: &BTreeSet<ClientId>,
    plan: &mut Plan,
) {
    let room = cell.config.lobby.max_assignments as usize;
    let (mut open, pending) = lobbies(cell, seating, moved);
    open.sort_by_key(|lobby| (Reverse(lobby.players), lobby.venue.id));
    let mut line = waiting.iter();
    for lobby in &mut open {
        for seat in line.by_ref().take(room.saturating_sub(lobby.players)) {
            lobby.players += 1;
            enter(seating, seat, lobby.venue, plan);
        }
    }
    let left_over = line.as_slice();
    start(cell, &open, &pending, left_over, plan);
    if left_over.is_empty() {
        remove_surplus(cell, &mut open, plan);
    }
}

fn lobbies<'a>(
    cell: &'a Cell<'_>,
    seating: &Seating<'_>,
    moved: &BTreeSet<ClientId>,
) -> (Vec<Lobby<'a>>, Vec<&'a Venue>) {
    let (mut open, mut pending) = (Vec::new(), Vec::new());
    for venue in living(cell).filter(|venue| venue.qualifier == RuntimeQualifier::Lobby) {
        let members = seating.members(venue);
        match venue.state {
            VenueState::Open => open.push(Lobby {
                venue,
                players: members.iter().filter(|seat| !moved.contains(&seat.client)).count(),
                was_empty: members.is_empty(),
            }),
            VenueState::Pending => pending.push(venue),
            VenueState::Closed | VenueState::Gone => {}
        }
    }
    (open, pending)
}

fn enter(seating: &Seating<'_>, seat: &Seat, lobby: &Venue, plan: &mut Plan) {
    plan.steps.push(Step::Move {
        client: seat.client,
        venue: lobby.id,
        group: None,
    });
    if let Some(reason) = seating.loss(seat) {
        let status = ProvisioningStatus {
            stage: ProvisioningStage::Ready,
            position: None,
            detail: Some(reason),
        };
        // The step that moves it made it forget what it was told before.
        let client = seat.client;
        plan.steps.push(Step::Tell { client, status });
    }
}

/// Starts lobbies for those who found no room, and up to the wanted number. Tells those who wait.
fn start(cell: &Cell<'_>, open: &[Lobby<'_>], pending: &[&Venue], left_over: &[&Seat], plan: &mut Plan) {
    let room = (cell.config.lobby.max_assignments as usize).max(1);
    let running = open.len() + pending.len();
    let allowed = (cell.config.max_lobbies as usize).saturating_sub(running);
    let for_players = left_over.len().div_ceil(room).saturating_sub(pending.len());
    let for_minimum = (cell.config.min_lobbies as usize).saturating_sub(running);
    let mut created = 0;
    if cell.retry_in_ms == 0 {
        let for_players = for_players.min(cell.limits.starting.saturating_sub(pending.len()));
        let for_minimum = for_minimum.min(cell.limits.starting_spares.saturating_sub(pending.len()));
        created = for_players.max(for_minimum).min(allowed);
    }
    plan.steps.extend((0..created).map(|_| Step::CreateLobby));
    let coming = (pending.len() + created).saturating_mul(room);
    let soon = starting(pending.iter().find_map(|venue| venue.progress.as_deref()));
    let later = if allowed == created {
        ProvisioningStatus {
            stage: ProvisioningStage::Queued,
            position: None,
            detail: Some("all lobbies are full".into()),
        }
    } else if cell.retry_in_ms > 0 {
        failed(cell)
    } else {
        starting(None)
    };
    for (index, seat) in left_over.iter().enumerate() {
        if seat.venue.is_some() {
            // It is being told why it lost its place.
            plan.again_in(LOSS_READ_MS);
            continue;
        }
        let status = if index < coming { &soon } else { &later };
        let status = ProvisioningStatus {
            position: u32::try_from(index + 1).ok(),
            ..status.clone()
        };
        plan.tell(seat, status);
    }
}

/// Ends empty lobbies beyond the wanted number, the newest first.
fn remove_surplus(cell: &Cell<'_>, open: &mut [Lobby<'_>], plan: &mut Plan) {
    let surplus = open.len().saturating_sub(cell.config.min_lobbies as usize);
    open.sort_by_key(|lobby| Reverse(lobby.venue.id));
    for lobby in open.iter().filter(|lobby| lobby.players == 0).take(surplus) {
        if lobby.was_empty {
            plan.remove_when_empty(cell, lobby.venue);
        } else {
            plan.again_in(cell.empty_ms);
        }
    }
}
