//! JSON laid out for people without touching it: keys stay in their order, numbers as they are written.

/// Two blanks per level, as `jq` does it. A text that is not JSON comes out as nonsense.
pub(crate) fn pretty(text: &str) -> String {
    let mut pretty = String::new();
    let mut depth: usize = 0;
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            c if c.is_ascii_whitespace() => {}
            '"' => {
                pretty.push(c);
                while let Some(c) = rest.next() {
                    pretty.push(c);
                    match c {
                        '"' => break,
                        '\\' => pretty.extend(rest.next()),
                        _ => {}
                    }
                }
            }
            '{' | '[' => {
                pretty.push(c);
                while rest.next_if(char::is_ascii_whitespace).is_some() {}
                match rest.next_if(|next| matches!(next, '}' | ']')) {
                    Some(end) => pretty.push(end),
                    None => {
                        depth += 1;
                        new_line(&mut pretty, depth);
                    }
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                new_line(&mut pretty, depth);
                pretty.push(c);
            }
            ',' => {
                pretty.push(c);
                new_line(&mut pretty, depth);
            }
            ':' => pretty.push_str(": "),
            c => pretty.push(c),
        }
    }
    pretty
}

fn new_line(text: &mut String, depth: usize) {
    text.push('\n');
    text.extend(std::iter::repeat_n("  ", depth));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_that_of_serde_json_and_the_order_stays() {
        let text = r#"{"b":[1,2.50,{"a \" , {":"x\\"}],"a":{ },"c":[ ],"d":null}"#;
        let expected = r#"{
  "b": [
    1,
    2.50,
    {
      "a \" , {": "x\\"
    }
  ],
  "a": {},
  "c": [],
  "d": null
}"#;
        assert_eq!(pretty(text), expected);
        assert_eq!(pretty(expected), expected);
    }
}
