//! `omgctl up` and `omgctl down` with stand-ins for the parts.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::part;
use crate::run::{Transcript, answer, omgctl, text};
use crate::service::Service;

const DEADLINE: Duration = Duration::from_secs(30);

/// A folder with the programs, and ports that were free a moment ago.
struct Machine {
    folder: tempfile::TempDir,
    ports: [u16; 4],
}

impl Machine {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        part::install(folder.path());
        let held: [TcpListener; 4] = std::array::from_fn(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let ports = held.each_ref().map(|listener| listener.local_addr().unwrap().port());
        Self { folder, ports }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn data(&self) -> PathBuf {
        self.path().join(".omgservers")
    }

    fn command(&self) -> Command {
        let [port, management, service, service_management] = self.ports.map(|port| port.to_string());
        let mut command = omgctl(self.path());
        command.args([
            "up",
            "--host",
            "process",
            "--programs",
            ".",
            "--port",
            &port,
            "--management-port",
            &management,
        ]);
        command.args([
            "--service-port",
            &service,
            "--service-management-port",
            &service_management,
        ]);
        // The parts are scripts that need a shell.
        command.env("PATH", "/usr/bin:/bin");
        command
    }

    /// Starts it and returns once it says that it runs.
    fn up(&self, more: &[&str]) -> Up {
        let (stdout, stderr) = (self.path().join("stdout"), self.path().join("stderr"));
        let mut command = self.command();
        let file = |path: &Path| Stdio::from(std::fs::File::create(path).unwrap());
        let child = command
            .args(more)
            .stdout(file(&stdout))
            .stderr(file(&stderr))
            .spawn()
            .unwrap();
        let mut up = Up { child, stdout, stderr };
        wait_for("the banner", || {
            let ended = up.child.try_wait().unwrap();
            assert!(ended.is_none(), "{}", up.stderr());
            up.stdout().contains("Ctrl-C")
        });
        up
    }

    /// The process of a part, as its pid file says.
    fn pid(&self, part: &str) -> Option<u32> {
        let content = std::fs::read(self.data().join("run").join(format!("{part}.json"))).ok()?;
        let value: serde_json::Value = serde_json::from_slice(&content).unwrap();
        Some(value["pid"].as_u64().unwrap() as u32)
    }
}

struct Up {
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Up {
    fn stdout(&self) -> String {
        std::fs::read_to_string(&self.stdout).unwrap()
    }

    fn stderr(&self) -> String {
        std::fs::read_to_string(&self.stderr).unwrap()
    }

    fn stop(&mut self, signal: &str) -> Option<i32> {
        send(signal, self.child.id());
        wait_for("the end", || self.child.try_wait().unwrap().is_some());
        self.child.wait().unwrap().code()
    }
}

/// A test that fails must not leave anything running.
impl Drop for Up {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            send("TERM", self.child.id());
            let _ = self.child.wait();
        }
    }
}

fn send(signal: &str, pid: u32) {
    let sent = Command::new("kill")
        .args([format!("-{signal}"), pid.to_string()])
        .status()
        .unwrap();
    assert!(sent.success());
}

fn is_alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what} did not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn parts_are_started_in_order_and_stopped_in_reverse() {
    let machine = Machine::new();
    for signal in ["TERM", "INT", "HUP"] {
        let _ = std::fs::remove_file(machine.path().join("journal"));
        let mut up = machine.up(&[]);
        assert_eq!(up.stop(signal), Some(0), "{}", up.stderr());
        let expected = [
            "service started",
            "dispatcher started",
            "dispatcher stopped",
            "service stopped",
        ];
        assert_eq!(part::journal(machine.path()), expected);
        assert_eq!(
            (
                machine.pid("service"),
                machine.pid("dispatcher"),
                machine.pid("supervisor")
            ),
            (None, None, None)
        );
    }
    let said = std::fs::read_to_string(machine.path().join("stdout")).unwrap();
    let port = machine.ports[0].to_string();
    assert!(
        said.contains(&format!("http://localhost:{port}")) && said.contains("process://"),
        "{said}"
    );
    let secrets = std::fs::metadata(machine.data().join("secrets")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::mode(&secrets) & 0o777, 0o600);
}

#[test]
fn a_part_that_dies_is_started_again() {
    let machine = Machine::new();
    let mut up = machine.up(&[]);
    for part in ["dispatcher", "service"] {
        let old = machine.pid(part).unwrap();
        send("KILL", old);
        wait_for("the new one", || machine.pid(part).is_some_and(|new| new != old));
        wait_for("readiness", || {
            up.stderr().matches(&format!("the {part} is ready")).count() == 2
        });
    }
    let said = up.stderr();
    assert!(
        said.contains("warning: the dispatcher ended: signal: 9 (SIGKILL); starting it again in 0.5 s"),
        "{said}"
    );
    assert_eq!(up.stop("TERM"), Some(0));
}

