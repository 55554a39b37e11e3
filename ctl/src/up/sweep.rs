//! Ends what belongs to a data folder although the service that started it is gone: game servers that ran as processes,
//! and the embedded database. A service that stops by itself leaves neither; one that was killed leaves both.

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use super::part::STOP_GRACE;
use crate::output::Output;
use crate::process::Process;

/// Game servers have nothing to save that the platform does not have.
const GAME_GRACE: Duration = Duration::from_secs(5);

/// The variable by which the service marks game servers; its value begins with the folder of their state.
const GAME_MARK: &str = "OMGSERVERS_PROCESS";

/// Whether there was something to end.
pub(super) async fn sweep(data: &Path, output: Output) -> bool {
    let Ok(data) = data.canonicalize() else { return false };
    let mut found = 0;
    // A game server may be starting another process at this very moment: look again until nothing is there.
    for signal in [Signal::TERM, Signal::TERM, Signal::KILL, Signal::KILL] {
        let games = games(&data);
        for game in &games {
            game.signal(signal);
        }
        for game in &games {
            game.gone_within(GAME_GRACE).await;
        }
        found += games.len();
    }
    let database = database(&data);
    if let Some(database) = database {
        // Postgres ends its sessions and saves when it is interrupted; asked to terminate it would wait for them.
        database.signal(Signal::INT);
        if !database.gone_within(STOP_GRACE).await {
            database.signal(Signal::KILL);
            database.gone_within(GAME_GRACE).await;
        }
    }
    found += usize::from(database.is_some());
    if found > 0 {
        output.note(format_args!("ended {found} processes that were left over"));
    }
    found > 0
}

fn games(data: &Path) -> Vec<Process> {
    let mark = format!("{GAME_MARK}={}/", data.display());
    let marked = |process: &Process| process.environment().iter().any(|entry| entry.starts_with(&mark));
    Process::all().filter(marked).collect()
}

/// The one that wrote its number into the folder, if it still works there.
fn database(data: &Path) -> Option<Process> {
    let folder = data.join("postgres");
    let inside = std::fs::read_dir(&folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    std::iter::once(folder.clone()).chain(inside).find_map(|folder| {
        let content = std::fs::read_to_string(folder.join("postmaster.pid")).ok()?;
        let process = Process::of(content.lines().next()?.trim().parse().ok()?)?;
        let works_there = process
            .command_line()
            .iter()
            .any(|word| Path::new(word).starts_with(&folder));
        works_there.then_some(process)
    })
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::arguments::Format;

    fn sleeper(name: &str, variable: &str, value: String) -> Child {
        let child = Command::new("sh")
            .args(["-c", "sleep 60 & wait", name, &value])
            .env(variable, &value)
            .spawn()
            .unwrap();
        // A program that has just begun shows its words and variables a moment later.
        let deadline = Instant::now() + Duration::from_secs(30);
        let has_begun = |process: Process| process.command_line().contains(&value) && !process.environment().is_empty();
        while !Process::of(child.id()).is_some_and(has_begun) {
            assert!(Instant::now() < deadline, "{name} does not begin");
            std::thread::sleep(Duration::from_millis(1));
        }
        child
    }

    #[tokio::test]
    async fn only_what_belongs_to_the_folder_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().canonicalize().unwrap();
        let mut game = sleeper(
            "game",
            GAME_MARK,
            format!("{}/processes/running/lobby_1#1", data.display()),
        );
        let mut other = sleeper(
            "game",
            GAME_MARK,
            format!("{}-other/processes/running/lobby_1#1", data.display()),
        );
        let cluster = data.join("postgres");
        std::fs::create_dir(&cluster).unwrap();
        let mut database = sleeper("postgres", "UNUSED", cluster.display().to_string());
        std::fs::write(cluster.join("postmaster.pid"), format!("{}\nmore\n", database.id())).unwrap();

        let output = Output::new(Format::Text);
        // Children of this process stay zombies until they are waited for, which counts as gone. Where this test runs in the
        // background of a shell, they ignore the interrupt and are ended the hard way.
        assert!(sweep(&data, output).await);
        assert!(game.try_wait().unwrap().is_some() && database.try_wait().unwrap().is_some());
        assert!(other.try_wait().unwrap().is_none());
        assert!(!sweep(&data, output).await);
        // A number that belongs to somebody else by now.
        std::fs::write(cluster.join("postmaster.pid"), format!("{}\n", other.id())).unwrap();
        assert!(!sweep(&data, output).await);
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
