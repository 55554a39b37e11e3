//! A program that never outlives whoever started it. `omgctl` starts itself with this word, asks the system to be ended
//! together with its parent, and becomes the program: that wish survives the change. Not a command, since it is not for
//! people.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::failure::{Failure, Result};

/// The first argument of such a start.
pub(crate) const WORD: &str = "leash";

/// What to run instead of a program that should be kept on the leash of this process.
///
/// It ends with the thread that starts it, so it must be started by one that lives as long as the process.
pub(crate) fn command(program: &Path) -> tokio::process::Command {
    // Not the path of this program: that file may have been replaced since.
    let mut command = tokio::process::Command::new("/proc/self/exe");
    command.arg(WORD).arg(std::process::id().to_string()).arg(program);
    command
}

/// Becomes the program, given what follows the word: who holds it, the program, its arguments. Returns only on failure.
pub(crate) fn run(words: &[OsString]) -> Result {
    let [holder, program, arguments @ ..] = words else {
        return Err(Failure::usage("nothing to run"));
    };
    let failed = |cause: std::io::Error| {
        let program = Path::new(program).display();
        Failure::usage(format!("cannot run `{program}`: {cause}"))
    };
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|cause| failed(cause.into()))?;
    // Whoever should hold it may be gone already, and then nobody would end it.
    let parent = getppid().map(|parent| parent.as_raw_pid().to_string());
    if parent.as_deref().map(AsRef::as_ref) != Some(holder.as_os_str()) {
        return Err(Failure::refused("whoever started this is gone"));
    }
    Err(failed(Command::new(program).args(arguments).exec()))
}
