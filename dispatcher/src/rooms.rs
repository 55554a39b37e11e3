//! All rooms of this process: finds them, locks them, and carries out what they ask for. No lock is held over an await.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use omgservers_protocol::dispatcher::RoomEvent;
use omgservers_protocol::id::{ClientId, RuntimeId};
use tokio::sync::{Notify, mpsc};

use crate::farewell::Farewell;
use crate::link::Dialect;
use crate::meters::Meters;
use crate::room::{Connection, Input, Limits, Output, Room};

/// The way to one connection's writer.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    /// Something waits, or there are words from outside the room's queues.
    pub(crate) rung: Notify,
    /// The end is near: do not wait for a socket that takes nothing.
    pub(crate) closing: Notify,
    words: Mutex<Words>,
}

#[derive(Debug, Default)]
struct Words {
    farewell: Option<Box<Farewell>>,
    pong: Option<Bytes>,
}

impl Bell {
    /// The connection must end with these words.
    pub(crate) fn close(&self, farewell: Box<Farewell>) {
        lock(&self.words).farewell = Some(farewell);
        self.closing.notify_one();
        self.rung.notify_one();
    }

    /// Answers a ping. Only the latest needs an answer.
    pub(crate) fn pong(&self, payload: Bytes) {
        lock(&self.words).pong = Some(payload);
        self.rung.notify_one();
    }

    /// The last words, if it is time for them, and the answer to a ping.
    pub(crate) fn take_words(&self) -> (Option<Box<Farewell>>, Option<Bytes>) {
        let mut words = lock(&self.words);
        (words.farewell.take(), words.pong.take())
    }
}

/// Outputs on their way from a room to those concerned; kept by each connection, so that nothing is allocated anew.
pub(crate) type Scratch = Vec<Output<Arc<Bell>>>;

/// A room and its lock.
pub(crate) struct SharedRoom {
    runtime: RuntimeId,
    room: Mutex<Room<Arc<Bell>>>,
}

impl SharedRoom {
    pub(crate) fn runtime(&self) -> RuntimeId {
        self.runtime
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Room<Arc<Bell>>> {
        lock(&self.room)
    }
}

pub(crate) struct Rooms {
    started: Instant,
    limits: Limits,
    table: Mutex<HashMap<RuntimeId, Arc<SharedRoom>>>,
    connections: AtomicU64,
    events: mpsc::Sender<RoomEvent>,
    meters: Arc<Meters>,
}

impl Rooms {
    pub(crate) fn new(limits: Limits, events: mpsc::Sender<RoomEvent>, meters: Arc<Meters>) -> Self {
        Self {
            started: Instant::now(),
            limits,
            table: Mutex::default(),
            connections: AtomicU64::new(1),
            events,
            meters,
        }
    }

    /// Time since the start, as rooms count it.
    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Opens or takes over the room of a runtime.
    pub(crate) fn open_runtime(
        &self,
        runtime: RuntimeId,
        dialect: Dialect,
        bell: &Arc<Bell>,
    ) -> (Arc<SharedRoom>, Connection) {
        let connection = self.connections.fetch_add(1, Ordering::Relaxed);
        let input = Input::RuntimeOpened {
            connection,
            bell: bell.clone(),
            dialect,
        };
        // Both locks, in this order everywhere: a room that just ended must not be entered again.
        let mut table = lock(&self.table);
        let room = match table.get(&runtime) {
            Some(room) if !room.lock().is_over() => room.clone(),
            _ => {
                let room = Arc::new(SharedRoom {
                    runtime,
                    room: Mutex::new(Room::new(runtime, self.limits)),
                });
                table.insert(runtime, room.clone());
                room
            }
        };
        let mut scratch = Scratch::new();
        self.step(&room, &mut scratch, input);
        drop(table);
        carry_out(&mut scratch);
        (room, connection)
    }

    /// Enters a room, if there is one.
    pub(crate) fn open_player(
        &self,
        runtime: RuntimeId,
        client: ClientId,
        bell: &Arc<Bell>,
    ) -> Option<(Arc<SharedRoom>, Connection)> {
        let room = lock(&self.table).get(&runtime)?.clone();
        let connection = self.connections.fetch_add(1, Ordering::Relaxed);
        let input = Input::PlayerOpened {
            connection,
            client,
            bell: bell.clone(),
        };
        self.apply(&room, &mut Scratch::new(), input);
        Some((room, connection))
    }

    /// Tells a room what happened, and those concerned what follows.
    pub(crate) fn apply(&self, room: &Arc<SharedRoom>, scratch: &mut Scratch, input: Input<'_, Arc<Bell>>) {
        let over = self.step(room, scratch, input);
        carry_out(scratch);
        if over {
            self.forget(room);
        }
    }

    /// Lets time pass in every room.
    pub(crate) fn tick(&self) {
        let rooms: Vec<_> = lock(&self.table).values().cloned().collect();
        let mut scratch = Scratch::new();
        let mut linked = 0;
        let mut players = 0;
        for room in &rooms {
            self.apply(room, &mut scratch, Input::Tick);
            let mut room = room.lock();
            linked += u64::from(room.is_linked());
            players += room.clients().len() as u64;
            self.meters.add(&room.take_counts());
        }
        self.meters.set_rooms(rooms.len() as u64, linked, players);
    }

    /// Closes every connection.
    pub(crate) fn stop(&self) {
        let rooms: Vec<_> = lock(&self.table).values().cloned().collect();
        let mut scratch = Scratch::new();
        for room in rooms {
            self.apply(&room, &mut scratch, Input::Stop);
        }
    }

    /// Everybody whose connection is open.
    pub(crate) fn clients(&self) -> Vec<ClientId> {
        let rooms: Vec<_> = lock(&self.table).values().cloned().collect();
        let mut clients = Vec::new();
        for room in rooms {
            clients.extend(room.lock().clients());
        }
        clients
    }

    /// Whether the room is over.
    fn step(&self, room: &SharedRoom, scratch: &mut Scratch, input: Input<'_, Arc<Bell>>) -> bool {
        let now = self.now();
        let mut room = room.lock();
        room.handle(now, input);
        while let Some(output) = room.poll() {
            match output {
                // Under the lock, so that the service hears of changes in the order in which they happened.
                Output::Event(event) => {
                    if self.events.try_send(event).is_err() {
                        self.meters.lost_events.increment(1);
                    }
                }
                output => scratch.push(output),
            }
        }
        room.is_over()
    }

    fn forget(&self, room: &Arc<SharedRoom>) {
        let mut table = lock(&self.table);
        if table
            .get(&room.runtime)
            .is_some_and(|current| Arc::ptr_eq(current, room))
        {
            table.remove(&room.runtime);
        }
        drop(table);
        self.meters.add(&room.lock().take_counts());
    }
}

fn carry_out(scratch: &mut Scratch) {
    for output in scratch.drain(..) {
        match output {
            Output::Wake(bell) => bell.rung.notify_one(),
            Output::Close(bell, farewell) => bell.close(farewell),
            Output::Event(_) => unreachable!("events were sent under the lock"),
        }
    }
}

/// A panic while a lock was held leaves data that is still sound: every change of a room is complete or not visible.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
