//! What must hold: after every plan, when all has come to rest, and when everybody has left.

use std::collections::{BTreeMap, BTreeSet};

use omgservers_protocol::config::{ModeConfig, RuntimeQualifier};
use omgservers_protocol::id::ClientId;
use omgservers_service::plan::cell::{CellState, Plan, Step, VenueId, VenueState};

use crate::world::{EMPTY_MS, Job, Life, SeatRow, VenueRow, World};

/// A plan that wants to look again so soon knows that it left something to do, milliseconds.
const SOON_MS: u64 = 50;
/// Players of the largest match.
const TOGETHER: usize = 5;

/// Right after the steps were applied.
pub(crate) fn carried_out(world: &World, before: &BTreeMap<ClientId, SeatRow>, plan: &Plan) {
    let seed = world.seed;
    let mut moved = BTreeSet::new();
    for step in &plan.steps {
        match step {
            Step::Move { client, venue, .. } => {
                assert!(moved.insert(*client), "seed {seed}: {client} was moved twice");
                assert_ne!(before[client].venue, Some(*venue), "seed {seed}: {client} was there");
                let state = world.venues[venue].state;
                assert_eq!(state, VenueState::Open, "seed {seed}: {client} was moved to {venue}");
                if let Some(mode) = mode_of(world, *venue) {
                    let staying = |seat: &&SeatRow| seat.wanted_mode.is_none();
                    assert_eq!(
                        can_play(mode, &members(world, *venue).filter(staying).collect::<Vec<_>>()),
                        Ok(()),
                        "seed {seed}: players were moved to {venue}"
                    );
                }
            }
            Step::Remove { venue, reason } if reason == "nobody was in it" => {
                let empty_for = world.now - world.venues[venue].empty_since;
                assert!(
                    empty_for >= EMPTY_MS,
                    "seed {seed}: {venue} was empty for {empty_for} ms only"
                );
            }
            Step::CreateLobby | Step::CreateMatch { .. } => {
                assert!(world.retry_at <= world.now, "seed {seed}: a start while starts fail");
            }
            _ => {}
        }
    }
    limits(world);
    let most = world.limits.steps + TOGETHER;
    assert!(plan.steps.len() < most, "seed {seed}: {} steps", plan.steps.len());
    if plan.again_in_ms.is_none_or(|ms| ms > SOON_MS) {
        nothing_is_left(world, plan);
    }
}

/// Planning again right away changes nothing and tells nobody anything new.
fn nothing_is_left(world: &World, plan: &Plan) {
    let seed = world.seed;
    let next = world.plan();
    let is_structural = |step: &Step| !matches!(step, Step::Tell { .. });
    assert!(
        !next.steps.iter().any(is_structural),
        "seed {seed}: {plan:#?}\nleft this to do: {next:#?}"
    );
    // Those who lost their place read why first.
    let queued: BTreeSet<ClientId> = plan.steps.iter().filter_map(queued).collect();
    for step in &next.steps {
        if let Step::Tell { client, status } = step
            && !queued.contains(client)
        {
            let told = &world.seats[client].told;
            panic!("seed {seed}: {client} was told {told:?} and not {status:?}");
        }
    }
}

fn queued(step: &Step) -> Option<ClientId> {
    match step {
        Step::Queue { client } => Some(*client),
        _ => None,
    }
}

fn limits(world: &World) {
    let seed = world.seed;
    let count = |qualifier| living(world).filter(|(_, row)| row.qualifier == qualifier).count();
    let lobbies = count(RuntimeQualifier::Lobby);
    let matches = count(RuntimeQualifier::Match);
    assert!(
        lobbies <= world.config.max_lobbies as usize,
        "seed {seed}: {lobbies} lobbies"
    );
    let starting = living(world)
        .filter(|(_, row)| row.state == VenueState::Pending)
        .count();
    assert!(
        starting <= 2 * world.limits.starting,
        "seed {seed}: {starting} are starting"
    );
    let max = world.config.matchmaker.max_matches as usize;
    assert!(matches <= max, "seed {seed}: {matches} matches");
    for (venue, _) in living(world) {
        let players = members(world, venue).count();
        match mode_of(world, venue) {
            None => assert!(
                players <= world.config.lobby.max_assignments as usize,
                "seed {seed}: {venue}"
            ),
            Some(mode) => {
                assert!(
                    players <= mode.max_players as usize,
                    "seed {seed}: {venue} holds {players}"
                );
                for group in &mode.groups {
                    let is_in = |seat: &&SeatRow| seat.group.as_ref() == Some(&group.name);
                    let players = members(world, venue).filter(is_in).count();
                    assert!(
                        players <= group.max_players as usize,
                        "seed {seed}: group {} of {venue}",
                        group.name
                    );
                }
            }
        }
    }
}

