//! Docker archives (`docker save`, `docker load`) without an engine: read what one holds, write one from files, copy
//! one under another tag, unpack its layers into a folder. Blocking; knows no host.

mod unpack;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs::{self, File},
    io::{self, BufWriter, Read, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::{Component, Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tar::{Archive, Builder, EntryType, Header};

pub use unpack::{resolve, unpack};

/// Largest manifest or configuration that is read; real ones have a few kilobytes.
const DOCUMENT_BYTES_MAX: u64 = 4 << 20;
/// Links followed before a path is taken for a loop, as in the kernel.
const LINKS_MAX: u32 = 40;

/// What an archive holds: the parts of its configuration that matter for running it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// SHA-256 of the configuration in hex. It pins the contents of all layers.
    pub digest: String,
    /// The tags that the archive gives itself.
    pub tags: Vec<String>,
    /// Entry point and arguments in one.
    pub command: Vec<String>,
    pub environment: Vec<(String, String)>,
    /// Where the command starts; empty means the root.
    pub working_directory: String,
    /// The configuration, byte for byte.
    config: Vec<u8>,
    /// Entry in the archive and SHA-256 of the uncompressed contents, bottom layer first.
    layers: Vec<(String, String)>,
}

/// One file of an image that is written.
#[derive(Debug, Clone)]
pub struct ImageFile {
    /// Absolute path in the image.
    pub path: String,
    /// Where its contents are now.
    pub source: PathBuf,
    /// Permission bits, `0o755` for a program.
    pub mode: u32,
}

/// `manifest.json`: the one list with one element that `docker load` reads. (On disk, so it is serialised.)
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Manifest {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// The image's configuration as far as we read it.
#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    config: RunConfig,
    rootfs: RootFs,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct RunConfig {
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    env: Option<Vec<String>>,
    working_dir: Option<String>,
}

#[derive(Deserialize)]
struct RootFs {
    diff_ids: Vec<String>,
}

/// Reads what the archive at `path` holds, without its layers.
pub fn read(path: &Path) -> Result<Image> {
    let manifest = read_entry(path, "manifest.json")?;
    let mut manifests: Vec<Manifest> = serde_json::from_slice(&manifest).context("manifest.json is malformed")?;
    ensure!(
        manifests.len() == 1,
        "the archive holds {} images instead of one",
        manifests.len()
    );
    let manifest = manifests.remove(0);
    let bytes = read_entry(path, &manifest.config)?;
    let config: Config = serde_json::from_slice(&bytes).context("the image's configuration is malformed")?;
    let digests = config.rootfs.diff_ids;
    ensure!(
        digests.len() == manifest.layers.len(),
        "the archive holds {} layers, its configuration names {}",
        manifest.layers.len(),
        digests.len()
    );
    let run = config.config;
    let environment = run.env.unwrap_or_default();
    Ok(Image {
        digest: hex(&Sha256::digest(&bytes)),
        tags: manifest.repo_tags.unwrap_or_default(),
        command: run.entrypoint.into_iter().chain(run.cmd).flatten().collect(),
        environment: environment
            .iter()
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        working_directory: run.working_dir.unwrap_or_default(),
        config: bytes,
        layers: manifest.layers.into_iter().zip(digests).collect(),
    })
}

/// Copies the image to `out` as an archive that has `tag` as its only tag, whatever it called itself.
pub fn copy(path: &Path, image: &Image, tag: &str, out: impl Write) -> Result<()> {
    let mut builder = start_archive(out, tag, &image.config, &image.digest, image.layers.len())?;
    for (index, (layer, _)) in image.layers.iter().enumerate() {
        with_entry(path, layer, |entry, size| {
            builder.append_data(&mut plain_header(size, 0o644), layer_name(index), entry)?;
            Ok(())
        })?;
    }
    builder.into_inner()?.flush()?;
    Ok(())
}

/// Writes an archive with one layer out of `files`, which runs `entrypoint` as an unprivileged user. The same input
/// gives the same bytes. Answers the image's digest.
pub fn write(
    path: &Path,
    tag: &str,
    entrypoint: &[String],
    files: &[ImageFile],
    environment: &[(String, String)],
) -> Result<String> {
    // The layer is made twice, once to learn its digest and size, so that it is never held in memory.
    let mut measure = Hashing::new(io::sink());
    write_layer(&mut measure, files)?;
    let (layer_digest, layer_size) = measure.finish();

    let config = serde_json::json!({
        "architecture": match std::env::consts::ARCH { "x86_64" => "amd64", "aarch64" => "arm64", other => other },
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": {
            "Entrypoint": entrypoint,
            "Env": environment.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>(),
            "User": "65534:65534",
            "WorkingDir": "/",
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{layer_digest}")] },
        "history": [{ "created": "1970-01-01T00:00:00Z", "created_by": "omgservers" }],
    });
    let config = serde_json::to_vec(&config)?;
    let digest = hex(&Sha256::digest(&config));

    let partial = path.with_extension("partial");
    let file = File::create(&partial).with_context(|| format!("cannot write `{}`", partial.display()))?;
    let mut builder = start_archive(BufWriter::new(file), tag, &config, &digest, 1)?;
    let mut header = plain_header(layer_size, 0o644);
    header.set_path(layer_name(0))?;
    header.set_cksum();
    let out = builder.get_mut();
    out.write_all(header.as_bytes())?;
    let mut layer = Hashing::new(&mut *out);
    write_layer(&mut layer, files)?;
    ensure!(
        layer.finish() == (layer_digest, layer_size),
        "a file changed while the archive was written"
    );
    out.write_all(&[0; 512][..padding(layer_size)])?;
    builder.into_inner()?.flush()?;
    fs::rename(&partial, path).with_context(|| format!("cannot write `{}`", path.display()))?;
    Ok(digest)
}

fn parts(path: &Path) -> Vec<PathBuf> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(PathBuf::from(name)),
            Component::ParentDir => Some(PathBuf::from("..")),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        })
        .collect()
}

