//! This machine as a host.

use std::{fs, path::Path, process::Command, time::Duration};

use omgservers_service::{
    host::{Host, HostError, HostEvent, Progress},
    process::ProcessHost,
};

use crate::guest::{WAIT, end_of, eventually, guest, names, next, settings, start, with};

const GRACE: Duration = Duration::from_secs(5);

fn host(folder: &Path) -> ProcessHost {
    ProcessHost::new(folder.to_owned(), settings())
}

/// Number of the process that runs under `name`.
fn pid(folder: &Path, name: &str) -> i64 {
    let text = fs::read_to_string(folder.join("running").join(name).join("state.json")).unwrap();
    let state: serde_json::Value = serde_json::from_str(&text).unwrap();
    state["process"][0].as_i64().unwrap()
}

/// Whether anything of the process group lives.
fn group_lives(group: i64) -> bool {
    let output = Command::new("ps").args(["-eo", "pgid=,stat="]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().any(|line| {
        let mut fields = line.split_whitespace();
        fields.next() == Some(&group.to_string()) && !fields.next().unwrap_or("Z").starts_with('Z')
    })
}

#[tokio::test]
async fn a_process_starts_once_is_listed_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let host = host(folder.path());
    host.ping().await.unwrap();
    let spec = guest(1, "sleep");
    assert_eq!(
        start(&host, &spec).await.unwrap(),
        [Progress::Pulling, Progress::Starting]
    );
    let first = pid(folder.path(), &spec.name);
    assert!(group_lives(first));
    assert_eq!(
        start(&host, &spec).await.unwrap(),
        [Progress::Starting],
        "the image is there already"
    );
    assert_eq!(pid(folder.path(), &spec.name), first, "a second start changes nothing");
    assert_eq!(host.list().await.unwrap()[0].exited, None);
    assert_eq!(host.usage().await.unwrap().containers, 1);
    let log = folder.path().join("running/lobby_1/log");
    eventually("the log", async || {
        fs::read_to_string(&log).unwrap().contains("guest runs as sleep")
    })
    .await;

    host.stop(&spec.name, GRACE).await.unwrap();
    assert!(!group_lives(first));
    assert!(names(&host).await.is_empty() && !folder.path().join("running/lobby_1").exists());
    host.stop(&spec.name, GRACE)
        .await
        .expect("a second stop changes nothing");
}

#[tokio::test]
async fn a_newer_generation_takes_over_and_an_older_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let host = host(folder.path());
    let mut spec = guest(2, "sleep");
    start(&host, &spec).await.unwrap();
    let first = pid(folder.path(), &spec.name);
    spec.generation = 2;
    start(&host, &spec).await.unwrap();
    let second = pid(folder.path(), &spec.name);
    assert!(!group_lives(first) && group_lives(second));
    spec.generation = 1;
    assert!(matches!(start(&host, &spec).await, Err(HostError::Refused(_))));
    assert!(group_lives(second));
    host.stop(&spec.name, GRACE).await.unwrap();
}

#[tokio::test]
async fn an_end_is_told_with_its_code_and_the_process_can_be_started_anew() {
    let folder = tempfile::tempdir().unwrap();
    let host = host(folder.path());
    let mut events = host.watch();
    assert_eq!(next(&mut events).await, HostEvent::Connected);
    let spec = with(guest(3, "exit"), "CODE", "5");
    start(&host, &spec).await.unwrap();
    let died = next(&mut events).await;
    let expected = HostEvent::Died {
        name: spec.name.clone(),
        runtime_id: 3,
        generation: 1,
        detail: "exited with code 5".to_owned(),
    };
    assert_eq!(died, expected);
    assert_eq!(
        host.list().await.unwrap()[0].exited.as_deref(),
        Some("exited with code 5")
    );

    let again = guest(3, "sleep");
    start(&host, &again).await.unwrap();
    assert_eq!(host.list().await.unwrap()[0].exited, None);
    let killed = pid(folder.path(), &spec.name);
    Command::new("kill")
        .args(["-KILL", &killed.to_string()])
        .status()
        .unwrap();
    assert_eq!(end_of(&mut events, 3).await, "killed by signal 9");
    host.stop(&spec.name, GRACE).await.unwrap();
}

#[tokio::test]
async fn who_does_not_listen_is_killed_after_the_grace_and_so_are_its_children() {
    let folder = tempfile::tempdir().unwrap();
    let host = host(folder.path());
    for (runtime, mode) in [(4, "stubborn"), (5, "family")] {
        let spec = guest(runtime, mode);
        start(&host, &spec).await.unwrap();
        let log = folder.path().join("running").join(&spec.name).join("log");
        eventually("the guest", async || fs::read_to_string(&log).unwrap().contains(mode)).await;
        let group = pid(folder.path(), &spec.name);
        host.stop(&spec.name, Duration::from_millis(200)).await.unwrap();
        assert!(!group_lives(group), "{mode}");
    }
}