#[test]
fn a_second_one_is_refused_and_down_stops_the_first() {
    let machine = Machine::new();
    let mut up = machine.up(&[]);
    let second = answer(machine.command(), "");
    assert_eq!(second.status.code(), Some(1));
    let said = text(&second.stderr);
    assert!(
        said.contains(&format!("is in use by pid {}", up.child.id())) && said.contains("omgctl down"),
        "{said}"
    );

    let mut transcript = Transcript::new(machine.path()).replace(up.child.id().to_string(), "PID");
    transcript.run("down");
    assert_eq!(up.child.wait().unwrap().code(), Some(0));
    transcript.run("down").run("down --wipe");
    assert!(machine.data().exists());
    transcript.run("down --wipe --yes").run("down --wipe --yes");
    assert!(!machine.data().exists());
    std::fs::create_dir(machine.path().join("precious")).unwrap();
    transcript.run("down --data precious --wipe --yes").check("down");
    assert!(machine.path().join("precious").exists());
}

#[test]
fn what_a_killed_supervisor_left_is_stopped_by_the_next_one() {
    let machine = Machine::new();
    let mut up = machine.up(&[]);
    let left = [machine.pid("service").unwrap(), machine.pid("dispatcher").unwrap()];
    up.stop("KILL");
    assert!(left.iter().all(|pid| is_alive(*pid)));
    let mut up = machine.up(&[]);
    assert!(!left.iter().any(|pid| is_alive(*pid)), "{}", up.stderr());
    // They were well without the supervisor, and stopped by themselves.
    let journal = part::journal(machine.path());
    assert_eq!(journal[2..4], ["dispatcher stopped", "service stopped"]);
    let left = [machine.pid("service").unwrap(), machine.pid("dispatcher").unwrap()];
    up.stop("KILL");
    let mut down = omgctl(machine.path());
    down.arg("down");
    assert!(answer(down, "").status.success());
    assert!(!left.iter().any(|pid| is_alive(*pid)));
}

#[test]
fn a_part_that_cannot_start_is_told_with_its_last_words() {
    let machine = Machine::new();
    part::write_program(
        machine.path(),
        "dispatcher",
        "#!/bin/sh\necho 'the password is wrong' >&2\nexit 3\n",
    );
    let up = answer(machine.command(), "");
    assert_eq!(up.status.code(), Some(1));
    let said = text(&up.stderr);
    assert!(
        said.contains("error: the dispatcher ended: exit status: 3") && said.contains("| the password is wrong"),
        "{said}"
    );
    assert_eq!(part::journal(machine.path()), ["service started", "service stopped"]);

    let _taken = TcpListener::bind(("127.0.0.1", machine.ports[1])).unwrap();
    let up = answer(machine.command(), "");
    let said = text(&up.stderr);
    assert!(
        up.status.code() == Some(1) && said.contains("hint: --management-port chooses another one"),
        "{said}"
    );

    std::fs::remove_file(machine.path().join("omgservers-service")).unwrap();
    drop(_taken);
    let up = answer(machine.command(), "");
    assert!(
        text(&up.stderr).contains("omgservers-service` is missing"),
        "{}",
        text(&up.stderr)
    );
}

#[test]
fn a_public_address_in_the_environment_is_kept() {
    let machine = Machine::new();
    part::write_program(
        machine.path(),
        "service",
        "#!/bin/sh\necho \"at $OMGSERVERS_SERVER_URI\" >&2\nexit 3\n",
    );
    let own = format!("http://localhost:{}", machine.ports[0]);
    for (inherited, uri) in [
        (None, own.as_str()),
        (Some(""), &own),
        (Some("https://play.test"), "https://play.test"),
    ] {
        let mut command = machine.command();
        command.envs(inherited.map(|uri| ("OMGSERVERS_SERVER_URI", uri)));
        let said = text(&answer(command, "").stderr);
        assert!(said.contains(&format!("| at {uri}\n")), "{said}");
    }
}

