//! Short texts from outside, checked once when they are parsed: names, passwords, durations.

use std::fmt;
use std::time::Duration;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// Not blank and at most 64 characters: a name, an alias, a password. A JSON number is read as its digits, since
/// scripts pass ids without quotes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(
    feature = "openapi",
    derive(utoipa::ToSchema),
    schema(min_length = 1, max_length = 64)
)]
pub struct Text(String);

/// The message that a refused [`Text`] puts into the parser's error; the service maps it to its own qualifier.
pub const TEXT_CONSTRAINT: &str = "must not be blank, and have at most 64 characters";

impl Text {
    /// `None` when it is blank or too long.
    pub fn new(text: impl Into<String>) -> Option<Self> {
        let text = text.into();
        // Postgres stores no zero bytes.
        (!text.trim().is_empty() && text.chars().count() <= 64 && !text.contains('\0')).then_some(Self(text))
    }

    /// Where nothing is asked of it: blank and long ones too.
    pub fn any(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The id that it spells, if it does.
    pub fn as_id(&self) -> Option<i64> {
        self.0.parse().ok()
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Redacted, because it may be a password.
impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Text(…)")
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor { is_any: false })
    }
}

/// For fields that take [any](Text::any) text.
pub fn any<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Text, D::Error> {
    deserializer.deserialize_any(TextVisitor { is_any: true })
}

struct TextVisitor {
    is_any: bool,
}

impl Visitor<'_> for TextVisitor {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Text, E> {
        if self.is_any {
            return Ok(Text::any(text));
        }
        Text::new(text).ok_or_else(|| E::custom(TEXT_CONSTRAINT))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Text, E> {
        Ok(Text(number.to_string()))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Text, E> {
        Ok(Text(number.to_string()))
    }
}

/// A text that is never shown: the value of a variable, a key. How long it may be is for its reader to say.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A setting: `500ms`, `1s`, `2m`, `3h`, `4d` or bare seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let number: u64 = digits
        .parse()
        .map_err(|_| format!("`{text}` is not a duration such as `1s`"))?;
    let factor_ms = match &text[digits.len()..] {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        unit => return Err(format!("unknown unit `{unit}`")),
    };
    let duration = Duration::from_millis(number.saturating_mul(factor_ms));
    if duration.is_zero() {
        Err("must be more than zero".into())
    } else {
        Ok(duration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("2"), Ok(Duration::from_secs(2)));
        assert_eq!(duration("3h"), Ok(Duration::from_secs(3 * 3_600)));
        assert_eq!(duration("7d"), Ok(Duration::from_secs(7 * 86_400)));
        assert!(duration("0s").is_err() && duration("1w").is_err() && duration("x").is_err());
    }

    #[test]
    fn blank_and_long_texts_are_refused() {
        assert!(Text::new(" ").is_none() && Text::new("").is_none() && Text::new("x".repeat(65)).is_none());
        assert!(Text::new("ä".repeat(64)).is_some());
        assert_eq!(serde_json::from_str::<Text>("42").unwrap().as_id(), Some(42));
    }
}
