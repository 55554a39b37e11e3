//! The wire dialect W1: envelopes of messages and commands, and how one that is not well-formed is told from one that is.

use serde::{Deserialize, Serialize};

use crate::Json;
use crate::id::{CommandId, MessageId, RuntimeId};
use crate::message::{FromPlayer, FromRuntime};

/// Service → player: `{"id","qualifier","body"}`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PlayerMessage {
    pub id: MessageId,
    pub qualifier: String,
    pub body: Json,
}

/// Service → runtime. SDKs read `id`, `qualifier` and `body`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RuntimeCommand {
    pub id: CommandId,
    pub idempotency_key: String,
    pub runtime_id: RuntimeId,
    pub created: String,
    pub modified: String,
    pub qualifier: String,
    pub body: Json,
    pub deleted: bool,
}

/// What a runtime sends: no id.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OutgoingCommand {
    pub qualifier: String,
    pub body: Json,
}

impl From<&FromRuntime> for OutgoingCommand {
    fn from(command: &FromRuntime) -> Self {
        Self {
            qualifier: command.qualifier().to_owned(),
            body: command.body(),
        }
    }
}

/// What a player sends.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OutgoingMessage {
    pub id: i64,
    pub qualifier: String,
    pub body: OutgoingData,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OutgoingData {
    pub data: Json,
}

/// The only thing a player says.
pub const CLIENT_OUTGOING_MESSAGE: &str = "CLIENT_OUTGOING_MESSAGE";

/// Why an element of a batch was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// Not the JSON that was expected, or an unknown qualifier.
    Malformed(String),
    /// Known, but not something a player may send.
    NotOutgoing(String),
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(default, borrow)]
    id: Option<&'a serde_json::value::RawValue>,
    qualifier: String,
    #[serde(borrow)]
    body: &'a serde_json::value::RawValue,
}

fn envelope(element: &Json) -> Result<Envelope<'_>, Refused> {
    serde_json::from_str(element.get()).map_err(|cause| Refused::Malformed(cause.to_string()))
}

/// Lua writes an empty table as `[]`.
fn object(body: &serde_json::value::RawValue) -> &str {
    let is_empty_array = body
        .get()
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .is_some_and(|inner| inner.trim().is_empty());
    if is_empty_array { "{}" } else { body.get() }
}

/// Reads one command of a runtime.
pub fn parse_from_runtime(element: &Json) -> Result<FromRuntime, Refused> {
    let envelope = envelope(element)?;
    match FromRuntime::parse(&envelope.qualifier, object(envelope.body)) {
        Some(Ok(command)) => Ok(command),
        Some(Err(cause)) => Err(Refused::Malformed(format!("{}: {cause}", envelope.qualifier))),
        None => Err(Refused::Malformed(format!(
            "unknown qualifier `{}`",
            envelope.qualifier
        ))),
    }
}

/// Reads one message of a player.
pub fn parse_from_player(element: &Json) -> Result<FromPlayer, Refused> {
    let envelope = envelope(element)?;
    if envelope.qualifier != CLIENT_OUTGOING_MESSAGE {
        let known = [
            "SERVER_WELCOME_MESSAGE",
            "MATCHMAKER_ASSIGNMENT_MESSAGE",
            "RUNTIME_ASSIGNMENT_MESSAGE",
            "CONNECTION_UPGRADE_MESSAGE",
            "DISCONNECTION_REASON_MESSAGE",
            "SERVER_OUTGOING_MESSAGE",
        ];
        let qualifier = format!("unexpected qualifier `{}`", envelope.qualifier);
        return Err(if known.contains(&envelope.qualifier.as_str()) {
            Refused::NotOutgoing(qualifier)
        } else {
            Refused::Malformed(qualifier)
        });
    }
    let body: OutgoingData =
        serde_json::from_str(envelope.body.get()).map_err(|cause| Refused::Malformed(cause.to_string()))?;
    let number = envelope.id.and_then(|id| id.get().trim_matches('"').parse().ok());
    Ok(FromPlayer {
        number,
        data: body.data,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn commands_of_old_sdks_are_understood() {
        for text in [
            r#"{"qualifier":"STOP_MATCHMAKING","body":[]}"#,
            r#"{"qualifier":"STOP_MATCHMAKING","body":{"__object":true}}"#,
            r#"{"qualifier":"MULTICAST_MESSAGE","body":{"client":["1",2],"message":[]}}"#,
            r#"{"qualifier":"UPGRADE_CONNECTION","body":{"client_id":"1","protocol":"DISPATCHER"}}"#,
        ] {
            assert!(parse_from_runtime(&json(text)).is_ok(), "{text}");
        }
        for text in [
            r#"{"qualifier":"SET_ATTRIBUTES","body":{"client_id":"1"}}"#,
            r#"{"qualifier":"KICK_CLIENT"}"#,
            r#"{"body":{}}"#,
            "3",
            r#"{"qualifier":"KICK_CLIENT","body":{"client_id":"x"}}"#,
        ] {
            assert!(parse_from_runtime(&json(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn the_data_of_a_player_is_not_touched() {
        let element = json(
            r#"{"id":7,"qualifier":"CLIENT_OUTGOING_MESSAGE","body":{"data":{"b":1.0,"a":123456789012345678901234567890}}}"#,
        );
        let message = parse_from_player(&element).unwrap();
        assert_eq!(message.number, Some(7));
        assert_eq!(message.data.get(), r#"{"b":1.0,"a":123456789012345678901234567890}"#);
        let wrong = json(r#"{"id":7,"qualifier":"SERVER_OUTGOING_MESSAGE","body":{"message":1}}"#);
        assert!(matches!(parse_from_player(&wrong), Err(Refused::NotOutgoing(_))));
    }
}