/// The small entry `name` of the archive.
fn read_entry(path: &Path, name: &str) -> Result<Vec<u8>> {
    with_entry(path, name, |entry, size| {
        ensure!(size <= DOCUMENT_BYTES_MAX, "`{name}` is too large");
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        Ok(bytes)
    })
}

/// Opens an archive without waiting for anybody: a pipe has nobody who writes into it, a device may do anything.
fn open(path: &Path) -> Result<File> {
    let mut options = fs::OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = file.with_context(|| format!("cannot read `{}`", path.display()))?;
    ensure!(file.metadata()?.is_file(), "`{}` is not a regular file", path.display());
    Ok(file)
}

/// Finds the entry `name`, through links between entries (equal layers are saved as such), and hands it to `read`.
fn with_entry<T>(path: &Path, name: &str, read: impl FnOnce(&mut dyn Read, u64) -> Result<T>) -> Result<T> {
    let mut links: HashMap<PathBuf, PathBuf> = HashMap::new();
    let mut there: BTreeSet<PathBuf> = BTreeSet::new();
    let mut archive = Archive::new(open(path)?);
    for entry in archive.entries_with_seek().context("no archive")? {
        let entry = entry.context("no archive, or a damaged one")?;
        let entry_path = normalised(&entry.path()?);
        match (entry.header().entry_type(), entry.link_name()?) {
            (EntryType::Symlink, Some(target)) => {
                let folder = entry_path.parent().unwrap_or(Path::new(""));
                links.insert(entry_path.clone(), normalised(&folder.join(target)));
            }
            (EntryType::Link, Some(target)) => {
                links.insert(entry_path, normalised(&target));
            }
            _ => {
                there.insert(entry_path);
            }
        }
    }
    let mut wanted = normalised(Path::new(name));
    for _ in 0..LINKS_MAX {
        match links.get(&wanted) {
            Some(target) => wanted = target.clone(),
            None => break,
        }
    }
    ensure!(
        there.contains(&wanted),
        "`{name}` is missing: this is no docker archive"
    );
    let mut archive = Archive::new(open(path)?);
    for entry in archive.entries_with_seek()? {
        let mut entry = entry?;
        if normalised(&entry.path()?) == wanted && entry.header().entry_type() == EntryType::Regular {
            let size = entry.size();
            return read(&mut entry, size);
        }
    }
    bail!("`{name}` is no file")
}

