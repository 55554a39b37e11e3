//! JSON as the engine's Lua library writes and reads it, and errors as Lua raises them.
//!
//! Lua has one table for lists and objects, so an empty one has no type; it has no null, so a null member is no member;
//! its numbers are doubles printed with 14 digits; its encoder escapes the slash. All of that is visible on the wire. The
//! order of members, which in Lua is any, is by name here.

use serde_json::{Number, Value};
use std::fmt;

/// An error inside Lua code: an assertion of the SDK, an index into nil, a call on a closed socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptError(pub String);

impl ScriptError {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        ScriptError(text.into())
    }
}

impl fmt::Display for ScriptError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for ScriptError {}

/// Encodes with `encode_empty_table_as_object = false`, as all request bodies are.
pub fn encode(value: &Value) -> String {
    let mut out = String::new();
    write(value, "[]", &mut out);
    out
}

/// Encodes with the library's default: an empty table is an object.
pub(crate) fn encode_by_default(value: &Value) -> String {
    let mut out = String::new();
    write(value, "{}", &mut out);
    out
}

/// One string, quoted and escaped.
pub(crate) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    write_text(text, &mut out);
    out
}

/// Decodes a body; `Err` is where the library raises an error. Null members vanish, since nil is no value.
pub(crate) fn decode(body: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(body)
        .map(without_nil)
        .map_err(|error| error.to_string())
}

/// What `..` makes of a value: strings and numbers have a text, everything else raises an error.
pub(crate) fn concatenated(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number_text(number)),
        _ => None,
    }
}

/// A member of a table; indexing anything but a table is an error.
pub(crate) fn index<'a>(value: &'a Value, key: &str) -> Result<&'a Value, ScriptError> {
    match value {
        Value::Object(members) => Ok(members.get(key).unwrap_or(&Value::Null)),
        Value::Array(_) => Ok(&Value::Null),
        _ => Err(ScriptError::new(format!(
            "attempt to index a value that is no table (field '{key}')"
        ))),
    }
}

fn without_nil(value: Value) -> Value {
    match value {
        Value::Object(members) => Value::Object(
            members
                .into_iter()
                .filter(|(_, member)| !member.is_null())
                .map(|(key, member)| (key, without_nil(member)))
                .collect(),
        ),
        Value::Array(mut items) => {
            while items.last().is_some_and(Value::is_null) {
                items.pop();
            }
            Value::Array(items.into_iter().map(without_nil).collect())
        }
        other => other,
    }
}

fn write(value: &Value, empty_table: &str, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => out.push_str(&number_text(number)),
        Value::String(text) => write_text(text, out),
        Value::Array(items) if items.is_empty() => out.push_str(empty_table),
        Value::Object(members) if members.is_empty() => out.push_str(empty_table),
        Value::Array(items) => {
            for (position, item) in items.iter().enumerate() {
                out.push(if position == 0 { '[' } else { ',' });
                write(item, empty_table, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<(&String, &Value)> = members.iter().collect();
            members.sort_by_key(|(key, _)| *key);
            for (position, (key, member)) in members.into_iter().enumerate() {
                out.push(if position == 0 { '{' } else { ',' });
                write_text(key, out);
                out.push(':');
                write(member, empty_table, out);
            }
            out.push('}');
        }
    }
}

fn write_text(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '/' => out.push_str("\\/"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            '\0'..='\u{1f}' | '\u{7f}' => out.push_str(&format!("\\u{:04x}", u32::from(character))),
            other => out.push(other),
        }
    }
    out.push('"');
}

/// C's `%.14g`.
fn number_text(number: &Number) -> String {
    const DIGITS: i32 = 14;
    let value = number.as_f64().unwrap_or(f64::NAN);
    let scientific = format!("{value:.13e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().expect("Rust writes a decimal exponent");
    if (-4..DIGITS).contains(&exponent) {
        let decimals = usize::try_from(DIGITS - 1 - exponent).expect("the exponent is below the number of digits");
        trim_zeros(&format!("{value:.decimals$}")).to_owned()
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", trim_zeros(mantissa), exponent.abs())
    }
}

fn trim_zeros(decimal: &str) -> &str {
    if decimal.contains('.') {
        decimal.trim_end_matches('0').trim_end_matches('.')
    } else {
        decimal
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(json: &str, expected: &str) {
        let value = decode(json.as_bytes()).unwrap();
        assert_eq!(encode(&value), expected, "{json}");
    }

    #[test]
    fn empty_tables_lose_their_type() {
        check("{}", "[]");
        check(r#"{"inventory":{},"friends":[]}"#, r#"{"friends":[],"inventory":[]}"#);
        assert_eq!(encode_by_default(&json!({"profile": []})), r#"{"profile":{}}"#);
    }

    #[test]
    fn null_members_vanish() {
        check(r#"{"a":null,"b":1}"#, r#"{"b":1}"#);
        check(r#"{"a":{"b":null}}"#, r#"{"a":[]}"#);
        check("[1,null,2,null]", "[1,null,2]");
    }

    #[test]
    fn numbers_are_doubles_of_fourteen_digits() {
        check("0", "0");
        check("-7", "-7");
        check("0.5", "0.5");
        check("100000", "100000");
        check("12345678901234", "12345678901234");
        check("790000000000000001", "7.9e+17");
        check("0.1000000000000000055", "0.1");
        check("0.00001", "1e-05");
    }

    #[test]
    fn slashes_and_controls_are_escaped() {
        check(r#""a/b""#, r#""a\/b""#);
        check(
            r#""tab\t quote\" back\\ bell\u0007 del\u007f é""#,
            r#""tab\t quote\" back\\ bell\u0007 del\u007f é""#,
        );
    }

    #[test]
    fn text_that_is_not_json_is_an_error() {
        for body in ["", "<html>", "{\"a\":", "{} trailing"] {
            assert!(decode(body.as_bytes()).is_err(), "{body:?}");
        }
    }
}
