//! A `docker load`-able archive around one static program: an image with one layer and nothing else in it. The same
//! program gives the same bytes. Knows the formats, not the disk.

use anyhow::{Context, bail, ensure};
use serde_json::json;
use sha2::{Digest, Sha256};

pub(crate) struct Image<'a> {
    pub(crate) program: &'a [u8],
    /// Such as `shooter:dev`.
    pub(crate) tag: &'a str,
    /// Absolute path of the program in the image.
    pub(crate) entrypoint: &'a str,
    /// Each `NAME=VALUE`.
    pub(crate) environment: &'a [String],
}

/// Nobody in particular: a game server needs no rights.
const USER: &str = "65534:65534";

pub(crate) fn pack(image: &Image<'_>) -> anyhow::Result<Vec<u8>> {
    let architecture = check_program(image.program)?;
    let path = image.entrypoint.strip_prefix('/').filter(|path| is_plain(path));
    let path = path.with_context(|| format!("entry point `{}` is not a plain absolute path", image.entrypoint))?;
    ensure!(
        is_reference(image.tag),
        "`{}` is not the name of an image, such as `shooter:dev`",
        image.tag
    );
    let tag = if image.tag.contains(':') {
        image.tag.to_owned()
    } else {
        format!("{}:latest", image.tag)
    };

    let mut layer = tar::Builder::new(Vec::new());
    let folders = path.match_indices('/').map(|(end, _)| &path[..=end]);
    for folder in folders {
        append(&mut layer, folder, tar::EntryType::Directory, 0o755, &[])?;
    }
    append(&mut layer, path, tar::EntryType::Regular, 0o755, image.program)?;
    let layer = layer.into_inner()?;
    let layer_digest = hex_digest(&layer);

    let config = serde_json::to_vec(&json!({
        "architecture": architecture,
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": {"Entrypoint": [image.entrypoint], "Env": image.environment, "User": USER, "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer_digest}")]},
        "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "omgctl image pack"}],
    }))?;
    let config_name = format!("{}.json", hex_digest(&config));
    let layer_name = format!("{layer_digest}/layer.tar");
    let manifest = serde_json::to_vec(&json!([{"Config": config_name, "RepoTags": [tag], "Layers": [layer_name]}]))?;

    let mut archive = tar::Builder::new(Vec::new());
    append(&mut archive, "manifest.json", tar::EntryType::Regular, 0o644, &manifest)?;
    append(&mut archive, &config_name, tar::EntryType::Regular, 0o644, &config)?;
    append(
        &mut archive,
        &format!("{layer_digest}/"),
        tar::EntryType::Directory,
        0o755,
        &[],
    )?;
    append(&mut archive, &layer_name, tar::EntryType::Regular, 0o644, &layer)?;
    Ok(archive.into_inner()?)
}

/// Everything that could differ from run to run is fixed: times, owners, order.
fn append(
    archive: &mut tar::Builder<Vec<u8>>,
    path: &str,
    kind: tar::EntryType,
    mode: u32,
    content: &[u8],
) -> anyhow::Result<()> {
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(content.len() as u64);
    archive
        .append_data(&mut header, path, content)
        .with_context(|| format!("cannot add `{path}`"))
}