/// `a/../b/./c` as `b/c`; never leads above the top.
fn normalised(path: &Path) -> PathBuf {
    let mut result = PathBuf::new();
    for part in parts(path) {
        if part == Path::new("..") {
            result.pop();
        } else {
            result.push(part);
        }
    }
    result
}

fn start_archive<W: Write>(out: W, tag: &str, config: &[u8], digest: &str, layers: usize) -> Result<Builder<W>> {
    let manifest = serde_json::to_vec(&[Manifest {
        config: format!("{digest}.json"),
        repo_tags: Some(vec![tag.to_owned()]),
        layers: (0..layers).map(layer_name).collect(),
    }])?;
    let mut builder = Builder::new(out);
    for (name, bytes) in [
        ("manifest.json", manifest.as_slice()),
        (&format!("{digest}.json"), config),
    ] {
        builder.append_data(&mut plain_header(bytes.len() as u64, 0o644), name, bytes)?;
    }
    Ok(builder)
}

fn layer_name(index: usize) -> String {
    format!("layer-{index}.tar")
}

fn write_layer(out: impl Write, files: &[ImageFile]) -> Result<()> {
    let mut builder = Builder::new(out);
    let files: BTreeMap<PathBuf, &ImageFile> = files
        .iter()
        .map(|file| (normalised(Path::new(&file.path)), file))
        .collect();
    let folders: BTreeSet<&Path> = files.keys().flat_map(|path| path.ancestors().skip(1)).collect();
    for folder in folders.into_iter().filter(|folder| !folder.as_os_str().is_empty()) {
        let mut header = plain_header(0, 0o755);
        header.set_entry_type(EntryType::Directory);
        builder.append_data(&mut header, folder, io::empty())?;
    }
    for (path, file) in files {
        let source = File::open(&file.source).with_context(|| format!("cannot read `{}`", file.source.display()))?;
        let size = source.metadata()?.len();
        builder.append_data(&mut plain_header(size, file.mode), path, source.take(size))?;
    }
    builder.into_inner()?.flush()?;
    Ok(())
}

/// A header that depends on nothing but its arguments: no time, no owner.
fn plain_header(size: u64, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_size(size);
    header.set_mode(mode);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header.set_cksum();
    header
}

/// Zeroes after an entry of `size` bytes: entries fill blocks of 512.
fn padding(size: u64) -> usize {
    ((512 - size % 512) % 512) as usize
}

/// Passes bytes on and keeps their digest and number.
struct Hashing<T> {
    inner: T,
    digest: Sha256,
    bytes: u64,
}

impl<T> Hashing<T> {
    fn new(inner: T) -> Self {
        Self {
            inner,
            digest: Sha256::new(),
            bytes: 0,
        }
    }

    fn finish(self) -> (String, u64) {
        (hex(&self.digest.finalize()), self.bytes)
    }

    fn count(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
        self.bytes += bytes.len() as u64;
    }
}