/// All has come to rest.
pub(crate) fn settled(world: &World) {
    let seed = world.seed;
    limits(world);
    runtimes(world);
    for (client, seat) in &world.seats {
        let place = seat.venue.map(|venue| world.venues.get(&venue));
        assert!(
            !matches!(place, Some(None)),
            "seed {seed}: {client} sits in a place that is gone"
        );
        assert!(!seat.is_dismissed, "seed {seed}: {client} was to go");
        match world.state {
            CellState::Active if seat.venue.is_none() => waits_for_lobby(world, *client, seat),
            CellState::Active => waits_for_match(world, *client, seat),
            CellState::Draining => {
                let mode = seat.venue.and_then(|venue| mode_of(world, venue));
                assert!(mode.is_some(), "seed {seed}: {client} plays on");
            }
            CellState::Closing => panic!("seed {seed}: {client} is still here"),
        }
    }
    idle(world);
}

/// Every client is in the one runtime that it should be in, and every runtime on a host.
fn runtimes(world: &World) {
    let seed = world.seed;
    for (venue, row) in &world.venues {
        assert!(
            matches!(row.state, VenueState::Open | VenueState::Closed),
            "seed {seed}: {venue} is {:?}",
            row.state
        );
        assert_eq!(world.runtimes[venue].life, Life::Ready, "seed {seed}: {venue}");
    }
    assert_eq!(
        world.runtimes.len(),
        world.venues.len(),
        "seed {seed}: runtimes without a venue"
    );
    for (venue, runtime) in &world.runtimes {
        let members: BTreeSet<ClientId> = world.members(*venue).into_iter().collect();
        assert_eq!(runtime.clients, members, "seed {seed}: players of {venue}");
        assert!(runtime.host.is_some(), "seed {seed}: {venue} runs nowhere");
    }
    for (client, known) in &world.clients {
        assert_eq!(known.at, world.seats[client].venue, "seed {seed}: {client}");
        // Whoever went and came back may have its own runtime on the list.
        let left = known.left.iter().find(|venue| Some(**venue) != known.at);
        assert_eq!(left, None, "seed {seed}: {client} left and the runtime never heard");
    }
    assert!(
        !world.events.contains_key(&Job::Cell),
        "seed {seed}: the cell is not at rest"
    );
}

fn waits_for_lobby(world: &World, client: ClientId, seat: &SeatRow) {
    let seed = world.seed;
    let lobbies = living(world).filter(|(_, row)| row.qualifier == RuntimeQualifier::Lobby);
    let mut count = 0;
    for (venue, _) in lobbies {
        count += 1;
        let players = members(world, venue).count();
        let room = world.config.lobby.max_assignments as usize;
        assert!(players >= room, "seed {seed}: {client} waits while {venue} has room");
    }
    assert_eq!(
        count, world.config.max_lobbies,
        "seed {seed}: {client} waits though there may be another lobby"
    );
    let told = format!("{:?}", seat.told);
    assert!(
        told.contains("all lobbies are full"),
        "seed {seed}: {client} was told {told}"
    );
}

fn waits_for_match(world: &World, client: ClientId, seat: &SeatRow) {
    let Some(wish) = &seat.wanted_mode else {
        return;
    };
    let seed = world.seed;
    let mode = world.version.mode(wish).expect("wishes are for modes that exist");
    let told = format!("{:?}", seat.told);
    assert!(told.contains("Matchmaking"), "seed {seed}: {client} was told {told}");
    let in_line: Vec<&SeatRow> = world
        .seats
        .values()
        .filter(|seat| seat.wanted_mode.as_ref() == Some(wish))
        .collect();
    for (venue, row) in living(world) {
        if row.mode.as_ref() != Some(wish) || row.state != VenueState::Open || seat.venue == Some(venue) {
            continue;
        }
        let others = in_line.iter().filter(|seat| seat.venue != Some(venue)).count();
        let present: Vec<&SeatRow> = members(world, venue).collect();
        assert!(
            !could_play(mode, &present, others),
            "seed {seed}: {client} waits for {wish} while {venue} has a place"
        );
    }
    let matches = living(world)
        .filter(|(_, row)| row.qualifier == RuntimeQualifier::Match)
        .count();
    let may_start = matches < world.config.matchmaker.max_matches as usize;
    assert!(
        !may_start || !could_play(mode, &[], in_line.len()),
        "seed {seed}: {} wait for {wish} and no match starts",
        in_line.len()
    );
}

