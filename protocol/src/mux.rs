//! The binary link between a dispatcher and a runtime, sub-protocol [`PROTOCOL`].
//!
//! Every WebSocket message on the link is binary and is one *batch*: frames one after the other until the message ends.
//! Numbers are little-endian. Texts are UTF-8, which is checked here, so that nobody else needs to.
//!
//! | frame | direction | bytes |
//! |---|---|---|
//! | joined | to the runtime | `1`, client i64 |
//! | left | to the runtime | `2`, client i64, why u8 |
//! | synced | to the runtime | `3` |
//! | data | to the runtime | `4`, flags u8, client i64, length u32, message |
//! | send to one | from the runtime | `16`, flags u8, client i64, length u32, message |
//! | send to many | from the runtime | `17`, flags u8, count u16, client i64 × count, length u32, message |
//! | send to all | from the runtime | `18`, flags u8, length u32, message |
//! | kick | from the runtime | `19`, client i64, length u8, reason |
//!
//! Flags: bit 0 is set for the unreliable lane, bit 1 for text; the others are zero.
//!
//! A link starts with one `joined` for every player who is in the room already, then `synced`: whoever a runtime knew
//! from an earlier link and was not named by then has left. After that `joined` and `left` tell every change.
//!
//! Nothing here does I/O. Whatever bytes arrive, decoding ends in frames or in [`Malformed`], never in a panic.

use std::marker::PhantomData;

use bytes::{BufMut as _, Bytes, BytesMut};

use crate::id::ClientId;

/// The name of the sub-protocol, as offered in `Sec-WebSocket-Protocol`.
pub const PROTOCOL: &str = "omgservers.mux.v1";

/// The longest message of a player or to one, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// The longest batch, in bytes.
pub const BATCH_BYTES_MAX: usize = 1024 * 1024;

/// The longest reason of a kick, in bytes: what a WebSocket close frame holds.
pub const REASON_BYTES_MAX: usize = 123;

/// The most players named by one frame; the rest takes another frame.
pub const CLIENTS_MAX: usize = u16::MAX as usize;

/// How a message travels between a player and the dispatcher. The link itself loses nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lane {
    /// In order and complete, or the player is disconnected.
    Reliable,
    /// Fresh or not at all.
    Unreliable,
}

/// Why a player is no longer in the room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Left {
    /// The player closed the connection, or it was lost.
    Closed = 0,
    /// Nothing was heard for too long.
    Idle = 1,
    /// The same client connected again: a `joined` follows.
    Replaced = 2,
    /// The reliable lane was full: too slow a reader, or too fast a sender.
    Overflowed = 3,
    /// The runtime asked for it.
    Kicked = 4,
    /// A frame that breaks the rules: too long, or not a message.
    Misbehaved = 5,
}

/// What a dispatcher tells a runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToRuntime {
    /// A player is in the room.
    Joined { client: ClientId },
    /// A player is no longer in the room.
    Left { client: ClientId, reason: Left },
    /// Everybody who was in the room when the link opened has been named.
    Synced,
    /// A player said something. If `text`, the bytes are UTF-8.
    Data {
        client: ClientId,
        lane: Lane,
        text: bool,
        bytes: Bytes,
    },
}

/// What a runtime tells a dispatcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FromRuntime {
    /// A message to players. If `text`, the bytes are UTF-8. Who is not connected is skipped.
    Send {
        clients: Clients,
        lane: Lane,
        text: bool,
        bytes: Bytes,
    },
    /// Closes a player's connection, after what was sent before. The reason is UTF-8.
    Kick { client: ClientId, reason: Bytes },
}

/// Who a decoded message is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Clients {
    One(ClientId),
    Many(ClientList),
    All,
}

/// Ids that are still part of the batch they came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientList(Bytes);

impl ClientList {
    /// The ids in the order of the sender; one that is named twice comes twice.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = ClientId> + '_ {
        self.0
            .chunks_exact(8)
            .map(|id| ClientId(i64::from_le_bytes(id.try_into().expect("chunks of eight bytes"))))
    }

    pub fn len(&self) -> usize {
        self.0.len() / 8
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Who a message to be encoded is for.
#[derive(Debug, Clone, Copy)]
pub enum To<'a> {
    One(ClientId),
    Many(&'a [ClientId]),
    All,
}

/// A frame was not appended, and the batch is as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DoesNotFit {
    /// Send this batch and start another.
    #[error("the batch is full")]
    BatchFull,
    /// No batch can hold it: the message, its list of players or the reason is too long.
    #[error("the message is too long")]
    TooLong,
}

