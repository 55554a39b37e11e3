//! A program that never outlives whoever started it. `omgctl` starts itself with this command, asks the system to be ended
//! together with its parent, and becomes the program: that wish survives the change.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::failure::{Failure, Result};

#[derive(Args)]
pub(crate) struct Leash {
    /// The process that holds it
    holder: i32,
    program: PathBuf,
    arguments: Vec<OsString>,
}

/// What to run instead of a program that should be kept on the leash of this process.
///
/// It ends with the thread that starts it, so it must be started by one that lives as long as the process.
pub(crate) fn command(program: &Path) -> tokio::process::Command {
    // Not the path of this program: that file may have been replaced since.
    let mut command = tokio::process::Command::new("/proc/self/exe");
    command
        .args(["leash", "--"])
        .arg(std::process::id().to_string())
        .arg(program);
    command
}

/// Returns only if the program cannot be run.
pub(crate) fn run(leash: Leash) -> Result {
    let failed = |cause: std::io::Error| Failure::usage(format!("cannot run `{}`: {cause}", leash.program.display()));
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|cause| failed(cause.into()))?;
    // Whoever should hold it may be gone already, and then nobody would end it.
    if getppid().is_none_or(|parent| parent.as_raw_pid() != leash.holder) {
        return Err(Failure::refused("whoever started this is gone"));
    }
    Err(failed(Command::new(&leash.program).args(&leash.arguments).exec()))
}