/// Empty lobbies and matches are there only as far as they are wanted.
fn idle(world: &World) {
    let seed = world.seed;
    let wanted = |count: u32| {
        if world.state == CellState::Active {
            count as usize
        } else {
            0
        }
    };
    let lobbies = || living(world).filter(|(_, row)| row.qualifier == RuntimeQualifier::Lobby);
    let empty = lobbies()
        .filter(|(venue, _)| members(world, *venue).count() == 0)
        .count();
    let min_lobbies = wanted(world.config.min_lobbies);
    let count = lobbies().count();
    assert!(count >= min_lobbies, "seed {seed}: {count} lobbies of {min_lobbies}");
    assert!(
        empty == 0 || count <= min_lobbies,
        "seed {seed}: {empty} of {count} lobbies are empty"
    );
    let matches = || living(world).filter(|(_, row)| row.qualifier == RuntimeQualifier::Match);
    for mode in &world.version.modes {
        let spares = world.config.matchmaker.modes.get(&mode.name);
        let wanted = wanted(spares.map_or(0, |spares| spares.min_matches));
        let empty = matches()
            .filter(|(venue, row)| row.mode.as_ref() == Some(&mode.name) && members(world, *venue).count() == 0)
            .inspect(|(venue, row)| assert_eq!(row.state, VenueState::Open, "seed {seed}: {venue}"))
            .count();
        assert!(empty <= wanted, "seed {seed}: {empty} empty matches of {}", mode.name);
        let is_full = matches().count() == world.config.matchmaker.max_matches as usize;
        assert!(
            empty == wanted || is_full,
            "seed {seed}: {empty} spare matches of {}",
            mode.name
        );
    }
}

/// Everybody has left, and all has come to rest.
pub(crate) fn deserted(world: &World) {
    settled(world);
    let seed = world.seed;
    assert!(
        world.clients.is_empty() && world.seats.is_empty(),
        "seed {seed}: somebody is left"
    );
    let is_active = world.state == CellState::Active;
    let lobbies = living(world)
        .filter(|(_, row)| row.qualifier == RuntimeQualifier::Lobby)
        .count();
    let expected = if is_active {
        world.config.min_lobbies as usize
    } else {
        0
    };
    assert_eq!(lobbies, expected, "seed {seed}: lobbies");
    let wanted: u32 = world
        .config
        .matchmaker
        .modes
        .values()
        .map(|spares| spares.min_matches)
        .sum();
    let expected = if is_active {
        wanted.min(world.config.matchmaker.max_matches)
    } else {
        0
    };
    assert_eq!(world.venues.len() - lobbies, expected as usize, "seed {seed}: matches");
}

fn living(world: &World) -> impl Iterator<Item = (VenueId, &VenueRow)> {
    let rows = world.venues.iter().map(|(id, row)| (*id, row));
    rows.filter(|(_, row)| row.state != VenueState::Gone)
}

fn members(world: &World, venue: VenueId) -> impl Iterator<Item = &SeatRow> {
    world.seats.values().filter(move |seat| seat.venue == Some(venue))
}

fn mode_of(world: &World, venue: VenueId) -> Option<&ModeConfig> {
    world.version.mode(world.venues.get(&venue)?.mode.as_deref()?)
}

fn can_play(mode: &ModeConfig, players: &[&SeatRow]) -> Result<(), String> {
    if players.len() < mode.min_players as usize {
        return Err(format!("{} of {} players", players.len(), mode.min_players));
    }
    for group in &mode.groups {
        let count = players
            .iter()
            .filter(|seat| seat.group.as_ref() == Some(&group.name))
            .count();
        if count < group.min_players as usize {
            return Err(format!("{count} of {} players in {}", group.min_players, group.name));
        }
    }
    Ok(())
}

/// Whether one or more newcomers, up to `others`, can be dealt to the groups so that the match can be played. Tries all.
fn could_play(mode: &ModeConfig, present: &[&SeatRow], others: usize) -> bool {
    deals(mode.groups.len(), others).into_iter().any(|deal| {
        let newcomers: usize = deal.iter().sum();
        let staying = present.iter().filter(|seat| seat.wanted_mode.is_none()).count();
        let groups_fit = mode.groups.iter().zip(&deal).all(|(group, newcomers)| {
            let is_in = |seat: &&&SeatRow| seat.group.as_ref() == Some(&group.name);
            let there = present.iter().filter(is_in).count();
            let staying = present
                .iter()
                .filter(is_in)
                .filter(|seat| seat.wanted_mode.is_none())
                .count();
            staying + newcomers >= group.min_players as usize && there + newcomers <= group.max_players as usize
        });
        let fits =
            staying + newcomers >= mode.min_players as usize && present.len() + newcomers <= mode.max_players as usize;
        newcomers > 0 && fits && groups_fit
    })
}

/// All ways to deal at most so many to so many groups.
fn deals(groups: usize, players: usize) -> Vec<Vec<usize>> {
    if groups == 0 {
        return vec![Vec::new()];
    }
    (0..=players)
        .flat_map(|first| {
            deals(groups - 1, players - first).into_iter().map(move |mut rest| {
                rest.insert(0, first);
                rest
            })
        })
        .collect()
}
