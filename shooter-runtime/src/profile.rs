//! What the game keeps about a player beyond a match, and what a name or a line of chat may look like.

use omgservers_runtime_sdk::{ClientId, Json};
use serde::{Deserialize, Serialize};

/// Characters.
const NAME_MAX: usize = 16;

/// Stored by the platform. Fields that this build does not know are kept.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Profile {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub wins: u32,
    pub kills: u32,
    pub deaths: u32,
    pub matches: u32,
    #[serde(flatten)]
    rest: serde_json::Map<String, serde_json::Value>,
}

impl Profile {
    /// A profile that cannot be read counts as none.
    pub fn parse(json: &Json) -> Self {
        let mut profile: Self = serde_json::from_str(json.get()).unwrap_or_default();
        profile.name = profile.name.as_deref().and_then(|name| clean(name, NAME_MAX));
        profile
    }

    /// The chosen name, or one made of the client's number.
    pub fn name_for(&self, client: ClientId) -> String {
        match &self.name {
            Some(name) => name.clone(),
            None => format!("Player {:04}", client.get().rem_euclid(10_000)),
        }
    }

    /// Whether the name was acceptable.
    pub fn rename(&mut self, name: &str) -> bool {
        let name = clean(name, NAME_MAX);
        let accepted = name.is_some();
        self.name = name.or(self.name.take());
        accepted
    }
}

/// Text for other people's screens: no control or invisible characters, white space collapsed. `None` when nothing is left or
/// more than `max` characters are.
pub fn clean(text: &str, max: usize) -> Option<String> {
    let mut cleaned = String::new();
    for word in text.split_whitespace() {
        let visible = word.chars().filter(|c| !c.is_control() && !is_invisible(*c));
        let word: String = visible.collect();
        if word.is_empty() {
            continue;
        }
        if !cleaned.is_empty() {
            cleaned.push(' ');
        }
        cleaned.push_str(&word);
    }
    let length = cleaned.chars().count();
    (1..=max).contains(&length).then_some(cleaned)
}

/// Joiners, direction marks and the like, with which names are faked.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Profile {
        Profile::parse(&serde_json::value::RawValue::from_string(text.to_owned()).unwrap())
    }

    #[test]
    fn names_are_cleaned_and_bounded() {
        let check = |name: &str, expected: Option<&str>| assert_eq!(clean(name, 16).as_deref(), expected, "{name:?}");
        check("Ada", Some("Ada"));
        check("  Ada \t Lovelace\n", Some("Ada Lovelace"));
        check("A\u{202e}d\u{200b}a\u{7}", Some("Ada"));
        check("Żółć 東京 🙂", Some("Żółć 東京 🙂"));
        check(" \u{200b} ", None);
        check("", None);
        check("12345678901234567", None);
    }

    #[test]
    fn a_profile_keeps_what_it_does_not_know() {
        let profile = parse(r#"{"name":"Ada","wins":3,"skin":{"hat":"red"}}"#);
        assert_eq!(
            (profile.name.as_deref(), profile.wins, profile.kills),
            (Some("Ada"), 3, 0)
        );
        let written = serde_json::to_value(&profile).unwrap();
        assert_eq!(written["skin"]["hat"], "red");
    }

    #[test]
    fn an_unreadable_profile_counts_as_none() {
        for text in ["null", "[]", "17", r#"{"wins":"many"}"#] {
            assert_eq!(parse(text), Profile::default(), "{text}");
        }
        assert_eq!(parse("{}").name_for(ClientId(790_123_456)), "Player 3456");
    }
}