impl<T: Write> Write for Hashing<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.count(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<T: Read> Read for Hashing<T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.count(&buffer[..read]);
        Ok(read)
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(folder: &Path, name: &str, contents: &str) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, contents).unwrap();
        path
    }

    fn written(folder: &Path) -> PathBuf {
        let archive = folder.join("game.tar");
        let image_file = |path: &str, source: PathBuf, mode| ImageFile {
            path: path.to_owned(),
            source,
            mode,
        };
        let files = [
            image_file("/etc/motd", file(folder, "motd", "hello"), 0o644),
            image_file("/bin/game", file(folder, "game", "#!/bin/sh\n"), 0o755),
        ];
        let entrypoint = ["/bin/game".to_owned(), "--fast".to_owned()];
        let environment = [("MODE".to_owned(), "a=b".to_owned())];
        write(&archive, "game:1", &entrypoint, &files, &environment).unwrap();
        archive
    }

    #[test]
    fn an_archive_tells_what_was_written_into_it() {
        let folder = tempfile::tempdir().unwrap();
        let image = read(&written(folder.path())).unwrap();
        assert_eq!(image.tags, ["game:1"]);
        assert_eq!(image.command, ["/bin/game", "--fast"]);
        assert_eq!(image.environment, [("MODE".to_owned(), "a=b".to_owned())]);
        assert_eq!(image.working_directory, "/");
        let root = folder.path().join("root");
        fs::create_dir(&root).unwrap();
        unpack(&folder.path().join("game.tar"), &image, &root).unwrap();
        assert_eq!(fs::read_to_string(root.join("etc/motd")).unwrap(), "hello");
        let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(root.join("bin/game")).unwrap());
        assert_eq!(mode & 0o777, 0o755);
    }

    #[test]
    fn the_same_files_give_the_same_bytes() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        assert_eq!(
            fs::read(written(one.path())).unwrap(),
            fs::read(written(other.path())).unwrap()
        );
    }

    #[test]
    fn a_copy_differs_in_nothing_but_its_tag() {
        let folder = tempfile::tempdir().unwrap();
        let original = written(folder.path());
        let image = read(&original).unwrap();
        let copied = folder.path().join("copy.tar");
        copy(&original, &image, "ours:2", File::create(&copied).unwrap()).unwrap();
        let copied = read(&copied).unwrap();
        assert_eq!(
            (copied.tags.as_slice(), &copied.digest),
            (&["ours:2".to_owned()][..], &image.digest)
        );
    }

    #[test]
    fn layers_are_found_through_links_between_entries() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("linked.tar");
        let mut builder = Builder::new(File::create(&path).unwrap());
        builder
            .append_data(&mut plain_header(4, 0o644), "a/layer.tar", &b"same"[..])
            .unwrap();
        let mut link = plain_header(0, 0o777);
        link.set_entry_type(EntryType::Symlink);
        builder.append_link(&mut link, "b/layer.tar", "../a/layer.tar").unwrap();
        builder.into_inner().unwrap();
        assert_eq!(read_entry(&path, "b/layer.tar").unwrap(), b"same");
        assert!(read_entry(&path, "c/layer.tar").is_err());
    }

    #[test]
    fn what_is_no_archive_is_refused_with_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        for (contents, reason) in [("", "manifest.json"), ("just some text", "archive")] {
            let error = read(&file(folder.path(), "bad.tar", contents)).unwrap_err();
            assert!(format!("{error:#}").contains(reason), "{error:#}");
        }
        assert!(read(&folder.path().join("missing.tar")).is_err());
    }

    #[test]
    fn only_a_regular_file_is_an_archive_and_nothing_else_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe.tar");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let link = folder.path().join("link.tar");
        std::os::unix::fs::symlink(&pipe, &link).unwrap();
        for path in [pipe, link, "/dev/zero".into(), folder.path().to_owned()] {
            let (say, said) = std::sync::mpsc::sync_channel(1);
            let asked = path.clone();
            // In a thread of its own, which an open that waits would keep for ever.
            std::thread::spawn(move || say.send(format!("{:#}", read(&asked).unwrap_err())));
            let error = said.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
            assert_eq!(error, format!("`{}` is not a regular file", path.display()));
        }
    }
}