fn hex_digest(content: &[u8]) -> String {
    Sha256::digest(content)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// No empty steps and none upwards, and short enough for a plain header.
fn is_plain(path: &str) -> bool {
    path.len() <= 100 && path.split('/').all(|step| !matches!(step, "" | "." | ".."))
}

/// A rough sieve for typing mistakes; the engine has the last word.
fn is_reference(tag: &str) -> bool {
    let (name, version) = tag.rsplit_once(':').unwrap_or((tag, "latest"));
    let word = |word: &str, more: &str| {
        !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
    };
    name.split('/')
        .all(|step| word(step, "._-:") && !step.chars().any(|c| c.is_ascii_uppercase()))
        && word(version, "._-")
}

/// The architecture of a program that runs without anything around it.
fn check_program(program: &[u8]) -> anyhow::Result<&'static str> {
    ensure!(program.starts_with(b"\x7fELF\x02\x01"), "not a 64-bit Linux program");
    let number = |at: usize, bytes: usize| -> anyhow::Result<u64> {
        let field = program.get(at..at + bytes).context("the program is cut off")?;
        Ok(field
            .iter()
            .rev()
            .fold(0, |number, byte| number << 8 | u64::from(*byte)))
    };
    let architecture = match number(18, 2)? {
        0x3e => "amd64",
        0xb7 => "arm64",
        other => bail!("no image can be made for machine {other:#x}"),
    };
    // Program headers: a program that names an interpreter is linked dynamically.
    const INTERPRETER: u64 = 3;
    let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for index in 0..count {
        let header = usize::try_from(table.saturating_add(index * size)).unwrap_or(usize::MAX - 8);
        if number(header.min(program.len()), 4)? == INTERPRETER {
            bail!(
                "linked dynamically, and an empty image has no loader; build it with RUSTFLAGS=\"-C target-feature=+crt-static\""
            );
        }
    }
    Ok(architecture)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    /// The smallest thing with the header of a program.
    fn program(header_kind: u8) -> Vec<u8> {
        let mut elf = vec![0; 64 + 56];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        elf[18] = 0x3e;
        (elf[32], elf[54], elf[56], elf[64]) = (64, 56, 1, header_kind);
        elf
    }

    fn image<'a>(program: &'a [u8], tag: &'a str, entrypoint: &'a str) -> Image<'a> {
        Image {
            program,
            tag,
            entrypoint,
            environment: &[],
        }
    }

    fn files(archive: &[u8]) -> std::collections::BTreeMap<String, Vec<u8>> {
        let mut archive = tar::Archive::new(archive);
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            (entry.path().unwrap().to_str().unwrap().to_owned(), content)
        });
        entries.collect()
    }

    #[test]
    fn the_manifest_leads_to_a_config_and_a_layer_with_the_right_digests() {
        let program = program(1);
        let files = files(&pack(&image(&program, "shooter", "/opt/game/server")).unwrap());
        let manifest: serde_json::Value = serde_json::from_slice(&files["manifest.json"]).unwrap();
        assert_eq!(manifest[0]["RepoTags"][0], "shooter:latest");
        let config_name = manifest[0]["Config"].as_str().unwrap();
        assert_eq!(config_name, format!("{}.json", hex_digest(&files[config_name])));
        let config: serde_json::Value = serde_json::from_slice(&files[config_name]).unwrap();
        assert_eq!(config["architecture"], "amd64");
        assert_eq!(config["config"]["Entrypoint"][0], "/opt/game/server");
        let layer = &files[manifest[0]["Layers"][0].as_str().unwrap()];
        assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", hex_digest(layer)));
        let inside = self::files(layer);
        assert_eq!(
            inside.keys().map(String::as_str).collect::<Vec<_>>(),
            ["opt/", "opt/game/", "opt/game/server"]
        );
        assert_eq!(inside["opt/game/server"], program);
    }

    #[test]
    fn what_would_not_run_is_refused() {
        let refused = |program: &[u8], tag: &str, entrypoint: &str, because: &str| {
            let error = pack(&image(program, tag, entrypoint))
                .map(|_| ())
                .unwrap_err()
                .to_string();
            assert!(error.contains(because), "{error}");
        };
        refused(b"#!/bin/sh", "a", "/a", "not a 64-bit Linux program");
        refused(&program(3), "a", "/a", "linked dynamically");
        refused(&program(1)[..66], "a", "/a", "cut off");
        refused(&program(1)[..30], "a", "/a", "cut off");
        for path in ["a", "/", "/../a", "//a", "/a/"] {
            refused(&program(1), "a", path, "not a plain absolute path");
        }
        for tag in ["", "A", "a b", "a:", ":a", "a//b"] {
            refused(&program(1), tag, "/a", "not the name of an image");
        }
    }
}
