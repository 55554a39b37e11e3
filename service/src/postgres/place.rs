//! The folder of a cluster: its files, who owns them, and what they say about a server that may be running.

use std::{
    fs::{self, File},
    io::{Read, Seek, SeekFrom},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

/// A socket's path may have 107 bytes, of which its own name takes 14; the rest is spare.
const SOCKET_FOLDER_BYTES_MAX: usize = 90;
/// Size at which the log is put aside; so at most about twice as much is kept.
const LOG_BYTES_MAX: u64 = 10 << 20;
/// What is read of a log to say why a start failed.
const LOG_TAIL_BYTES_MAX: u64 = 64 << 10;
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The user under which the server runs if the service is root, which Postgres refuses to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct User {
    name: String,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// The folder of one cluster.
#[derive(Debug)]
pub(super) struct Place {
    folder: PathBuf,
    socket_folder: PathBuf,
    user: Option<User>,
}

impl Place {
    /// Makes the folder, and checks that the server's user can get there.
    pub(super) fn prepare(folder: &Path) -> Result<Self> {
        let user = match rustix::process::geteuid().is_root() {
            true => Some(unprivileged(&fs::read_to_string("/etc/passwd").unwrap_or_default())?),
            false => None,
        };
        let shown = folder.display();
        fs::create_dir_all(folder).with_context(|| format!("the folder `{shown}` cannot be made"))?;
        let folder = folder
            .canonicalize()
            .with_context(|| format!("the folder `{shown}` cannot be used"))?;
        if let Some(user) = &user {
            let mode = fs::metadata(&folder)?.mode();
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode | 0o711))?;
            check_way(&folder, user)?;
        }
        let socket_folder = socket_folder(&folder);
        Ok(Self {
            folder,
            socket_folder,
            user,
        })
    }

    pub(super) fn url(&self, owner: &str, port: u16) -> String {
        let folder = self.socket_folder.to_string_lossy();
        format!("postgres://{owner}@localhost/{owner}?host={folder}&port={port}")
    }

    pub(super) fn user(&self) -> Option<&User> {
        self.user.as_ref()
    }

    pub(super) fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Major version that made the cluster; `None` if there is none yet.
    pub(super) fn version(&self) -> Option<String> {
        Some(
            fs::read_to_string(self.data().join("PG_VERSION"))
                .ok()?
                .trim()
                .to_owned(),
        )
    }

    /// The running server's first process.
    pub(super) fn server(&self) -> Option<i32> {
        self.noted_pid().filter(|pid| self.is_ours(*pid))
    }

    /// Whether the process is a server of this cluster: numbers are used again.
    pub(super) fn is_ours(&self, pid: i32) -> bool {
        let Ok(command_line) = fs::read(format!("/proc/{pid}/cmdline")) else {
            return false;
        };
        let data = self.data();
        command_line
            .split(|byte| *byte == 0)
            .any(|word| word == data.as_os_str().as_encoded_bytes())
    }

    /// Line 8 of the server's own note says so.
    pub(super) fn is_ready(&self, pid: i32) -> bool {
        let note = fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
        let mut lines = note.lines();
        lines.next().and_then(|line| line.trim().parse().ok()) == Some(pid)
            && lines.nth(6).is_some_and(|line| line.trim() == "ready")
    }

    fn noted_pid(&self) -> Option<i32> {
        let note = fs::read_to_string(self.data().join("postmaster.pid")).ok()?;
        note.lines().next()?.trim().parse().ok()
    }

    /// Removes the notes of a server that is gone: its number may be somebody else's by now, and Postgres would take
    /// that for the server.
    pub(super) fn remove_stale_files(&self) -> Result<()> {
        ensure!(
            self.server().is_none(),
            "a server is running in `{}`",
            self.folder.display()
        );
        let socket = self.socket_folder.join(format!(".s.PGSQL.{}", super::PORT));
        let lock = self.socket_folder.join(format!(".s.PGSQL.{}.lock", super::PORT));
        for stale in [self.data().join("postmaster.pid"), socket, lock] {
            match fs::remove_file(&stale) {
                Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => {
                    return Err(cause).with_context(|| format!("`{}` cannot be removed", stale.display()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn make_new_data_folder(&self) -> Result<PathBuf> {
        let new = self.folder.join("data.new");
        if new.exists() {
            fs::remove_dir_all(&new)?;
        }
        ensure!(
            !self.data().exists(),
            "`{}` is there, but holds no cluster",
            self.data().display()
        );
        self.make_private_folder(&new)?;
        Ok(new)
    }

    pub(super) fn adopt_new_data_folder(&self) -> Result<()> {
        fs::rename(self.folder.join("data.new"), self.data())?;
        File::open(&self.folder)?.sync_all()?;
        Ok(())
    }

    /// The folder of the socket, which nobody but the server's user and root may enter: whoever can connect is trusted.
    pub(super) fn prepare_socket_folder(&self) -> Result<&Path> {
        match fs::symlink_metadata(&self.socket_folder) {
            Ok(there) => {
                let owner = self
                    .user
                    .as_ref()
                    .map_or(rustix::process::geteuid().as_raw(), |user| user.uid);
                let private = there.is_dir() && there.uid() == owner && there.mode() & 0o077 == 0;
                ensure!(
                    private,
                    "`{}` must be a folder of the server's user alone",
                    self.socket_folder.display()
                );
            }
            Err(_) => self.make_private_folder(&self.socket_folder)?,
        }
        Ok(&self.socket_folder)
    }

    /// Takes the socket's folder away if it is empty: it may be outside of ours.
    pub(super) fn remove_socket_folder(&self) {
        let _ = fs::remove_dir(&self.socket_folder);
    }

    fn make_private_folder(&self, folder: &Path) -> Result<()> {
        let make = || -> std::io::Result<()> {
            fs::create_dir(folder)?;
            fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
            match &self.user {
                Some(user) => chown(folder, Some(user.uid), Some(user.gid)),
                None => Ok(()),
            }
        };
        make().with_context(|| format!("the folder `{}` cannot be made", folder.display()))
    }

    fn log(&self) -> PathBuf {
        self.folder.join("postgres.log")
    }

    pub(super) fn open_log(&self) -> Result<File> {
        let log = File::options().append(true).create(true).mode(0o600).open(self.log());
        log.with_context(|| format!("the log `{}` cannot be written", self.log().display()))
    }

    pub(super) fn log_length(&self) -> u64 {
        fs::metadata(self.log()).map_or(0, |there| there.len())
    }

    pub(super) fn log_since(&self, mark: u64) -> String {
        let read = || -> std::io::Result<String> {
            let mut file = File::open(self.log())?;
            file.seek(SeekFrom::Start(mark))?;
            let mut bytes = Vec::new();
            file.take(LOG_TAIL_BYTES_MAX).read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        read().unwrap_or_default()
    }

    /// Puts a log aside that has grown too large. The server appends to the file it has open, so the file stays.
    pub(super) fn trim_log(&self) {
        if self.log_length() > LOG_BYTES_MAX {
            let trimmed = fs::copy(self.log(), self.folder.join("postgres.log.1"))
                .and_then(|_| File::options().write(true).open(self.log()))
                .and_then(|file| file.set_len(0));
            if let Err(error) = trimmed {
                tracing::warn!(%error, "the log of the embedded database cannot be trimmed");
            }
        }
    }
}

/// Held while a cluster is started, so that two services do not start it at once.
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    pub(super) async fn take(place: &Place, limit: Duration) -> Result<Self> {
        let file = File::create(place.folder.join("lock"))
            .with_context(|| format!("the folder `{}` cannot be written", place.folder.display()))?;
        let deadline = tokio::time::Instant::now() + limit;
        while file.try_lock().is_err() {
            if tokio::time::Instant::now() > deadline {
                bail!(
                    "another service has been starting the database in `{}` for too long",
                    place.folder.display()
                );
            }
            tokio::time::sleep(LOCK_POLL_INTERVAL).await;
        }
        Ok(Self { _file: file })
    }
}

/// Beside the data, unless the path is too long for a socket or has characters that mean something in a setting or an
/// address; then a folder in /tmp that is named after the path.
fn socket_folder(folder: &Path) -> PathBuf {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'.' | b'_' | b'-');
    let beside = folder.join("socket");
    let bytes = beside.as_os_str().as_encoded_bytes();
    if bytes.len() <= SOCKET_FOLDER_BYTES_MAX && bytes.iter().all(|byte| plain(*byte)) {
        return beside;
    }
    let digest = Sha256::digest(bytes);
    let name: String = digest.iter().take(10).map(|byte| format!("{byte:02x}")).collect();
    PathBuf::from(format!("/tmp/omgservers-{name}"))
}

/// `postgres`, or else `nobody`, from the text of `/etc/passwd`.
fn unprivileged(passwd: &str) -> Result<User> {
    let find = |name: &str| {
        passwd.lines().find_map(|line| {
            let fields: Vec<_> = line.split(':').collect();
            let [user, _, uid, gid, ..] = fields.as_slice() else {
                return None;
            };
            let found = *user == name;
            found.then_some(User {
                name: name.to_owned(),
                uid: uid.parse().ok()?,
                gid: gid.parse().ok()?,
            })
        })
    };
    let user = find("postgres").or_else(|| find("nobody"));
    user.context("Postgres does not run as root, and there is neither a user `postgres` nor `nobody`")
}

/// Whether `user` may enter every folder on the way to `folder`; says which one stops it.
fn check_way(folder: &Path, user: &User) -> Result<()> {
    for ancestor in folder.ancestors() {
        let there = fs::metadata(ancestor)?;
        let bit = match (there.uid() == user.uid, there.gid() == user.gid) {
            (true, _) => 0o100,
            (false, true) => 0o010,
            (false, false) => 0o001,
        };
        ensure!(
            there.mode() & bit != 0,
            "user `{}`, who runs the database, may not enter `{}`: choose another data folder, or `chmod o+x {}`",
            user.name,
            ancestor.display(),
            ancestor.display()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_lies_beside_the_data_unless_its_path_is_too_long_or_odd() {
        assert_eq!(
            socket_folder(Path::new("/var/lib/omg")),
            Path::new("/var/lib/omg/socket")
        );
        let long = socket_folder(&Path::new("/").join("x".repeat(100)));
        assert!(long.starts_with("/tmp") && long.as_os_str().len() < 40);
        assert_ne!(long, socket_folder(&Path::new("/").join("x".repeat(101))));
        assert!(socket_folder(Path::new("/home/a b")).starts_with("/tmp"));
    }

    #[test]
    fn the_server_runs_as_postgres_or_else_as_nobody() {
        let nobody = "root:x:0:0::/:/bin/sh\nnobody:x:65534:65533:n:/:/bin/false\n";
        let check = |passwd: &str, expected: (&str, u32, u32)| {
            let user = unprivileged(passwd).unwrap();
            assert_eq!((user.name.as_str(), user.uid, user.gid), expected);
        };
        check(nobody, ("nobody", 65534, 65533));
        check(
            &format!("{nobody}postgres:x:101:102::/:/bin/sh\n"),
            ("postgres", 101, 102),
        );
        assert!(unprivileged("root:x:0:0::/:/bin/sh\n").is_err());
    }

    #[test]
    fn a_folder_that_the_servers_user_may_not_enter_is_named() {
        let outer = tempfile::tempdir().unwrap();
        let inner = outer.path().join("closed/inner");
        fs::create_dir_all(&inner).unwrap();
        fs::set_permissions(outer.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let stranger = User {
            name: "stranger".to_owned(),
            uid: 54321,
            gid: 54321,
        };
        check_way(&inner, &stranger).unwrap();
        fs::set_permissions(outer.path().join("closed"), fs::Permissions::from_mode(0o750)).unwrap();
        let error = check_way(&inner, &stranger).unwrap_err().to_string();
        assert!(error.contains("stranger") && error.contains("/closed`"), "{error}");
    }
}
