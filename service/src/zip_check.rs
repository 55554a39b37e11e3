//! Whether an uploaded archive is harmless: before anybody unpacks it, its names, sizes and checksums are looked at.

use std::collections::HashSet;
use std::io::{Cursor, Read as _};

/// Files and folders in an archive.
const ENTRIES_MAX: usize = 10_000;
/// Bytes of all files together.
const TOTAL_MAX: u64 = 256 << 20;
/// Bytes of a file for each byte of it in the archive: text compresses by 10, a bomb by 1000.
const RATIO_MAX: u64 = 200;
/// Small files may compress as they like.
const RATIO_FREE: u64 = 1 << 20;
/// Longest path.
const PATH_MAX: usize = 512;

/// The number of files, or what is wrong.
pub(crate) fn check(archive: &[u8]) -> Result<usize, String> {
    let mut zip =
        zip::ZipArchive::new(Cursor::new(archive)).map_err(|cause| format!("it is no zip archive: {cause}"))?;
    if zip.len() > ENTRIES_MAX {
        return Err(format!("it has more than {ENTRIES_MAX} entries"));
    }
    let (mut files, mut total) = (0, 0u64);
    let mut seen = HashSet::new();
    for index in 0..zip.len() {
        let mut entry = zip
            .by_index(index)
            .map_err(|cause| format!("entry {index} cannot be read: {cause}"))?;
        let name = entry
            .name()
            .map_err(|cause| format!("the name of entry {index} cannot be read: {cause}"))?
            .into_owned();
        check_name(&name)?;
        if !seen.insert(name.trim_end_matches('/').to_owned()) {
            return Err(format!("`{name}` is there twice"));
        }
        if entry.is_symlink() {
            return Err(format!("`{name}` is a symbolic link"));
        }
        if entry.is_dir() {
            continue;
        }
        files += 1;
        // What the archive says of its sizes is not believed: they are counted while it is unpacked, and no further.
        let allowed = TOTAL_MAX - total;
        let ratio_allowed = RATIO_FREE.max(entry.compressed_size().saturating_mul(RATIO_MAX));
        let limit = allowed.min(ratio_allowed);
        let size = std::io::copy(&mut entry.by_ref().take(limit + 1), &mut std::io::sink())
            .map_err(|cause| format!("`{name}` cannot be unpacked: {cause}"))?;
        if size > allowed {
            return Err(format!("its files are larger than {} MB together", TOTAL_MAX >> 20));
        }
        if size > ratio_allowed {
            return Err(format!("`{name}` is compressed more than {RATIO_MAX} times"));
        }
        total += size;
    }
    if files == 0 {
        return Err("it has no files".into());
    }
    Ok(files)
}

/// A path that stays below the folder that the archive is unpacked to, on every system.
fn check_name(name: &str) -> Result<(), String> {
    let path = name.strip_suffix('/').unwrap_or(name);
    let is_plain = !path.is_empty()
        && path.len() <= PATH_MAX
        && !path.starts_with('/')
        && !path.contains(['\\', '\0', ':'])
        && path.split('/').all(|step| !matches!(step, "" | "." | ".."));
    if is_plain {
        Ok(())
    } else {
        Err(format!("`{}` is no plain relative path", name.escape_default()))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use zip::write::SimpleFileOptions;

    use super::*;

    fn archive(entries: &[(&str, &[u8])]) -> Vec<u8> {
        let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
        for (name, content) in entries {
            zip.start_file(*name, SimpleFileOptions::default()).unwrap();
            zip.write_all(content).unwrap();
        }
        zip.finish().unwrap().into_inner()
    }

    #[track_caller]
    fn refused(archive: &[u8], because: &str) {
        let reason = check(archive).unwrap_err();
        assert!(reason.contains(because), "{reason}");
    }

    #[test]
    fn plain_files_are_counted() {
        let archive = archive(&[("main.lua", b"print(1)"), ("lib/util.lua", b"return {}")]);
        assert_eq!(check(&archive), Ok(2));
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for name in ["../x", "a/../../x", "/etc/passwd", "a\\b", "C:x", "a//b", "./a"] {
            refused(&archive(&[(name, b"x")]), "no plain relative path");
        }
    }

    #[test]
    fn links_are_refused() {
        let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
        zip.add_symlink("link", "/etc/passwd", SimpleFileOptions::default())
            .unwrap();
        refused(&zip.finish().unwrap().into_inner(), "symbolic link");
    }

    #[test]
    fn bombs_are_refused_without_being_unpacked_whole() {
        refused(&archive(&[("bomb", &vec![0; 8 << 20])]), "compressed more than");
        let chunk: Vec<u8> = (0..1u32 << 20).map(|n| (n % 251) as u8).collect();
        let names: Vec<String> = (0..300).map(|n| format!("f{n}")).collect();
        let many: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), chunk.as_slice())).collect();
        refused(&archive(&many), "larger than 256 MB together");
        let names: Vec<String> = (0..10_001).map(|n| format!("f{n}")).collect();
        let many: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), b"".as_slice())).collect();
        refused(&archive(&many), "more than 10000 entries");
    }

    #[test]
    fn what_is_broken_or_empty_is_refused() {
        refused(b"not a zip", "no zip archive");
        refused(&archive(&[]), "no files");
        let good = archive(&[("main.lua", &b"print('hello, world, this is text')".repeat(9))]);
        let mut broken = good.clone();
        broken[45] ^= 0xff;
        assert!(check(&broken).is_err());
        assert!(check(&good[..good.len() / 2]).is_err());
    }
}
