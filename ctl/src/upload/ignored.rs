//! `.dockerignore`: which files of a folder are left out. The rules are Docker's: patterns start at the folder, a pattern
//! that names a folder means everything in it, `!` takes files back in, and the last rule that fits counts.

pub(super) struct Ignored {
    rules: Vec<Rule>,
}

struct Rule {
    pattern: Vec<char>,
    takes_back: bool,
}

impl Ignored {
    pub(super) fn parse(text: &str) -> Self {
        let lines = text.trim_start_matches('\u{feff}').lines();
        let rules = lines.filter(|line| !line.starts_with('#')).filter_map(|line| {
            let line = line.trim();
            let (line, takes_back) = match line.strip_prefix('!') {
                Some(rest) => (rest.trim(), true),
                None => (line, false),
            };
            let steps: Vec<_> = line.split('/').filter(|step| !matches!(*step, "" | ".")).collect();
            let pattern: Vec<char> = steps.join("/").chars().collect();
            (!pattern.is_empty()).then_some(Rule { pattern, takes_back })
        });
        Self { rules: rules.collect() }
    }

    /// Whether a file is left out; its path starts at the folder and has `/` between its steps.
    pub(super) fn contains(&self, path: &str) -> bool {
        let path: Vec<char> = path.chars().collect();
        // The file itself and every folder that it is in.
        let ends: Vec<usize> = (1..=path.len())
            .filter(|end| *end == path.len() || path[*end] == '/')
            .collect();
        let fits = |rule: &&Rule| ends.iter().any(|end| matches(&rule.pattern, &path[..*end]));
        self.rules.iter().rev().find(fits).is_some_and(|rule| !rule.takes_back)
    }
}

fn matches(pattern: &[char], text: &[char]) -> bool {
    match (pattern, text) {
        ([], _) => text.is_empty(),
        (['*', '*', '/', rest @ ..], _) => {
            matches(rest, text) || (0..text.len()).any(|at| text[at] == '/' && matches(rest, &text[at + 1..]))
        }
        (['*', '*', rest @ ..], _) => (0..=text.len()).any(|at| matches(rest, &text[at..])),
        (['*', rest @ ..], _) => {
            let step = text.iter().position(|c| *c == '/').unwrap_or(text.len());
            (0..=step).any(|at| matches(rest, &text[at..]))
        }
        (['?', rest @ ..], [c, text @ ..]) => *c != '/' && matches(rest, text),
        (['[', class @ ..], [c, text @ ..]) => match class.iter().skip(1).position(|c| *c == ']') {
            Some(end) => *c != '/' && is_in(&class[..=end], *c) && matches(&class[end + 2..], text),
            None => *c == '[' && matches(class, text),
        },
        (['\\', wanted, rest @ ..], [c, text @ ..]) => wanted == c && matches(rest, text),
        ([wanted, rest @ ..], [c, text @ ..]) => wanted == c && matches(rest, text),
        (_, []) => false,
    }
}

/// Whether a character is in a class such as `a-z_` or `^0-9`.
fn is_in(class: &[char], c: char) -> bool {
    let (mut class, is_negated) = match class {
        ['^', rest @ ..] => (rest, true),
        class => (class, false),
    };
    let mut found = false;
    loop {
        class = match class {
            [from, '-', to, rest @ ..] => {
                found |= (*from..=*to).contains(&c);
                rest
            }
            [one, rest @ ..] => {
                found |= *one == c;
                rest
            }
            [] => return found != is_negated,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rules: &str, left_out: &[&str], sent: &[&str]) {
        let ignored = Ignored::parse(rules);
        for path in left_out {
            assert!(ignored.contains(path), "{rules:?} should leave out {path}");
        }
        for path in sent {
            assert!(!ignored.contains(path), "{rules:?} should not leave out {path}");
        }
    }

    #[test]
    fn patterns_mean_what_they_mean_to_docker() {
        check("", &[], &["a", "a/b"]);
        check(
            "# a\n\n/target\n",
            &["target", "target/debug/x"],
            &["a", "src/target", "targets"],
        );
        check("*.log", &["a.log"], &["logs/a.log", "a.logs"]);
        check("**/*.log", &["a.log", "logs/a.log", "x/y/a.log"], &["a.logs", "log"]);
        check("*/temp*", &["x/temp", "x/temporary/a"], &["temp", "x/y/temp"]);
        check("a?", &["ab"], &["a", "a/", "abc"]);
        check("./build/", &["build/x"], &["x/build"]);
        check("[a-c]x", &["ax", "cx"], &["dx", "x"]);
        check("[^a-c]x", &["dx"], &["ax"]);
        check(r"\*x", &["*x"], &["yx"]);
        check("doc/**", &["doc/a", "doc/a/b"], &["doc", "a/doc/b"]);
    }

    #[test]
    fn the_last_rule_that_fits_counts() {
        check("docs\n!docs/README.md", &["docs/a"], &["docs/README.md"]);
        check(
            "*\n!src\n!*.lua\nsrc/*.tmp",
            &["a", "src/a.tmp"],
            &["src/a", "main.lua"],
        );
        check("!a\na", &["a"], &[]);
    }
}
