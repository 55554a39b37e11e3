//! The two languages of a runtime's connection: what waits for the runtime, and what a text frame of an old SDK means.
//! Sans-I/O; the binary language itself is `protocol::mux`.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::{BufMut as _, Bytes, BytesMut};
use omgservers_protocol::id::ClientId;
use omgservers_protocol::mux::{self, DoesNotFit, Lane, Left};
use serde::Deserialize;

/// Padded when written; read with or without padding, as the old dispatcher did.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// About a tick of a busy match.
const KEPT_BUFFER_BYTES: usize = 256 * 1024;

/// Which language a runtime speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// One JSON text per message.
    Json,
    /// Binary batches.
    Mux,
}

/// What waits for a runtime, already in its language. Buffers are kept when it is emptied, so that a busy link
/// allocates nothing.
#[derive(Debug)]
pub(crate) enum Backlog {
    /// Texts one after the other, and where each ends.
    Json { texts: BytesMut, ends: Vec<usize> },
    /// Full batches and the one that is being filled.
    Mux { full: Vec<BytesMut>, open: BytesMut },
}

impl Backlog {
    pub(crate) fn new(dialect: Dialect) -> Self {
        match dialect {
            Dialect::Json => Self::Json {
                texts: BytesMut::new(),
                ends: Vec::new(),
            },
            Dialect::Mux => Self::Mux {
                full: Vec::new(),
                open: BytesMut::new(),
            },
        }
    }

    /// A message of a player. It must be UTF-8 if it is `text`, and no longer than `mux::MESSAGE_BYTES_MAX`.
    pub(crate) fn put_data(&mut self, client: ClientId, lane: Lane, text: bool, message: &[u8]) {
        match self {
            Self::Json { texts, ends } => {
                put_json(texts, client, text, message);
                ends.push(texts.len());
            }
            Self::Mux { full, open } => put(full, open, |open| mux::put_data(open, client, lane, text, message)),
        }
    }

    /// A player is in the room. Old SDKs are not told.
    pub(crate) fn put_joined(&mut self, client: ClientId) {
        if let Self::Mux { full, open } = self {
            put(full, open, |open| mux::put_joined(open, client));
        }
    }

    /// A player is no longer in the room. Old SDKs are not told.
    pub(crate) fn put_left(&mut self, client: ClientId, left: Left) {
        if let Self::Mux { full, open } = self {
            put(full, open, |open| mux::put_left(open, client, left));
        }
    }

    /// Everybody in the room has been named. Old SDKs are not told.
    pub(crate) fn put_synced(&mut self) {
        if let Self::Mux { full, open } = self {
            put(full, open, mux::put_synced);
        }
    }

    /// Puts what waited for an earlier link of the same dialect behind what is here.
    pub(crate) fn append(&mut self, earlier: Self) {
        if let (
            Self::Mux { full, open },
            Self::Mux {
                full: earlier_full,
                open: earlier_open,
            },
        ) = (self, earlier)
        {
            full.push(std::mem::take(open));
            full.extend(earlier_full);
            *open = earlier_open;
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Json { texts, .. } => texts.len(),
            Self::Mux { full, open } => full.iter().map(BytesMut::len).sum::<usize>() + open.len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Json { ends, .. } => ends.is_empty(),
            Self::Mux { full, open } => full.is_empty() && open.is_empty(),
        }
    }

    /// Empties it. The buffers are kept unless a busy moment made them large.
    pub(crate) fn clear(&mut self) {
        let buffer = match self {
            Self::Json { texts, ends } => {
                ends.clear();
                texts
            }
            Self::Mux { full, open } => {
                full.clear();
                open
            }
        };
        if buffer.capacity() > KEPT_BUFFER_BYTES {
            *buffer = BytesMut::new();
        }
        buffer.clear();
    }

