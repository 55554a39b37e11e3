//! The layers of an archive, one over the other, as a folder. Layers come from strangers: nothing is written outside
//! the folder, and its size has a bound.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, BufReader, Read},
    os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink},
    path::{Component, Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use flate2::read::MultiGzDecoder;
use tar::{Archive, EntryType};

use super::{Hashing, Image, LINKS_MAX, parts, with_entry};

/// Unpacked size at which an archive is taken for a bomb.
const UNPACKED_BYTES_MAX: u64 = 8 << 30;
/// Number of files at which an archive is taken for a bomb.
const UNPACKED_ENTRIES_MAX: u64 = 500_000;

/// Unpacks the image's layers into the folder `root`, which must be empty. Nothing is written outside of it.
pub fn unpack(path: &Path, image: &Image, root: &Path) -> Result<()> {
    let mut budget = Budget {
        bytes: UNPACKED_BYTES_MAX,
        entries: UNPACKED_ENTRIES_MAX,
    };
    for (layer, digest) in &image.layers {
        with_entry(path, layer, |entry, _| unpack_layer(entry, digest, root, &mut budget))
            .with_context(|| format!("layer `{layer}`"))?;
    }
    Ok(())
}

/// Where `path`, as seen inside `root`, really is: links are followed as if `root` were `/`.
pub fn resolve(root: &Path, path: &Path) -> Result<PathBuf> {
    let mut inside = PathBuf::new();
    let mut links = 0;
    let mut todo: Vec<PathBuf> = parts(path);
    todo.reverse();
    while let Some(part) = todo.pop() {
        if part == Path::new("..") {
            inside.pop();
            continue;
        }
        let Ok(target) = fs::read_link(root.join(&inside).join(&part)) else {
            inside.push(part);
            continue;
        };
        links += 1;
        ensure!(links <= LINKS_MAX, "too many links at `{}`", path.display());
        if target.is_absolute() {
            inside.clear();
        }
        todo.extend(parts(&target).into_iter().rev());
    }
    Ok(root.join(inside))
}

/// What may still be unpacked.
struct Budget {
    bytes: u64,
    entries: u64,
}

fn unpack_layer(entry: &mut dyn Read, digest: &str, root: &Path, budget: &mut Budget) -> Result<()> {
    let mut buffered = BufReader::new(entry);
    let compressed = io::BufRead::fill_buf(&mut buffered)?.starts_with(&[0x1f, 0x8b]);
    let plain: Box<dyn Read + '_> = match compressed {
        true => Box::new(MultiGzDecoder::new(buffered)),
        false => Box::new(buffered),
    };
    let mut hashing = Hashing::new(plain);
    let mut archive = Archive::new(&mut hashing);
    // What this layer itself brought: a whiteout hides only what lower layers did.
    let mut fresh = BTreeSet::new();
    for entry in archive.entries()? {
        budget.entries = budget
            .entries
            .checked_sub(1)
            .context("the image holds too many files")?;
        unpack_entry(&mut entry?, root, &mut fresh, budget)?;
    }
    io::copy(&mut hashing, &mut io::sink())?;
    let found = hashing.finish().0;
    ensure!(
        digest == format!("sha256:{found}"),
        "its contents do not match their digest"
    );
    Ok(())
}

fn unpack_entry(
    entry: &mut tar::Entry<'_, impl Read>,
    root: &Path,
    fresh: &mut BTreeSet<PathBuf>,
    budget: &mut Budget,
) -> Result<()> {
    let path = entry.path()?.into_owned();
    ensure!(
        !path.components().any(|part| part == Component::ParentDir),
        "path `{}` leads out",
        path.display()
    );
    let Some(name) = path.file_name() else {
        return Ok(()); // the root itself
    };
    let folder = resolve(root, path.parent().unwrap_or(Path::new("")))?;
    fs::create_dir_all(&folder)?;
    let name_text = name.to_string_lossy();
    if name_text == ".wh..wh..opq" {
        for child in fs::read_dir(&folder)? {
            let child = child?.path();
            if !fresh.contains(&child) {
                remove(&child)?;
            }
        }
        return Ok(());
    }
    if let Some(hidden) = name_text.strip_prefix(".wh.") {
        ensure!(
            !hidden.is_empty() && hidden != "." && hidden != "..",
            "whiteout `{}` hides nothing",
            path.display()
        );
        return remove(&folder.join(hidden));
    }
    let target = folder.join(name);
    let kind = entry.header().entry_type();
    let keeps_folder = kind.is_dir() && fs::symlink_metadata(&target).is_ok_and(|there| there.is_dir());
    if !keeps_folder {
        remove(&target)?;
    }
    let mode = entry.header().mode()? & 0o777;
    match kind {
        EntryType::Directory => {
            fs::create_dir_all(&target)?;
            fs::set_permissions(&target, fs::Permissions::from_mode(mode | 0o700))?;
        }
        EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
            budget.bytes = budget
                .bytes
                .checked_sub(entry.size())
                .context("the image is too large")?;
            let mut file = File::options()
                .write(true)
                .create_new(true)
                .mode(mode | 0o600)
                .open(&target)?;
            io::copy(entry, &mut file)?;
        }
        EntryType::Symlink => {
            symlink(entry.link_name()?.context("a link without a target")?, &target)?;
        }
        EntryType::Link => {
            let link = entry.link_name()?.context("a link without a target")?.into_owned();
            let link_name = link.file_name().context("a link to a folder")?;
            fs::hard_link(
                resolve(root, link.parent().unwrap_or(Path::new("")))?.join(link_name),
                &target,
            )?;
        }
        // Devices and pipes: nothing that a game server started as a process could use.
        _ => return Ok(()),
    }
    fresh.insert(target);
    Ok(())
}

