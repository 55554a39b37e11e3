//! The first game of the guide: its programs are compiled, its commands are run, its player plays.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use harness::{DEADLINE, Installation, Options, program, shooter};

use super::{blocks, read};

/// The player of the guide, compiled from the file that the guide shows.
#[path = "../../docs/guides/first-game/player.rs"]
#[expect(clippy::print_stdout, reason = "a program for people, shown in the guide")]
#[expect(dead_code, reason = "its `main` is for readers of the guide")]
#[expect(unreachable_pub, reason = "a program of its own in the guide")]
mod guide_player;

#[test]
fn the_guide_shows_the_programs_that_are_compiled() {
    let guide = read("docs/guides/first-game.md");
    let programs = ["server", "player"].map(|name| read(&format!("docs/guides/first-game/{name}.rs")));
    assert_eq!(blocks(&guide, "rust"), programs);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_game_of_the_guide_is_deployed_and_played_as_written() {
    let installation = Installation::start(Options::default()).await;
    let guide = read("docs/guides/first-game.md");
    let folder = installation.folder().join("hello");
    std::fs::create_dir_all(&folder).expect("a folder for the game");
    std::fs::write(folder.join("version.json"), &blocks(&guide, "json")[0]).expect("version.json");
    // Hosts of processes take a program as it is; the guide's own command wants a static one, for Docker.
    let archive = shooter::pack("guide-game");
    std::fs::rename(&archive, folder.join("hello.tar")).expect("the image is moved");

    let port = installation.base.rsplit(':').next().expect("a port").to_owned();
    let script = blocks(&guide, "sh")
        .concat()
        .replace("useLocal", &format!("useLocal --port {port}"));
    let ran = tokio::task::spawn_blocking(move || run(&script, &folder))
        .await
        .expect("it does not panic");
    for (command, expected) in [
        ("createTenant", "was created"),
        ("deployVersion", "Deployment "),
        ("getDeploymentDetails", "Lobbies and matches"),
    ] {
        assert!(ran.contains(expected), "{command} printed no `{expected}`:\n{ran}");
    }
    let played = tokio::time::timeout(DEADLINE, guide_player::play(&installation.base)).await;
    played.expect("the player is heard in time").expect("the player plays");
    installation.stop().await;
}

/// Runs commands in a folder as a reader would, and stops at the first that fails.
fn run(script: &str, folder: &Path) -> String {
    let programs = program("omgctl").parent().expect("it is in a folder").to_owned();
    let mut child = Command::new("sh")
        .args(["-euc", script])
        .current_dir(folder)
        .env("PATH", format!("{}:/usr/bin:/bin", programs.display()))
        .env_remove("OMGSERVERSCTL_DIRECTORY")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("sh starts");
    let until = std::time::Instant::now() + DEADLINE;
    loop {
        match child.try_wait().expect("a child can be asked") {
            Some(status) => {
                let output = child.wait_with_output().expect("what it printed");
                let text = String::from_utf8_lossy(&output.stdout).into_owned();
                assert!(status.success(), "{status}:\n{text}");
                return text;
            }
            None if std::time::Instant::now() > until => {
                child.kill().ok();
                panic!("the commands of the guide take longer than {} s", DEADLINE.as_secs());
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}