    /// Calls `send` with every message that waits, oldest first.
    pub(crate) fn for_each(&self, mut send: impl FnMut(&[u8])) {
        match self {
            Self::Json { texts, ends } => {
                let mut start = 0;
                for end in ends {
                    send(&texts[start..*end]);
                    start = *end;
                }
            }
            Self::Mux { full, open } => {
                let batches = full.iter().chain([open]).filter(|batch| !batch.is_empty());
                batches.for_each(|batch| send(batch));
            }
        }
    }
}

fn put(full: &mut Vec<BytesMut>, open: &mut BytesMut, append: impl Fn(&mut BytesMut) -> Result<(), DoesNotFit>) {
    if append(open) == Err(DoesNotFit::BatchFull) {
        full.push(std::mem::take(open));
        append(open).expect("an empty batch holds any frame");
    }
}

/// `{"client_id":"790…","encoding":"TXT","message":"…"}`
fn put_json(texts: &mut BytesMut, client: ClientId, text: bool, message: &[u8]) {
    use std::io::Write as _;
    let encoding = if text { "TXT" } else { "B64" };
    let mut writer = texts.writer();
    write!(writer, r#"{{"client_id":"{client}","encoding":"{encoding}","message":"#).expect("a buffer takes any write");
    if text {
        let message = std::str::from_utf8(message).expect("texts of players were checked when they were read");
        serde_json::to_writer(&mut writer, message).expect("a buffer takes any write");
        texts.put_u8(b'}');
    } else {
        texts.put_u8(b'"');
        let start = texts.len();
        texts.resize(start + message.len().div_ceil(3) * 4, 0);
        let length = BASE64
            .encode_slice(message, &mut texts[start..])
            .expect("four characters for three bytes is what it takes");
        texts.truncate(start + length);
        texts.put_slice(b"\"}");
    }
}

/// What a text frame of an old SDK asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct JsonSend {
    /// `None` is everybody.
    pub(crate) clients: Option<Vec<ClientId>>,
    pub(crate) text: bool,
    pub(crate) bytes: Bytes,
}

#[derive(Deserialize)]
struct JsonFrame<'a> {
    #[serde(default)]
    clients: Option<Vec<ClientId>>,
    encoding: &'a str,
    #[serde(borrow)]
    message: std::borrow::Cow<'a, str>,
}

