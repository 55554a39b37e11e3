//! `omgctl down`: stops what `omgctl up` runs on a data folder, and deletes the folder if asked to.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::folder::{self, PARTS};
use super::part::STOP_GRACE;
use super::sweep;
use crate::failure::{Failure, Result};
use crate::input;
use crate::output::Output;

#[derive(Args)]
pub(crate) struct Down {
    /// The data folder of the installation
    #[arg(long, value_name = "DIR", default_value = super::DATA_DIRECTORY)]
    data: PathBuf,

    /// Delete the folder too: players, games, secrets, everything
    #[arg(long)]
    wipe: bool,

    /// Do not ask
    #[arg(long)]
    yes: bool,
}

pub(crate) async fn run(output: Output, down: Down) -> Result {
    let name = down.data.display();
    let is_there = folder::lock_file(&down.data).exists();
    if down.wipe && !is_there && down.data.exists() {
        return Err(Failure::refused(format!("`{name}` is not a data folder of omgctl")));
    }
    if down.wipe && is_there && !down.yes {
        match input::confirm(&format!("Delete `{name}` with everything in it?")) {
            Some(true) => {}
            Some(false) => return Err(Failure::refused("nothing was done")),
            None => {
                return Err(
                    Failure::usage("--wipe asks before it deletes, and there is nobody to ask").hint("--yes answers"),
                );
            }
        }
    }
    let mut stopped = false;
    if let Some(supervisor) = folder::supervisor(&down.data) {
        output.note(format_args!("stopping pid {}…", supervisor.pid()));
        supervisor.signal(rustix::process::Signal::TERM);
        // It stops its parts one after the other.
        let limit = STOP_GRACE * PARTS.len() as u32 + Duration::from_secs(10);
        if !supervisor.gone_within(limit).await {
            return Err(Failure::refused(format!(
                "pid {} did not stop within {} s",
                supervisor.pid(),
                limit.as_secs()
            )));
        }
        stopped = true;
    }
    stopped |= folder::stop_leftovers(&down.data, output).await;
    stopped |= sweep::sweep(&down.data, output).await;
    if down.wipe && is_there {
        std::fs::remove_dir_all(&down.data)
            .map_err(|cause| Failure::refused(format!("cannot delete `{name}`: {cause}")))?;
    }
    let wiped = down.wipe && is_there;
    output.result(&json!({"stopped": stopped, "wiped": wiped}), |_| {
        match (stopped, wiped) {
            (true, true) => format!("Stopped, and `{name}` is deleted."),
            (true, false) => "Stopped.".to_owned(),
            (false, true) => format!("Nothing was running; `{name}` is deleted."),
            (false, false) => "Nothing was running.".to_owned(),
        }
    });
    Ok(())
}