#[test]
fn a_game_is_deployed_once_and_again_only_when_it_has_changed() {
    let machine = Machine::new();
    let game = machine.path().join("game");
    std::fs::create_dir(&game).unwrap();
    let version = r#"{"modes": [{"name": "duel", "min_players": 2, "max_players": 2, "groups": [{"name": "all", "min_players": 2, "max_players": 2}]}]}"#;
    std::fs::write(game.join("version.json"), version).unwrap();
    std::fs::write(game.join("deployment.json"), r#"{"min_lobbies": 1}"#).unwrap();
    std::fs::write(game.join("image.tar"), "first").unwrap();
    let service = Service::new(machine.path());
    let mut seen = 0;
    let mut deploy = |expected: &[&str]| {
        let mut up = machine.up(&[
            "--deploy",
            "game",
            "--tenant",
            "acme",
            "--project",
            "game",
            "--stage",
            "prod",
        ]);
        assert!(up.stdout().contains("acme/game/prod, version 400"), "{}", up.stdout());
        up.stop("TERM");
        let calls = service.calls();
        let changes: Vec<_> = calls[seen..]
            .iter()
            .filter(|call| !call.contains(" get-") && !call.contains("token"))
            .cloned()
            .collect();
        assert_eq!(changes, expected);
        seen = calls.len();
        let images = std::fs::read_dir(machine.data().join("archives")).unwrap();
        let images: Vec<_> = images
            .map(|image| std::fs::read_to_string(image.unwrap().path()).unwrap())
            .collect();
        assert_eq!(images, [std::fs::read_to_string(game.join("image.tar")).unwrap()]);
    };
    let deployment = [
        "developer create-version",
        "developer create-image",
        "developer deploy-version",
    ];
    let everything = [
        "support create-developer",
        "support create-tenant",
        "support create-tenant-alias",
        "support create-tenant-permissions",
        "developer create-project",
        "developer create-project-alias",
        "developer create-stage-alias",
    ];
    deploy(&[&everything[..], &deployment[..]].concat());
    deploy(&[]);
    std::fs::write(game.join("image.tar"), "second").unwrap();
    deploy(&deployment);
    std::fs::write(game.join("deployment.json"), r#"{"min_lobbies": 2}"#).unwrap();
    deploy(&deployment);
    deploy(&[]);
}

#[test]
fn passwords_are_fixed_at_the_first_start() {
    let machine = Machine::new();
    let mut up = machine.up(&["--admin-password", "a-secret", "--support-password", "another"]);
    assert!(!up.stderr().contains("passwords of development"), "{}", up.stderr());
    up.stop("TERM");
    for role in ["admin", "support"] {
        let mut command = machine.command();
        command.args([format!("--{role}-password").as_str(), "changed"]);
        let refused = answer(command, "");
        assert!(refused.status.code() == Some(1) && text(&refused.stderr).contains("fixed at the first start"));
    }
    machine.up(&[]).stop("TERM");
}

#[test]
fn a_start_that_comes_to_nothing_fixes_no_passwords() {
    let machine = Machine::new();
    let taken = TcpListener::bind(("127.0.0.1", machine.ports[1])).unwrap();
    let mut command = machine.command();
    command.args(["--support-password", "mistyped"]);
    assert_eq!(answer(command, "").status.code(), Some(1));
    drop(taken);
    machine.up(&["--support-password", "right"]).stop("TERM");
}

#[test]
fn passwords_that_were_changed_since_are_no_reason_to_stop() {
    let machine = Machine::new();
    let game = machine.path().join("game");
    std::fs::create_dir(&game).unwrap();
    std::fs::write(game.join("version.json"), r#"{"modes": []}"#).unwrap();
    std::fs::write(game.join("image.tar"), "image").unwrap();
    let first = machine.up(&[]);
    let told = "warning: admin and support can log in by the passwords of development";
    assert!(first.stderr().contains(told), "{}", first.stderr());
    assert!(
        first.stdout().contains("omgctl environment useLocal"),
        "{}",
        first.stdout()
    );
    drop(first);
    let change = |world: &mut crate::service::World| {
        world.insert("password support".to_owned(), serde_json::json!("changed"));
    };
    Service::new(machine.path()).change(change);
    let up = machine.up(&["--deploy", "game"]);
    assert!(
        up.stderr()
            .contains("demo/shooter/prod is not deployed; start again with --support-password"),
        "{}",
        up.stderr()
    );
    assert!(up.stderr().contains("warning: admin can log in by"), "{}", up.stderr());
    assert!(!up.stdout().contains("useLocal"), "{}", up.stdout());
    drop(up);
    for more in [&["--support-password", "changed"][..], &[]] {
        let up = machine.up(&[&["--deploy", "game"], more].concat());
        assert!(
            up.stdout().contains("demo/shooter/prod, version 400"),
            "{}",
            up.stderr()
        );
    }
}