#[tokio::test]
async fn a_log_that_grows_is_put_aside() {
    let folder = tempfile::tempdir().unwrap();
    let host = host(folder.path());
    let _events = host.watch();
    let spec = guest(6, "print");
    start(&host, &spec).await.unwrap();
    eventually("a log put aside", async || {
        folder.path().join("running/lobby_6/log.1").exists()
    })
    .await;
    host.stop(&spec.name, GRACE).await.unwrap();
}

#[tokio::test]
async fn what_cannot_run_is_the_images_fault() {
    let folder = tempfile::tempdir().unwrap();
    let host = host(folder.path());
    let broken = folder.path().join("broken.tar");
    fs::write(&broken, "no archive").unwrap();
    for image in [
        "shooter:1".to_owned(),
        "file:///not/there.tar".to_owned(),
        format!("file://{}", broken.display()),
    ] {
        let mut spec = guest(7, "sleep");
        spec.image = image;
        assert!(
            matches!(start(&host, &spec).await, Err(HostError::Image(_))),
            "{}",
            spec.image
        );
    }
    let mut spec = guest(7, "sleep");
    spec.name = "../escaped".to_owned();
    assert!(matches!(start(&host, &spec).await, Err(HostError::Refused(_))));
    assert!(names(&host).await.is_empty());
}

#[tokio::test]
async fn a_start_that_was_cut_short_is_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let host = host(folder.path());
    for runtime in [8, 9] {
        start(&host, &guest(runtime, "sleep")).await.unwrap();
    }
    let alive = pid(folder.path(), "lobby_8");
    host.stop("lobby_9", GRACE).await.unwrap();
    // As if the service had been killed before it knew the numbers; the second process never came to be.
    let state = folder.path().join("running/lobby_8/state.json");
    let mut value: serde_json::Value = serde_json::from_str(&fs::read_to_string(&state).unwrap()).unwrap();
    value["process"] = serde_json::Value::Null;
    fs::write(&state, value.to_string()).unwrap();
    fs::create_dir_all(folder.path().join("running/lobby_9")).unwrap();
    value["name"] = "lobby_9".into();
    value["runtime_id"] = 9.into();
    fs::write(folder.path().join("running/lobby_9/state.json"), value.to_string()).unwrap();

    let next_service = ProcessHost::new(folder.path().to_owned(), settings());
    let mut found = next_service.list().await.unwrap();
    found.sort_by_key(|there| there.runtime_id);
    assert_eq!(found[0].exited, None);
    assert!(found[1].exited.is_some());
    assert_eq!(pid(folder.path(), "lobby_8"), alive);
    for name in ["lobby_8", "lobby_9"] {
        next_service.stop(name, GRACE).await.unwrap();
    }
    assert!(!group_lives(alive));
}

/// Not a test: the service that the next test kills.
#[tokio::test]
#[ignore = "run by `what_a_killed_service_left_is_adopted`"]
async fn service_to_be_killed() {
    let Some(folder) = std::env::var_os("HOSTS_TEST_FOLDER") else {
        return;
    };
    start(&host(Path::new(&folder)), &guest(10, "sleep")).await.unwrap();
    fs::write(Path::new(&folder).join("started"), "").unwrap();
    tokio::time::sleep(WAIT).await;
}

#[tokio::test]
async fn what_a_killed_service_left_is_adopted() {
    let folder = tempfile::tempdir().unwrap();
    let mut service = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "process::service_to_be_killed", "--ignored"])
        .env("HOSTS_TEST_FOLDER", folder.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    eventually("the first service's start", async || {
        folder.path().join("started").exists()
    })
    .await;
    service.kill().unwrap();
    service.wait().unwrap();
    let left = pid(folder.path(), "lobby_10");
    assert!(group_lives(left), "the process outlives its service");

    let host = host(folder.path());
    let mut events = host.watch();
    assert_eq!(next(&mut events).await, HostEvent::Connected);
    assert_eq!(host.list().await.unwrap()[0].exited, None);
    start(&host, &guest(10, "sleep")).await.unwrap();
    assert_eq!(pid(folder.path(), "lobby_10"), left, "what runs is not started twice");

    Command::new("kill")
        .args(["-KILL", &left.to_string()])
        .status()
        .unwrap();
    assert_eq!(end_of(&mut events, 10).await, "ended");
    host.stop("lobby_10", GRACE).await.unwrap();
    assert!(names(&host).await.is_empty());
}
