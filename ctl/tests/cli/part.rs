//! Stand-ins for the service and the dispatcher: this test program itself, started by a small script. They listen where
//! they are told to, and write down when they start and stop.

use std::io::Write;
use std::path::{Path, PathBuf};

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::service::Service;

/// Writes the programs into a folder.
pub(crate) fn install(folder: &Path) {
    for name in ["service", "dispatcher"] {
        let program = std::env::current_exe().unwrap();
        let script = format!(
            "#!/bin/sh\nexport TEST_PART={name} TEST_FOLDER='{}'\nexec '{}' --exact part::acts_as_a_part_when_told_to --nocapture\n",
            folder.display(),
            program.display()
        );
        write_program(folder, name, &script);
    }
}

pub(crate) fn write_program(folder: &Path, name: &str, script: &str) {
    use std::os::unix::fs::PermissionsExt;
    let file = folder.join(format!("omgservers-{name}"));
    std::fs::write(&file, script).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// What the parts wrote down.
pub(crate) fn journal(folder: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join("journal")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn variable(name: &str) -> String {
    std::env::var_os(name)
        .unwrap_or_else(|| panic!("{name} is missing"))
        .into_string()
        .unwrap()
}

#[test]
fn acts_as_a_part_when_told_to() {
    if std::env::var_os("TEST_PART").is_none() {
        return;
    }
    let name = variable("TEST_PART");
    let folder = PathBuf::from(variable("TEST_FOLDER"));
    let write_down = |what: &str| {
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(folder.join("journal"))
            .unwrap();
        writeln!(file, "{name} {what}").unwrap();
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut stop = signal(SignalKind::terminate()).unwrap();
        let listen =
            |port: String| async move { TcpListener::bind(("127.0.0.1", port.parse().unwrap())).await.unwrap() };
        let http = listen(variable("OMGSERVERS_HTTP_PORT")).await;
        let management = listen(variable("OMGSERVERS_MANAGEMENT_PORT")).await;
        if name == "service" {
            assert!(Path::new(&variable("OMGSERVERS_DATA_DIRECTORY")).is_absolute());
            for setting in ["DOCKER_DAEMON_URI", "CPU_COUNT", "MEMORY_SIZE", "MAX_CONTAINERS"] {
                variable(&format!("OMGSERVERS_BOOTSTRAP_DEFAULT_POOL_DOCKER_HOSTS_0__{setting}"));
            }
        } else {
            assert!(variable("OMGSERVERS_DISPATCHER_USER_PASSWORD").len() >= 32);
        }
        write_down("started");
        let ready = Router::new().route("/health/ready", get(|| async { "ready" }));
        let api = Service::new(&folder).router();
        tokio::select! {
            served = axum::serve(http, api) => served.unwrap(),
            served = axum::serve(management, ready) => served.unwrap(),
            _ = stop.recv() => {
                // Panics where nobody can take it.
                eprintln!("stopping");
                write_down("stopped");
            }
        }
    });
}