/// A batch that is not made of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed batch: {0}")]
pub struct Malformed(&'static str);

const JOINED: u8 = 1;
const LEFT: u8 = 2;
const SYNCED: u8 = 3;
const DATA: u8 = 4;
const SEND_ONE: u8 = 16;
const SEND_MANY: u8 = 17;
const SEND_ALL: u8 = 18;
const KICK: u8 = 19;

const UNRELIABLE: u8 = 1;
const TEXT: u8 = 2;

/// Appends [`ToRuntime::Joined`].
pub fn put_joined(batch: &mut BytesMut, client: ClientId) -> Result<(), DoesNotFit> {
    reserve(batch, 1 + 8)?;
    batch.put_u8(JOINED);
    batch.put_i64_le(client.0);
    Ok(())
}

/// Appends [`ToRuntime::Left`].
pub fn put_left(batch: &mut BytesMut, client: ClientId, reason: Left) -> Result<(), DoesNotFit> {
    reserve(batch, 1 + 8 + 1)?;
    batch.put_u8(LEFT);
    batch.put_i64_le(client.0);
    batch.put_u8(reason as u8);
    Ok(())
}

/// Appends [`ToRuntime::Synced`].
pub fn put_synced(batch: &mut BytesMut) -> Result<(), DoesNotFit> {
    reserve(batch, 1)?;
    batch.put_u8(SYNCED);
    Ok(())
}

/// Appends [`ToRuntime::Data`]. If `text`, the message must be UTF-8, or the other side refuses the batch.
pub fn put_data(
    batch: &mut BytesMut,
    client: ClientId,
    lane: Lane,
    text: bool,
    message: &[u8],
) -> Result<(), DoesNotFit> {
    check_message(message)?;
    reserve(batch, 1 + 1 + 8 + 4 + message.len())?;
    batch.put_u8(DATA);
    batch.put_u8(flags(lane, text));
    batch.put_i64_le(client.0);
    put_message(batch, message);
    Ok(())
}

/// Appends [`FromRuntime::Send`]. If `text`, the message must be UTF-8, or the other side refuses the batch.
pub fn put_send(batch: &mut BytesMut, to: To<'_>, lane: Lane, text: bool, message: &[u8]) -> Result<(), DoesNotFit> {
    check_message(message)?;
    let recipients_bytes = match to {
        To::One(_) => 8,
        To::Many(clients) if clients.len() > CLIENTS_MAX => return Err(DoesNotFit::TooLong),
        To::Many(clients) => 2 + 8 * clients.len(),
        To::All => 0,
    };
    reserve(batch, 1 + 1 + recipients_bytes + 4 + message.len())?;
    match to {
        To::One(client) => {
            batch.put_u8(SEND_ONE);
            batch.put_u8(flags(lane, text));
            batch.put_i64_le(client.0);
        }
        To::Many(clients) => {
            batch.put_u8(SEND_MANY);
            batch.put_u8(flags(lane, text));
            batch.put_u16_le(clients.len() as u16);
            for client in clients {
                batch.put_i64_le(client.0);
            }
        }
        To::All => {
            batch.put_u8(SEND_ALL);
            batch.put_u8(flags(lane, text));
        }
    }
    put_message(batch, message);
    Ok(())
}

/// Appends [`FromRuntime::Kick`].
pub fn put_kick(batch: &mut BytesMut, client: ClientId, reason: &str) -> Result<(), DoesNotFit> {
    if reason.len() > REASON_BYTES_MAX {
        return Err(DoesNotFit::TooLong);
    }
    reserve(batch, 1 + 8 + 1 + reason.len())?;
    batch.put_u8(KICK);
    batch.put_i64_le(client.0);
    batch.put_u8(reason.len() as u8);
    batch.put_slice(reason.as_bytes());
    Ok(())
}

fn flags(lane: Lane, text: bool) -> u8 {
    let unreliable = if lane == Lane::Unreliable { UNRELIABLE } else { 0 };
    unreliable | if text { TEXT } else { 0 }
}

fn check_message(message: &[u8]) -> Result<(), DoesNotFit> {
    if message.len() > MESSAGE_BYTES_MAX {
        return Err(DoesNotFit::TooLong);
    }
    Ok(())
}

fn put_message(batch: &mut BytesMut, message: &[u8]) {
    batch.put_u32_le(message.len() as u32);
    batch.put_slice(message);
}

fn reserve(batch: &mut BytesMut, frame_bytes: usize) -> Result<(), DoesNotFit> {
    if batch.len() + frame_bytes > BATCH_BYTES_MAX {
        return Err(DoesNotFit::BatchFull);
    }
    batch.reserve(frame_bytes);
    Ok(())
}

/// The frames of a batch, in the direction that the caller asks for: `decode::<ToRuntime>(batch)`. Messages are slices
/// of the batch, not copies. After an error there is nothing more.
pub fn decode<F: Frame>(batch: Bytes) -> Frames<F> {
    let refused = (batch.len() > BATCH_BYTES_MAX).then_some(Malformed("longer than a batch may be"));
    Frames {
        rest: batch,
        refused,
        direction: PhantomData,
    }
}

/// Iterates over the frames of one batch.
#[derive(Debug)]
pub struct Frames<F> {
    rest: Bytes,
    refused: Option<Malformed>,
    direction: PhantomData<fn() -> F>,
}

impl<F: Frame> Iterator for Frames<F> {
    type Item = Result<F, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(refused) = self.refused.take() {
            self.rest.clear();
            return Some(Err(refused));
        }
        if self.rest.is_empty() {
            return None;
        }
        let frame = F::take(&mut Reader(&mut self.rest));
        if frame.is_err() {
            self.rest.clear();
        }
        Some(frame)
    }
}

