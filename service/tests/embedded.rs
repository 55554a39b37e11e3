//! Embedded Postgres, for real.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on shall panic")]

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::Path,
    process::Command,
    time::Duration,
};

use omgservers_service::postgres::{Embedded, EmbeddedSettings};
use sqlx::{Connection, PgConnection};
use tokio::time::{Instant, sleep};

const WAIT: Duration = Duration::from_secs(60);

/// A folder that the server's user can enter, also if the test runs as root.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

async fn start(folder: &Path, durable: bool) -> Embedded {
    let settings = EmbeddedSettings {
        directory: folder.join("pg"),
        durable,
        max_connections: 20,
    };
    Embedded::start(settings).await.unwrap()
}

async fn connect(url: &str) -> PgConnection {
    let deadline = Instant::now() + WAIT;
    loop {
        match PgConnection::connect(url).await {
            Ok(connection) => return connection,
            Err(error) => assert!(Instant::now() < deadline, "no connection: {error}"),
        }
        sleep(Duration::from_millis(50)).await;
    }
}

async fn write(url: &str, note: &str) {
    let mut connection = connect(url).await;
    let create = "create table if not exists notes (note text not null)";
    sqlx::query(create).execute(&mut connection).await.unwrap();
    sqlx::query("insert into notes values ($1)")
        .bind(note)
        .execute(&mut connection)
        .await
        .unwrap();
}

async fn notes(url: &str) -> Vec<String> {
    let mut connection = connect(url).await;
    sqlx::query_scalar("select note from notes order by note")
        .fetch_all(&mut connection)
        .await
        .unwrap()
}

fn kill(pid: i32) {
    assert!(
        Command::new("kill")
            .args(["-KILL", &pid.to_string()])
            .status()
            .unwrap()
            .success()
    );
}

fn lives(pid: i32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|words| !words.is_empty())
}

#[tokio::test]
async fn data_outlives_a_stop_and_a_start() {
    let folder = folder();
    let first = start(folder.path(), false).await;
    write(&first.url(), "one").await;
    let pid = first.pid();
    first.stop().await.unwrap();
    first.stop().await.expect("a second stop changes nothing");
    assert!(!lives(pid));
    let second = start(folder.path(), false).await;
    assert_eq!(notes(&second.url()).await, ["one"]);
    second.stop().await.unwrap();
}

#[tokio::test]
async fn a_server_that_is_killed_is_started_again_and_keeps_what_it_acknowledged() {
    let folder = folder();
    let server = start(folder.path(), true).await;
    write(&server.url(), "one").await;
    let first = server.pid();
    kill(first);
    let deadline = Instant::now() + WAIT;
    while server.pid() == first {
        assert!(Instant::now() < deadline, "it was not started again");
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(notes(&server.url()).await, ["one"]);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_server_that_was_left_running_is_adopted_and_watched() {
    let folder = folder();
    let first = start(folder.path(), true).await;
    let pid = first.pid();
    write(&first.url(), "one").await;
    drop(first);
    let second = start(folder.path(), true).await;
    assert_eq!(second.pid(), pid);
    assert_eq!(notes(&second.url()).await, ["one"]);
    kill(pid);
    let deadline = Instant::now() + WAIT;
    while second.pid() == pid {
        assert!(Instant::now() < deadline, "it was not started again");
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(notes(&second.url()).await, ["one"]);
    second.stop().await.unwrap();
}

#[tokio::test]
async fn notes_of_a_server_that_is_gone_do_not_stop_a_start() {
    let folder = folder();
    let first = start(folder.path(), true).await;
    write(&first.url(), "one").await;
    first.stop().await.unwrap();
    // As after a crash, with the number used again by a process that lives: this one.
    let data = folder.path().join("pg/data");
    let note = format!("{}\n{}\n1\n5432\n\n\n1 1\nready\n", std::process::id(), data.display());
    fs::write(data.join("postmaster.pid"), note).unwrap();
    let socket = folder.path().join("pg/socket");
    let owner = fs::metadata(&data).unwrap();
    fs::create_dir(&socket).unwrap();
    fs::set_permissions(&socket, owner.permissions()).unwrap();
    chown(&socket, Some(owner.uid()), Some(owner.gid())).unwrap();
    fs::write(socket.join(".s.PGSQL.5432.lock"), format!("{}\n", std::process::id())).unwrap();
    // And one that was being made when the power went.
    fs::create_dir_all(folder.path().join("pg/data.new/half")).unwrap();
    let second = start(folder.path(), true).await;
    assert_eq!(notes(&second.url()).await, ["one"]);
    second.stop().await.unwrap();
}

#[tokio::test]
async fn two_clusters_live_side_by_side_wherever_their_folders_are() {
    let folder = folder();
    let deep = folder
        .path()
        .join("a folder with blanks")
        .join("and-a-long-name".repeat(8));
    let (one, other) = tokio::join!(start(folder.path(), false), start(&deep, false));
    write(&one.url(), "one").await;
    write(&other.url(), "other").await;
    assert_eq!(notes(&one.url()).await, ["one"]);
    assert_eq!(notes(&other.url()).await, ["other"]);
    let mut connection = connect(&one.url()).await;
    let listens: String = sqlx::query_scalar("show listen_addresses")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(listens, "", "nothing but the socket");
    let status = fs::read_to_string(format!("/proc/{}/status", one.pid())).unwrap();
    assert!(!status.contains("Uid:\t0"), "the server never runs as root");
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        let groups = status.lines().find(|line| line.starts_with("Groups:")).unwrap();
        assert_eq!(groups.trim(), "Groups:", "root's groups are given up, too");
    }
    one.stop().await.unwrap();
    other.stop().await.unwrap();
}

#[tokio::test]
async fn services_that_start_at_once_share_one_server() {
    let folder = folder();
    let (one, other) = tokio::join!(start(folder.path(), false), start(folder.path(), false));
    assert_eq!(one.pid(), other.pid());
    drop(other);
    one.stop().await.unwrap();
}
