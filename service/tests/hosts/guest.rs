//! A small game server for tests, which does what its environment says, and what tests want of any host.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::{LazyLock, Mutex},
    time::Duration,
};

use omgservers_service::{
    archive::{self, ImageFile},
    host::{Host, HostError, HostEvent, HostSettings, Progress, RunSpec},
};
use tokio::sync::mpsc::Receiver;

/// Nothing here takes nearly as long.
pub(crate) const WAIT: Duration = Duration::from_secs(20);

const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void leave(int signal) { (void)signal; _exit(0); }
static int is(const char *mode) { const char *wanted = getenv("GUEST"); return wanted && !strcmp(wanted, mode); }
static int number(const char *name) { const char *text = getenv(name); return text ? atoi(text) : 0; }
static struct sockaddr_in place(const char *host) {
  struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(number("PORT")) };
  address.sin_addr.s_addr = inet_addr(host);
  return address;
}
static int says(const char *line) { /* in /proc/self/status */
  char text[8192]; int file = open("/proc/self/status", O_RDONLY);
  ssize_t length = read(file, text, sizeof text - 1); text[length > 0 ? length : 0] = 0;
  return strstr(text, line) != 0;
}

int main(void) {
  if (is("stubborn")) signal(SIGTERM, SIG_IGN); else signal(SIGTERM, leave);
  printf("guest runs as %s\n", getenv("GUEST")); fflush(stdout);
  if (is("exit")) return number("CODE");
  if (is("print")) { char line[4096]; memset(line, 'x', sizeof line); line[4095] = '\n'; for (;;) if (write(1, line, sizeof line) < 0) return 9; }
  if (is("eat")) for (;;) { char *piece = malloc(1 << 20); if (piece) memset(piece, 1, 1 << 20); }
  if (is("family") && fork() == 0) signal(SIGTERM, SIG_IGN);
  if (is("confined")) {
    int wrong = 0;
    if (open("/made", O_CREAT | O_WRONLY, 0644) >= 0) wrong |= 1;
    if (open("/tmp/made", O_CREAT | O_WRONLY, 0644) < 0) wrong |= 2;
    if (!says("CapEff:\t0000000000000000") || !says("CapBnd:\t0000000000000000")) wrong |= 4;
    if (!says("NoNewPrivs:\t1")) wrong |= 8;
    if (setuid(0) == 0) wrong |= 16;
    return wrong;
  }
  if (is("listen")) {
    struct sockaddr_in address = place("0.0.0.0"); int server = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(server, (struct sockaddr *)&address, sizeof address) || listen(server, 8)) return 8;
    for (;;) close(accept(server, 0, 0));
  }
  if (is("reach")) { /* 0 if the place answers within a second */
    struct sockaddr_in address = place(getenv("PLACE")); int client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    connect(client, (struct sockaddr *)&address, sizeof address);
    struct pollfd ready = { .fd = client, .events = POLLOUT }; int error = 1; socklen_t size = sizeof error;
    if (poll(&ready, 1, 1000) == 1) getsockopt(client, SOL_SOCKET, SO_ERROR, &error, &size);
    return error ? 7 : 0;
  }
  for (;;) pause();
}
"#;

/// The archive of the guest, built once per test run.
static ARCHIVE: LazyLock<(tempfile::TempDir, PathBuf)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("guest");
    std::fs::write(folder.path().join("guest.c"), SOURCE).unwrap();
    let mut compiler = Command::new("cc");
    compiler
        .args(["-static", "-O1", "-o"])
        .arg(&program)
        .arg(folder.path().join("guest.c"));
    assert!(compiler.status().unwrap().success(), "the guest cannot be built");
    let archive = folder.path().join("guest.tar");
    let files = [ImageFile {
        path: "/bin/guest".to_owned(),
        source: program,
        mode: 0o755,
    }];
    archive::write(&archive, "omgservers/guest:1", &["/bin/guest".to_owned()], &files, &[]).unwrap();
    (folder, archive)
});

pub(crate) fn archive_path() -> &'static Path {
    &ARCHIVE.1
}

pub(crate) fn settings() -> HostSettings {
    HostSettings {
        installation: "hosts-test".to_owned(),
        allow_files: true,
        ping_interval: Duration::from_millis(500),
        ..HostSettings::default()
    }
}

/// A guest that does `mode`.
pub(crate) fn guest(runtime_id: i64, mode: &str) -> RunSpec {
    RunSpec {
        name: format!("lobby_{runtime_id}"),
        runtime_id,
        generation: 1,
        image: format!("file://{}", archive_path().display()),
        environment: vec![("GUEST".to_owned(), mode.to_owned())],
        cpu_limit: 50,
        memory_limit_mb: 32,
        labels: vec![("com.omgservers.tenant".to_owned(), "7".to_owned())],
        network: "omgtest-7".to_owned(),
    }
}

pub(crate) fn with(mut spec: RunSpec, name: &str, value: &str) -> RunSpec {
    spec.environment.push((name.to_owned(), value.to_owned()));
    spec
}

/// Starts `spec` and answers the stages it went through.
pub(crate) async fn start(host: &dyn Host, spec: &RunSpec) -> Result<Vec<Progress>, HostError> {
    let stages = Mutex::new(Vec::new());
    host.start(spec, &|stage| stages.lock().unwrap().push(stage)).await?;
    Ok(stages.into_inner().unwrap())
}

pub(crate) async fn names(host: &dyn Host) -> Vec<String> {
    let mut names: Vec<_> = host.list().await.unwrap().into_iter().map(|there| there.name).collect();
    names.sort();
    names
}

/// The next event of the host.
pub(crate) async fn next(events: &mut Receiver<HostEvent>) -> HostEvent {
    tokio::time::timeout(WAIT, events.recv())
        .await
        .expect("an event in time")
        .expect("a host that is watched")
}

/// How the runtime ended, from the host's events.
pub(crate) async fn end_of(events: &mut Receiver<HostEvent>, runtime: i64) -> String {
    loop {
        if let HostEvent::Died { runtime_id, detail, .. } = next(events).await
            && runtime_id == runtime
        {
            return detail;
        }
    }
}

pub(crate) async fn eventually(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + WAIT;
    while !done().await {
        assert!(tokio::time::Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