/// A direction of the link: [`ToRuntime`] or [`FromRuntime`].
pub trait Frame: Sized + sealed::Sealed {
    #[doc(hidden)]
    fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::ToRuntime {}
    impl Sealed for super::FromRuntime {}
}

impl Frame for ToRuntime {
    fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        match reader.u8()? {
            JOINED => Ok(Self::Joined {
                client: reader.client()?,
            }),
            LEFT => Ok(Self::Left {
                client: reader.client()?,
                reason: reader.left()?,
            }),
            SYNCED => Ok(Self::Synced),
            DATA => {
                let (lane, text) = reader.flags()?;
                Ok(Self::Data {
                    client: reader.client()?,
                    lane,
                    text,
                    bytes: reader.message(text)?,
                })
            }
            _ => Err(Malformed("unknown frame to a runtime")),
        }
    }
}

impl Frame for FromRuntime {
    fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let kind = reader.u8()?;
        if kind == KICK {
            let client = reader.client()?;
            return Ok(Self::Kick {
                client,
                reason: reader.reason()?,
            });
        }
        let (lane, text) = reader.flags()?;
        let clients = match kind {
            SEND_ONE => Clients::One(reader.client()?),
            SEND_MANY => Clients::Many(reader.client_list()?),
            SEND_ALL => Clients::All,
            _ => return Err(Malformed("unknown frame from a runtime")),
        };
        Ok(Self::Send {
            clients,
            lane,
            text,
            bytes: reader.message(text)?,
        })
    }
}

/// Takes values off the front of a batch, each after a check that it is there.
#[derive(Debug)]
pub struct Reader<'a>(&'a mut Bytes);

