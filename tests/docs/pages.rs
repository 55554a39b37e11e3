//! The pages as such: links lead somewhere, the summary is complete, nothing is said about a particular machine.

use super::{files, read, root, shown};

/// The anchor of a heading, as it is made for pages on the web.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    text.chars()
        .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[test]
fn every_link_between_documents_leads_somewhere() {
    let mut broken = Vec::new();
    let mut seen = 0;
    for file in files(&[".md"]) {
        let text = std::fs::read_to_string(&file).expect("a document is UTF-8");
        let folder = file.parent().expect("a file is in a folder");
        let mut is_code = false;
        for line in text.lines() {
            is_code ^= line.trim_start().starts_with("```");
            let links = line
                .match_indices("](")
                .filter_map(|(at, _)| line[at + 2..].split(')').next());
            for link in links.filter(|_| !is_code) {
                if link.contains("://") || link.starts_with("mailto:") {
                    continue;
                }
                seen += 1;
                let (path, fragment) = link.split_once('#').unwrap_or((link, ""));
                let target = if path.is_empty() {
                    file.clone()
                } else {
                    folder.join(path)
                };
                let is_there = target.exists()
                    && (fragment.is_empty()
                        || std::fs::read_to_string(&target).is_ok_and(|text| {
                            text.lines()
                                .any(|line| line.starts_with('#') && anchor(line) == fragment)
                        }));
                if !is_there {
                    broken.push(format!("{}: {link}", shown(&file)));
                }
            }
        }
    }
    assert!(seen > 10, "only {seen} links were found: is the search broken?");
    assert!(broken.is_empty(), "links that lead nowhere: {broken:#?}");
}

#[test]
fn every_document_is_in_the_summary() {
    let summary = read("docs/SUMMARY.md");
    let docs = root().join("docs");
    for file in files(&[".md"]).into_iter().filter(|file| file.starts_with(&docs)) {
        let path = file.strip_prefix(&docs).expect("it is below").display().to_string();
        assert!(
            path == "SUMMARY.md" || path.starts_with("decisions/") || summary.contains(&format!("]({path})")),
            "docs/{path} is not in the summary"
        );
    }
}

#[test]
fn documents_speak_of_no_particular_machine() {
    let root = root().display().to_string();
    let machine = std::fs::read_to_string("/etc/hostname")
        .unwrap_or_default()
        .trim()
        .to_owned();
    let mut forbidden = vec!["/work/", "/home/", "/root/", "/Users/", root.as_str()];
    // A short name may be a word.
    if machine.len() > 7 && machine != "localhost" {
        forbidden.push(&machine);
    }
    let mut found = Vec::new();
    for file in files(&[".md", ".svg"]) {
        let text = std::fs::read_to_string(&file).expect("a document is UTF-8");
        for (number, line) in text.lines().enumerate() {
            found.extend(
                forbidden
                    .iter()
                    .filter(|word| line.contains(**word))
                    .map(|word| format!("{}:{}: {word}", shown(&file), number + 1)),
            );
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn pictures_are_small() {
    for file in files(&[".png", ".svg"])
        .into_iter()
        .filter(|file| file.starts_with(root().join("docs")))
    {
        let bytes = std::fs::metadata(&file).expect("it is there").len();
        assert!(bytes < 400_000, "{} has {bytes} bytes", shown(&file));
    }
}