/// Reads `{"clients":["790…"],"encoding":"TXT","message":"…"}`. The error says why the frame is ignored.
pub(crate) fn parse_json(frame: &[u8]) -> Result<JsonSend, &'static str> {
    let frame: JsonFrame<'_> = serde_json::from_slice(frame).map_err(|_| "not the expected JSON")?;
    if frame.message.is_empty() {
        return Err("empty message");
    }
    let (text, bytes) = match frame.encoding {
        "TXT" => (true, Bytes::copy_from_slice(frame.message.as_bytes())),
        "B64" => {
            let bytes = BASE64
                .decode(frame.message.as_bytes())
                .map_err(|_| "undecodable base64")?;
            (false, Bytes::from(bytes))
        }
        _ => return Err("unknown encoding"),
    };
    if bytes.len() > mux::MESSAGE_BYTES_MAX {
        return Err("message too long");
    }
    Ok(JsonSend {
        clients: frame.clients,
        text,
        bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(frame: &str) -> Result<(Option<Vec<i64>>, bool, String), &'static str> {
        parse_json(frame.as_bytes()).map(|send| {
            let clients = send
                .clients
                .map(|clients| clients.into_iter().map(ClientId::get).collect());
            (clients, send.text, String::from_utf8(send.bytes.to_vec()).unwrap())
        })
    }

    #[test]
    fn a_text_frame_names_players_or_means_everybody() {
        let cases = [
            (
                r#"{"clients":["1","2"],"encoding":"TXT","message":"hi"}"#,
                Some(vec![1, 2]),
                true,
                "hi",
            ),
            (
                r#"{"clients":[1,"1"],"encoding":"TXT","message":"hi"}"#,
                Some(vec![1, 1]),
                true,
                "hi",
            ),
            (
                r#"{"clients":[],"encoding":"TXT","message":"hi"}"#,
                Some(vec![]),
                true,
                "hi",
            ),
            (r#"{"clients":null,"encoding":"TXT","message":"hi"}"#, None, true, "hi"),
            (r#"{"encoding":"TXT","message":"a\"ä\n"}"#, None, true, "a\"ä\n"),
            (
                r#"{"encoding":"B64","message":"aGFsbG8=","more":[1]}"#,
                None,
                false,
                "hallo",
            ),
            (r#"{"encoding":"B64","message":"aGFsbG8"}"#, None, false, "hallo"),
        ];
        for (frame, clients, text, message) in cases {
            assert_eq!(parsed(frame), Ok((clients, text, message.to_owned())), "{frame}");
        }
    }

    #[test]
    fn a_bad_text_frame_is_refused_as_a_whole() {
        let cases = [
            ("", "not the expected JSON"),
            ("[]", "not the expected JSON"),
            (
                r#"{"clients":["x"],"encoding":"TXT","message":"hi"}"#,
                "not the expected JSON",
            ),
            (r#"{"clients":["1"],"message":"hi"}"#, "not the expected JSON"),
            (r#"{"clients":["1"],"encoding":"TXT"}"#, "not the expected JSON"),
            (r#"{"encoding":"TXT","message":7}"#, "not the expected JSON"),
            (r#"{"encoding":"txt","message":"hi"}"#, "unknown encoding"),
            (r#"{"encoding":"TXT","message":""}"#, "empty message"),
            (r#"{"encoding":"B64","message":"%%"}"#, "undecodable base64"),
        ];
        for (frame, expected) in cases {
            assert_eq!(parsed(frame), Err(expected), "{frame}");
        }
        let long = format!(
            r#"{{"encoding":"TXT","message":"{}"}}"#,
            "x".repeat(mux::MESSAGE_BYTES_MAX + 1)
        );
        assert_eq!(parsed(&long), Err("message too long"));
    }

    fn messages(backlog: &Backlog) -> Vec<Vec<u8>> {
        let mut messages = Vec::new();
        backlog.for_each(|message| messages.push(message.to_vec()));
        messages
    }

    #[test]
    fn old_sdks_get_one_json_text_per_message() {
        let mut backlog = Backlog::new(Dialect::Json);
        let client = ClientId(245515657456648192);
        backlog.put_joined(client);
        backlog.put_data(client, Lane::Reliable, true, "say \"ä\"\u{1}".as_bytes());
        backlog.put_data(client, Lane::Reliable, false, b"hallo");
        backlog.put_data(client, Lane::Reliable, false, b"");
        backlog.put_left(client, Left::Closed);
        let expected = [
            r#"{"client_id":"245515657456648192","encoding":"TXT","message":"say \"ä\"\u0001"}"#,
            r#"{"client_id":"245515657456648192","encoding":"B64","message":"aGFsbG8="}"#,
            r#"{"client_id":"245515657456648192","encoding":"B64","message":""}"#,
        ];
        let texts: Vec<_> = messages(&backlog)
            .into_iter()
            .map(|text| String::from_utf8(text).unwrap())
            .collect();
        assert_eq!(texts, expected);
        backlog.clear();
        assert!(backlog.is_empty() && messages(&backlog).is_empty());
    }

    #[test]
    fn batches_are_full_before_another_is_begun_and_none_is_too_long() {
        let mut backlog = Backlog::new(Dialect::Mux);
        let message = vec![7; 60_000];
        for client in 0..40 {
            backlog.put_data(ClientId(client), Lane::Reliable, false, &message);
        }
        let batches = messages(&backlog);
        assert_eq!(batches.len(), 3);
        let mut heard = 0;
        for batch in batches {
            assert!(batch.len() <= mux::BATCH_BYTES_MAX);
            for frame in mux::decode::<mux::ToRuntime>(batch.into()) {
                let mux::ToRuntime::Data { client, bytes, .. } = frame.unwrap() else {
                    panic!("only data was put")
                };
                assert_eq!((client, &bytes[..]), (ClientId(heard), &message[..]));
                heard += 1;
            }
        }
        assert_eq!(heard, 40);
    }
}
