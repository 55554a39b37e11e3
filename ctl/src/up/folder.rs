//! The data folder of an installation: who works in it, its secrets, and what an earlier run left in it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use omgservers_protocol::id::UserId;
use omgservers_protocol::text::Text;
use rand::Rng;
use rand::distr::Alphanumeric;
use serde::{Deserialize, Serialize};

use super::part::STOP_GRACE;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::process::Process;
use crate::state::write_private_file;

/// Parts in the order in which they are started.
pub(super) const PARTS: [&str; 2] = ["service", "dispatcher"];

pub(super) struct Folder {
    path: PathBuf,
    /// Held as long as this process lives, however it ends.
    _lock: File,
}

impl Folder {
    /// Creates it if need be, and keeps everybody else out.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let failed = |what: &str| format!("cannot {what} the data folder `{}`", path.display());
        // Others may pass through, but not look: an embedded database may run as a user of its own.
        let create = |path: &Path| fs::DirBuilder::new().recursive(true).mode(0o711).create(path);
        create(path).with_context(|| failed("create"))?;
        let path = fs::canonicalize(path).with_context(|| failed("find"))?;
        for inside in ["run", "logs", "archives"] {
            create(&path.join(inside)).with_context(|| failed("use"))?;
        }
        let lock_file = lock_file(&path);
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&lock_file);
        let lock = lock.with_context(|| failed("lock"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let who = supervisor(&path)
                    .map(|process| format!(" by pid {}", process.pid()))
                    .unwrap_or_default();
                let failure = Failure::refused(format!("`{}` is in use{who}", path.display()));
                return Err(failure.hint(format!("`omgctl down --data {}` stops it", path.display())));
            }
            Err(TryLockError::Error(cause)) => return Err(anyhow::Error::new(cause).context(failed("lock")).into()),
        }
        if let Some(process) = Process::current() {
            process.store(&supervisor_file(&path))?;
        }
        Ok(Self { path, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Ends what an earlier run could not end because it was killed itself.
    pub(super) async fn stop_leftovers(&self, output: Output) {
        stop_leftovers(&self.path, output).await;
    }
}

/// Says that nobody works here any more.
impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_file(supervisor_file(&self.path));
    }
}

pub(super) async fn stop_leftovers(path: &Path, output: Output) -> bool {
    let mut found = false;
    for name in PARTS.iter().rev() {
        let file = pid_file(path, name);
        if let Some(process) = Process::load(&file) {
            found = true;
            output.note(format_args!(
                "stopping the {name} of an earlier run (pid {})",
                process.pid()
            ));
            process.stop(STOP_GRACE).await;
        }
        let _ = fs::remove_file(file);
    }
    found
}

/// Who runs `omgctl up` there.
pub(super) fn supervisor(path: &Path) -> Option<Process> {
    Process::load(&supervisor_file(path))
}

pub(super) fn pid_file(path: &Path, part: &str) -> PathBuf {
    path.join("run").join(format!("{part}.json"))
}

fn supervisor_file(path: &Path) -> PathBuf {
    pid_file(path, "supervisor")
}

/// Also the mark of a data folder.
pub(super) fn lock_file(path: &Path) -> PathBuf {
    path.join("up.lock")
}

/// What the parts prove themselves with. Stored, because it was told to the database at the first start.
#[derive(Serialize, Deserialize)]
pub(super) struct Secrets {
    pub(super) admin: String,
    pub(super) support: String,
    pub(super) dispatcher: String,
    /// Who deploys the game.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) developer: Option<Developer>,
    /// Support's password, should it have been changed since.
    #[serde(skip)]
    pub(super) support_login: Option<Text>,
    #[serde(skip)]
    file: PathBuf,
}

#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Developer {
    pub(super) user_id: UserId,
    pub(super) password: String,
}

impl Secrets {
    /// Those of the first start, or new ones, which are not stored yet. Later on only whoever deploys a game logs in, as
    /// support.
    pub(super) fn load(folder: &Folder, admin: Option<Text>, support: Option<Text>, deploys: bool) -> Result<Self> {
        let file = folder.path().join("secrets");
        let secrets = match fs::read(&file) {
            Ok(content) => {
                let broken = || format!("`{}` is broken", file.display());
                let stored: Self = serde_json::from_slice(&content).with_context(broken)?;
                let admin = admin.filter(|given| given.as_str() != stored.admin);
                let support = support.filter(|given| given.as_str() != stored.support);
                for (role, refused) in [("admin", admin.is_some()), ("support", support.is_some() && !deploys)] {
                    if refused {
                        let failure = Failure::refused(format!("the password of {role} was fixed at the first start"));
                        return Err(failure.hint(format!(
                            "leave it out; `omgctl {role} changePassword` changes it while this runs"
                        )));
                    }
                }
                Self {
                    file,
                    support_login: support,
                    ..stored
                }
            }
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => Self {
                admin: admin.map_or("admin".to_owned(), |given| given.to_string()),
                support: support.map_or("support".to_owned(), |given| given.to_string()),
                dispatcher: random(),
                developer: None,
                support_login: None,
                file,
            },
            Err(cause) => {
                return Err(anyhow::Error::new(cause)
                    .context(format!("cannot read `{}`", file.display()))
                    .into());
            }
        };
        Ok(secrets)
    }

    pub(super) fn store(&self) -> Result {
        let content = serde_json::to_vec_pretty(self).context("secrets are plain data")?;
        write_private_file(&self.file, &content).with_context(|| format!("cannot write `{}`", self.file.display()))?;
        Ok(())
    }
}

/// 190 bits.
fn random() -> String {
    rand::rng().sample_iter(Alphanumeric).take(32).map(char::from).collect()
}
