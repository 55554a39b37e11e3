//! Small damage to a document, of the kinds that people and programs do to theirs.

use rand::Rng as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use serde_json::{Value, json};

/// What no document can hold, only its text: numbers too large, half of a character, the same field twice.
const RAW: [&str; 8] = [
    "123456789012345678901234567890",
    "1e400",
    "-0",
    "1.0000000000000001",
    r#""\ud800""#,
    r#""\u0000""#,
    r#"{"a":1,"a":2}"#,
    "NaN",
];
/// A text that stands for one of those until the document is written.
const MARK: &str = "@raw";
/// Bytes of a text that grows, and of a document as it is sent. Longer than any body may be, and shorter than what is read of
/// one that is refused: who sends more than that is cut off.
const BYTES_MAX: usize = 12 << 20;

pub(super) struct Mutator {
    ids: Vec<Value>,
}

impl Mutator {
    pub(super) fn new(ids: &[i64]) -> Self {
        let ids = ids.iter().flat_map(|id| [json!(id), json!(id.to_string())]).collect();
        Self { ids }
    }

    /// Damages one place of the document.
    pub(super) fn change(&self, random: &mut StdRng, document: &mut Value) {
        let places = count(document);
        let place = pick(document, &mut random.random_range(0..places));
        match (random.random_range(0..10), place) {
            (0, Value::Object(fields)) if !fields.is_empty() => {
                let name = fields.keys().nth(random.random_range(0..fields.len())).cloned();
                fields.remove(&name.expect("there is one"));
            }
            (1, Value::Object(fields)) if fields.len() > 1 => {
                let (from, to) = (
                    random.random_range(0..fields.len()),
                    random.random_range(0..fields.len()),
                );
                let value = fields.values().nth(from).cloned().expect("there is one");
                *fields.values_mut().nth(to).expect("there is one") = value;
            }
            (2, Value::Object(fields)) => {
                let name = ["page_size", "page_token", "wait_ms", "id", "__object", "\u{0}", ""].choose(random);
                fields.insert((*name.expect("a name")).to_owned(), self.value(random));
            }
            (3, Value::Array(items)) if !items.is_empty() => {
                let item = items.choose(random).cloned().expect("there is one");
                let times = *[1, 2, 300].choose(random).expect("a number");
                items.extend(std::iter::repeat_n(item, times));
            }
            (4, Value::String(text)) => spoil(random, text),
            (_, place) => *place = self.value(random),
        }
    }

    fn value(&self, random: &mut StdRng) -> Value {
        match random.random_range(0..12) {
            0 => Value::Null,
            1 => json!(random.random::<bool>()),
            2 => json!([i64::MAX, i64::MIN, -1, 0, 1, 501, 4_294_967_296][random.random_range(0..7)]),
            3 => json!(u64::MAX),
            4 => json!([1.5, -1e308, 1e-320][random.random_range(0..3)]),
            5 => json!(format!("{MARK}{}", random.random_range(0..RAW.len()))),
            6 => json!([]),
            7 => json!({}),
            8 => nested(*[3, 100].choose(random).expect("a depth"), random.random()),
            9 => {
                let mut text = String::new();
                spoil(random, &mut text);
                json!(text)
            }
            _ => self.ids.choose(random).cloned().expect("there are ids"),
        }
    }
}

fn nested(depth: usize, is_list: bool) -> Value {
    (0..depth).fold(
        json!(1),
        |inner, _| if is_list { json!([inner]) } else { json!({"a": inner}) },
    )
}

fn spoil(random: &mut StdRng, text: &mut String) {
    let more = [
        "\u{0}",
        "💥",
        "\u{202e}\u{feff}",
        "e\u{301}",
        "' or 1=1; drop table tenant; --",
        "%s%n",
        "../../etc/passwd",
        "\r\nX: y",
        "-1",
        "00",
        "9223372036854775808",
        "1.1",
        " ",
        "\\",
        "\"",
        "$1",
        "{{7*7}}",
        "\u{ffff}",
    ];
    match random.random_range(0..10) {
        0 => {
            let times = *[2, 70, 5_000].choose(random).expect("a number");
            *text = text.repeat(times.min(BYTES_MAX / text.len().max(1)));
        }
        1 => *text = "x".repeat(*[64, 65, 513, 8_193, 1_000_000].choose(random).expect("a number")),
        2 => text.clear(),
        3 => {
            let cut = text.char_indices().nth(1).map_or(0, |(at, _)| at);
            text.truncate(cut);
        }
        _ => text.push_str(more.choose(random).expect("a text")),
    }
}

/// Places of a document, itself among them.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        _ => 0,
    }
}

/// The place of this number.
fn pick<'a>(value: &'a mut Value, number: &mut usize) -> &'a mut Value {
    if *number == 0 {
        return value;
    }
    *number -= 1;
    let children: Vec<&mut Value> = match value {
        Value::Array(items) => items.iter_mut().collect(),
        Value::Object(fields) => fields.values_mut().collect(),
        _ => Vec::new(),
    };
    for child in children {
        let places = count(child);
        if *number < places {
            return pick(child, number);
        }
        *number -= places;
    }
    unreachable!("the number is below the count of places")
}

/// The text of a document, sometimes damaged itself.
pub(super) fn write(random: &mut StdRng, document: &Value) -> Vec<u8> {
    let mut text = document.to_string();
    for (number, raw) in RAW.iter().enumerate() {
        text = text.replace(&format!("\"{MARK}{number}\""), raw);
    }
    if random.random_range(0..60) == 0 {
        let (open, close) = *[("[", "]"), (r#"{"a":"#, "}")].choose(random).expect("a pair");
        let deep = format!("{}{}", open.repeat(20_000), close.repeat(20_000));
        text = text.replacen(':', &format!(":{deep},\"b\":"), 1);
    }
    let mut written = text.into_bytes();
    written.truncate(BYTES_MAX);
    if random.random_range(0..8) == 0 {
        bytes(random, &mut written);
    }
    written
}

/// Cuts off, turns over or appends some bytes.
pub(super) fn bytes(random: &mut StdRng, bytes: &mut Vec<u8>) {
    if bytes.is_empty() {
        return;
    }
    let at = random.random_range(0..bytes.len());
    match random.random_range(0..4) {
        0 => bytes.truncate(at),
        1 => bytes[at] ^= 1 << random.random_range(0..8),
        2 => bytes.extend_from_slice(&[0xff, 0xfe, 0x00, b'}']),
        _ => {}
    }
}