fn remove(path: &Path) -> Result<()> {
    let result = match fs::symlink_metadata(path) {
        Ok(there) if there.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(_) => Ok(()),
    };
    result.with_context(|| format!("cannot remove `{}`", path.display()))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};
    use sha2::{Digest, Sha256};
    use tar::{Builder, Header};

    use super::*;

    /// One entry of a layer: a file with contents, or a link.
    enum Item {
        File(&'static str, &'static str),
        Symlink(&'static str, &'static str),
        Hardlink(&'static str, &'static str),
    }
    use Item::{File as F, Hardlink as H, Symlink as S};

    fn layer(items: &[Item]) -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        for item in items {
            let mut header = Header::new_gnu();
            header.set_mode(0o644);
            let (path, kind, link, contents) = match *item {
                F(path, contents) => (path, EntryType::Regular, "", contents),
                S(path, target) => (path, EntryType::Symlink, target, ""),
                H(path, target) => (path, EntryType::Link, target, ""),
            };
            header.set_entry_type(kind);
            header.set_size(contents.len() as u64);
            // Written past the checks of the builder: what it would refuse to write must be refused when read.
            header.as_gnu_mut().unwrap().name[..path.len()].copy_from_slice(path.as_bytes());
            header.as_gnu_mut().unwrap().linkname[..link.len()].copy_from_slice(link.as_bytes());
            header.set_cksum();
            builder.append(&header, contents.as_bytes()).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn apply(root: &Path, layer: &[u8], digest_of: &[u8]) -> Result<()> {
        let mut budget = Budget {
            bytes: 1 << 20,
            entries: 100,
        };
        let digest = format!("sha256:{}", crate::archive::hex(&Sha256::digest(digest_of)));
        unpack_layer(&mut &layer[..], &digest, root, &mut budget)
    }

    fn unpacked(layers: &[&[Item]]) -> Result<tempfile::TempDir> {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("root")).unwrap();
        for items in layers {
            let bytes = layer(items);
            apply(&folder.path().join("root"), &bytes, &bytes)?;
        }
        Ok(folder)
    }

    /// The contents of `path` inside the root; `None` if it is not there.
    fn inside(folder: &tempfile::TempDir, path: &str) -> Option<String> {
        fs::read_to_string(folder.path().join("root").join(path)).ok()
    }

    #[test]
    fn an_upper_layer_replaces_hides_and_empties() {
        let lower = [F("a/1", "one"), F("a/2", "two"), F("b/1", "one")];
        let upper = [
            F("a/1", "uno"),
            F("a/.wh.2", ""),
            F("b/2", "dos"),
            F("b/.wh..wh..opq", ""),
        ];
        let folder = unpacked(&[&lower, &upper]).unwrap();
        let check =
            |path: &str, expected: Option<&str>| assert_eq!(inside(&folder, path).as_deref(), expected, "{path}");
        check("a/1", Some("uno"));
        check("a/2", None);
        check("b/1", None);
        check("b/2", Some("dos"));
    }

    #[test]
    fn nothing_is_written_outside_the_root() {
        for items in [
            &[F("../escaped", "x")][..],
            &[F("a/../../escaped", "x")],
            &[S("out", ".."), F("out/escaped", "x")],
            &[S("out", "/.."), F("out/../escaped", "x")],
            &[F("a", "x"), F(".wh...", "")],
            &[H("stolen", "../secret")],
        ] {
            let folder = unpacked(&[items]);
            if let Ok(folder) = folder {
                assert!(!folder.path().join("escaped").exists());
                assert_eq!(inside(&folder, "stolen"), None);
            }
        }
        let error = unpacked(&[&[F("a/../../escaped", "x")]]).unwrap_err();
        assert!(format!("{error:#}").contains("leads out"));
    }

    #[test]
    fn links_are_followed_as_if_the_root_were_the_machines() {
        let items = [
            F("usr/lib/x", "x"),
            S("lib", "/usr/lib"),
            F("lib/y", "y"),
            H("z", "lib/x"),
            S("up", "../../../usr"),
        ];
        let folder = unpacked(&[&items]).unwrap();
        assert_eq!(inside(&folder, "usr/lib/y").as_deref(), Some("y"));
        assert_eq!(inside(&folder, "z").as_deref(), Some("x"));
        let root = folder.path().join("root");
        assert_eq!(resolve(&root, Path::new("/up/lib/x")).unwrap(), root.join("usr/lib/x"));
        let folder = unpacked(&[&[S("a", "b"), S("b", "a")]]).unwrap();
        assert!(resolve(&folder.path().join("root"), Path::new("a/x")).is_err());
    }

    #[test]
    fn compressed_layers_are_unpacked_and_damaged_ones_refused() {
        let folder = tempfile::tempdir().unwrap();
        let plain = layer(&[F("a", "x")]);
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&plain).unwrap();
        let compressed = encoder.finish().unwrap();
        apply(folder.path(), &compressed, &plain).unwrap();
        assert_eq!(fs::read_to_string(folder.path().join("a")).unwrap(), "x");
        let error = apply(folder.path(), &compressed, b"something else").unwrap_err();
        assert!(error.to_string().contains("digest"));
    }

    #[test]
    fn an_image_that_is_too_large_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let bytes = layer(&[F("a", "12345"), F("b", "67890")]);
        for (mut budget, reason) in [
            (Budget { bytes: 9, entries: 9 }, "too large"),
            (Budget { bytes: 99, entries: 1 }, "too many"),
        ] {
            let error = unpack_layer(&mut &bytes[..], "sha256:", folder.path(), &mut budget).unwrap_err();
            assert!(error.to_string().contains(reason), "{error}");
        }
    }
}