impl Reader<'_> {
    fn bytes(&mut self, count: usize) -> Result<Bytes, Malformed> {
        if self.0.len() < count {
            return Err(Malformed("ends inside a frame"));
        }
        Ok(self.0.split_to(count))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let array = *self.0.first_chunk::<N>().ok_or(Malformed("ends inside a frame"))?;
        bytes::Buf::advance(self.0, N);
        Ok(array)
    }

    fn u8(&mut self) -> Result<u8, Malformed> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn client(&mut self) -> Result<ClientId, Malformed> {
        self.array().map(|id| ClientId(i64::from_le_bytes(id)))
    }

    fn left(&mut self) -> Result<Left, Malformed> {
        Ok(match self.u8()? {
            0 => Left::Closed,
            1 => Left::Idle,
            2 => Left::Replaced,
            3 => Left::Overflowed,
            4 => Left::Kicked,
            5 => Left::Misbehaved,
            _ => return Err(Malformed("unknown reason of a leave")),
        })
    }

    fn flags(&mut self) -> Result<(Lane, bool), Malformed> {
        let flags = self.u8()?;
        if flags & !(UNRELIABLE | TEXT) != 0 {
            return Err(Malformed("unknown flags"));
        }
        let lane = if flags & UNRELIABLE == 0 {
            Lane::Reliable
        } else {
            Lane::Unreliable
        };
        Ok((lane, flags & TEXT != 0))
    }

    fn client_list(&mut self) -> Result<ClientList, Malformed> {
        let count = u16::from_le_bytes(self.array()?);
        self.bytes(usize::from(count) * 8).map(ClientList)
    }

    fn message(&mut self, text: bool) -> Result<Bytes, Malformed> {
        let length = u32::from_le_bytes(self.array()?) as usize;
        if length > MESSAGE_BYTES_MAX {
            return Err(Malformed("longer than a message may be"));
        }
        let message = self.bytes(length)?;
        if text && std::str::from_utf8(&message).is_err() {
            return Err(Malformed("a text is not UTF-8"));
        }
        Ok(message)
    }

    fn reason(&mut self) -> Result<Bytes, Malformed> {
        let length = usize::from(self.u8()?);
        if length > REASON_BYTES_MAX {
            return Err(Malformed("longer than a reason may be"));
        }
        let reason = self.bytes(length)?;
        if std::str::from_utf8(&reason).is_err() {
            return Err(Malformed("a reason is not UTF-8"));
        }
        Ok(reason)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A frame as a test writes it.
    #[derive(Debug, Clone)]
    enum Sent {
        Joined(i64),
        Left(i64, Left),
        Synced,
        Data(i64, Lane, String, bool),
    }

    #[derive(Debug, Clone)]
    enum Said {
        One(i64, Lane, Vec<u8>),
        Many(Vec<i64>, Lane, String),
        All(Lane, Vec<u8>),
        Kick(i64, String),
    }

    fn lane() -> impl Strategy<Value = Lane> {
        prop_oneof![Just(Lane::Reliable), Just(Lane::Unreliable)]
    }

    fn sent() -> impl Strategy<Value = Sent> {
        let left = prop_oneof![
            Just(Left::Closed),
            Just(Left::Idle),
            Just(Left::Replaced),
            Just(Left::Overflowed),
            Just(Left::Kicked),
            Just(Left::Misbehaved),
        ];
        prop_oneof![
            any::<i64>().prop_map(Sent::Joined),
            (any::<i64>(), left).prop_map(|(client, left)| Sent::Left(client, left)),
            Just(Sent::Synced),
            (any::<i64>(), lane(), ".{0,40}", any::<bool>())
                .prop_map(|(client, lane, message, text)| Sent::Data(client, lane, message, text)),
        ]
    }

    fn said() -> impl Strategy<Value = Said> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..200);
        prop_oneof![
            (any::<i64>(), lane(), bytes()).prop_map(|(client, lane, bytes)| Said::One(client, lane, bytes)),
            (proptest::collection::vec(any::<i64>(), 0..20), lane(), ".{0,40}")
                .prop_map(|(clients, lane, text)| Said::Many(clients, lane, text)),
            (lane(), bytes()).prop_map(|(lane, bytes)| Said::All(lane, bytes)),
            (any::<i64>(), "[a-zä ]{0,40}").prop_map(|(client, reason)| Said::Kick(client, reason)),
        ]
    }

    proptest! {
        #[test]
        fn what_a_dispatcher_says_is_what_a_runtime_hears(frames in proptest::collection::vec(sent(), 0..30)) {
            let mut batch = BytesMut::new();
            let mut expected = Vec::new();
            for frame in frames {
                match frame {
                    Sent::Joined(client) => {
                        put_joined(&mut batch, ClientId(client)).unwrap();
                        expected.push(ToRuntime::Joined { client: ClientId(client) });
                    }
                    Sent::Left(client, reason) => {
                        put_left(&mut batch, ClientId(client), reason).unwrap();
                        expected.push(ToRuntime::Left { client: ClientId(client), reason });
                    }
                    Sent::Synced => {
                        put_synced(&mut batch).unwrap();
                        expected.push(ToRuntime::Synced);
                    }
                    Sent::Data(client, lane, message, text) => {
                        put_data(&mut batch, ClientId(client), lane, text, message.as_bytes()).unwrap();
                        let bytes = Bytes::from(message);
                        expected.push(ToRuntime::Data { client: ClientId(client), lane, text, bytes });
                    }
                }
            }
            let heard: Vec<ToRuntime> = decode(batch.freeze()).collect::<Result<_, _>>().unwrap();
            prop_assert_eq!(heard, expected);
        }

        #[test]
        fn what_a_runtime_says_is_what_a_dispatcher_hears(frames in proptest::collection::vec(said(), 0..30)) {
            let mut batch = BytesMut::new();
            for frame in &frames {
                match frame {
                    Said::One(client, lane, bytes) => {
                        put_send(&mut batch, To::One(ClientId(*client)), *lane, false, bytes)
                    }
                    Said::Many(clients, lane, text) => {
                        let clients: Vec<_> = clients.iter().copied().map(ClientId).collect();
                        put_send(&mut batch, To::Many(&clients), *lane, true, text.as_bytes())
                    }
                    Said::All(lane, bytes) => put_send(&mut batch, To::All, *lane, false, bytes),
                    Said::Kick(client, reason) => put_kick(&mut batch, ClientId(*client), reason),
                }
                .unwrap();
            }
            let heard: Vec<FromRuntime> = decode(batch.freeze()).collect::<Result<_, _>>().unwrap();
            prop_assert_eq!(heard.len(), frames.len());
            for (heard, said) in heard.into_iter().zip(frames) {
                let same = match (heard, said) {
                    (FromRuntime::Send { clients: Clients::One(id), lane: l, text, bytes: b }, Said::One(client, lane, bytes)) => {
                        id.0 == client && l == lane && !text && b == bytes
                    }
                    (FromRuntime::Send { clients: Clients::Many(ids), lane: l, text, bytes }, Said::Many(clients, lane, said)) => {
                        ids.iter().map(ClientId::get).eq(clients) && l == lane && text && bytes == said
                    }
                    (FromRuntime::Send { clients: Clients::All, lane: l, text, bytes: b }, Said::All(lane, bytes)) => {
                        l == lane && !text && b == bytes
                    }
                    (FromRuntime::Kick { client: id, reason: r }, Said::Kick(client, reason)) => {
                        id.0 == client && r == reason
                    }
                    _ => false,
                };
                prop_assert!(same);
            }
        }

        #[test]
        fn random_bytes_never_panic_and_always_end(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let bytes = Bytes::from(bytes);
            prop_assert!(decode::<ToRuntime>(bytes.clone()).count() <= bytes.len());
            prop_assert!(decode::<FromRuntime>(bytes.clone()).count() <= bytes.len());
        }

        #[test]
        fn a_batch_that_was_cut_or_changed_never_panics(
            frames in proptest::collection::vec(".{0,30}", 1..10), cut in any::<prop::sample::Index>(), flip in any::<u8>(),
        ) {
            let mut batch = BytesMut::new();
            for (client, text) in frames.iter().enumerate() {
                put_send(&mut batch, To::Many(&[ClientId(client as i64)]), Lane::Reliable, true, text.as_bytes()).unwrap();
            }
            let at = cut.index(batch.len());
            batch[at] ^= flip;
            let whole = batch.freeze();
            let _ = decode::<FromRuntime>(whole.clone()).count();
            let _ = decode::<FromRuntime>(whole.slice(..at)).count();
        }
    }

    fn refused<F: Frame + std::fmt::Debug>(batch: &[u8]) -> &'static str {
        let mut frames = decode::<F>(Bytes::copy_from_slice(batch));
        let malformed = frames
            .by_ref()
            .find_map(Result::err)
            .expect("the batch should be refused");
        assert!(frames.next().is_none(), "nothing follows an error");
        malformed.0
    }

    #[test]
    fn malformed_batches_are_refused_with_the_reason() {
        let mut good = BytesMut::new();
        put_joined(&mut good, ClientId(7)).unwrap();
        assert_eq!(refused::<ToRuntime>(&good[..5]), "ends inside a frame");
        assert_eq!(refused::<FromRuntime>(&good), "unknown flags");
        assert_eq!(refused::<FromRuntime>(&[1, 0]), "unknown frame from a runtime");
        assert_eq!(refused::<ToRuntime>(&[99]), "unknown frame to a runtime");
        assert_eq!(
            refused::<ToRuntime>(&[2, 0, 0, 0, 0, 0, 0, 0, 0, 77]),
            "unknown reason of a leave"
        );
        assert_eq!(refused::<FromRuntime>(&[18, 4, 0, 0, 0, 0]), "unknown flags");
        assert_eq!(
            refused::<FromRuntime>(&[18, 0, 1, 0, 1, 0]),
            "longer than a message may be"
        );
        assert_eq!(
            refused::<FromRuntime>(&[18, 0, 255, 255, 255, 255]),
            "longer than a message may be"
        );
        assert_eq!(
            refused::<FromRuntime>(&[18, 2, 1, 0, 0, 0, 0xff]),
            "a text is not UTF-8"
        );
        assert_eq!(refused::<FromRuntime>(&[17, 0, 255, 255]), "ends inside a frame");
        assert_eq!(
            refused::<FromRuntime>(&[19, 0, 0, 0, 0, 0, 0, 0, 0, 124]),
            "longer than a reason may be"
        );
        assert_eq!(
            refused::<FromRuntime>(&[19, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff]),
            "a reason is not UTF-8"
        );
        assert_eq!(
            refused::<ToRuntime>(&vec![3; BATCH_BYTES_MAX + 1]),
            "longer than a batch may be"
        );
    }

    #[test]
    fn frames_before_a_malformed_one_are_still_heard() {
        let mut batch = BytesMut::new();
        put_joined(&mut batch, ClientId(7)).unwrap();
        batch.put_u8(99);
        let frames: Vec<_> = decode::<ToRuntime>(batch.freeze()).collect();
        assert_eq!(frames[0], Ok(ToRuntime::Joined { client: ClientId(7) }));
        assert!(frames[1].is_err() && frames.len() == 2);
    }

    #[test]
    fn a_frame_that_does_not_fit_leaves_the_batch_as_it_was() {
        let mut batch = BytesMut::new();
        let message = vec![0; MESSAGE_BYTES_MAX];
        let too_long = vec![0; MESSAGE_BYTES_MAX + 1];
        assert_eq!(
            put_data(&mut batch, ClientId(1), Lane::Reliable, false, &too_long),
            Err(DoesNotFit::TooLong)
        );
        assert_eq!(
            put_send(&mut batch, To::All, Lane::Reliable, false, &too_long),
            Err(DoesNotFit::TooLong)
        );
        let crowd = vec![ClientId(1); CLIENTS_MAX + 1];
        assert_eq!(
            put_send(&mut batch, To::Many(&crowd), Lane::Reliable, false, &[]),
            Err(DoesNotFit::TooLong)
        );
        assert_eq!(
            put_kick(&mut batch, ClientId(1), &"x".repeat(REASON_BYTES_MAX + 1)),
            Err(DoesNotFit::TooLong)
        );
        assert!(batch.is_empty());
        let full = loop {
            let before = batch.len();
            if let Err(full) = put_send(&mut batch, To::All, Lane::Reliable, false, &message) {
                assert_eq!(batch.len(), before);
                break full;
            }
        };
        assert_eq!(full, DoesNotFit::BatchFull);
        assert!(batch.len() > BATCH_BYTES_MAX - MESSAGE_BYTES_MAX - 100);
        assert!(decode::<FromRuntime>(batch.freeze()).all(|frame| frame.is_ok()));
    }

    #[test]
    fn messages_are_slices_of_the_batch_and_not_copies() {
        let mut batch = BytesMut::new();
        put_send(&mut batch, To::All, Lane::Unreliable, false, &[9; 100]).unwrap();
        let batch = batch.freeze();
        let Some(Ok(FromRuntime::Send { bytes, .. })) = decode::<FromRuntime>(batch.clone()).next() else {
            panic!("one frame was sent");
        };
        assert!(batch.as_ptr_range().contains(&bytes.as_ptr()));
    }
}
