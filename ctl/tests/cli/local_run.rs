//! `developer run` against a stand-in, with shell scripts as game servers.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::commands::{Setting, run, setting};
use crate::run::{answer, omgctl, text};
use crate::service::Service;

/// What the service would say: every runtime that the test wants, with its environment as long as it does not run.
pub(crate) mod stand_in {
    use super::*;
    use crate::service::{Answer, World};

    pub(crate) fn answer(world: &mut World, operation: &str, call: &Value) -> Option<Answer> {
        Some(match operation {
            "start-local-run" => {
                let run = world.get("run").and_then(Value::as_i64).unwrap_or(0) + 1;
                world.insert("run".to_owned(), json!(run));
                Ok(json!({"run_id": run.to_string()}))
            }
            "stop-local-run" => {
                world.insert("stopped".to_owned(), json!(true));
                Ok(json!({"deleted": true}))
            }
            "interchange-local-run" => interchange(world, call),
            _ => return None,
        })
    }

    fn interchange(world: &mut World, call: &Value) -> Answer {
        let asked = world.get("asked").and_then(Value::as_i64).unwrap_or(0) + 1;
        world.insert("asked".to_owned(), json!(asked));
        if call["run_id"] != json!(world["run"].to_string()) || world.remove("forget").is_some() {
            return Err((404, "OBJECT_NOT_FOUND", "there is no such run"));
        }
        if world.contains_key("away") {
            return Err((503, "INTERNAL_EXCEPTION_OCCURRED", "no instance of the service answers"));
        }
        let told = world.entry("told".to_owned()).or_insert(json!([]));
        for end in call["ended"].as_array().unwrap() {
            told.as_array_mut().unwrap().push(end.clone());
        }
        let runtimes = world.entry("runtimes".to_owned()).or_insert(json!([]));
        for runtime in runtimes.as_array_mut().unwrap() {
            let is_it =
                |end: &Value| end["runtime_id"] == runtime["runtime_id"] && end["generation"] == runtime["generation"];
            let has_ended = call["ended"].as_array().unwrap().iter().any(is_it);
            if has_ended || call["restart"] == true {
                runtime["generation"] = json!(runtime["generation"].as_i64().unwrap() + 1);
            }
        }
        let wanted = runtimes.as_array().unwrap().iter().map(|runtime| {
            let start = json!({"runtime_id": runtime["runtime_id"], "generation": runtime["generation"]});
            let runs = call["running"].as_array().unwrap().contains(&start);
            let environment = json!({
                "OMGSERVERS_RUNTIME_ID": runtime["runtime_id"],
                "OMGSERVERS_SERVICE_URL": "http://only-the-hosts-know:8080",
                "GENERATION": runtime["generation"].to_string(),
            });
            let mut runtime = runtime.clone();
            runtime["environment"] = if runs { json!(null) } else { environment };
            runtime
        });
        let wanted: Vec<_> = wanted.collect();
        Ok(json!({"runtimes": wanted}))
    }
}

const DEADLINE: Duration = Duration::from_secs(30);

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < until, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A command that runs until it is stopped, and what it printed so far.
struct Session {
    setting: Setting,
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Session {
    /// As somebody who was given a stage by `developer init`.
    fn start(program: &str, more: &[&str]) -> Self {
        let setting = setting();
        let folder = setting.folder.path();
        run(folder, "support useCredentials support support");
        run(folder, "developer init acme hello");
        build(folder, program);
        let (stdout, stderr) = (folder.join("stdout"), folder.join("stderr"));
        let file = |path: &Path| Stdio::from(std::fs::File::create(path).unwrap());
        let child = omgctl(folder)
            .args(["developer", "run", "./server"])
            .args(more)
            .env("PATH", "/usr/bin:/bin")
            .env("OWN", "own")
            .env("GENERATION", "0")
            .env("OMGSERVERSCTL_NOT_FOR_THEM", "secret")
            .stdout(file(&stdout))
            .stderr(file(&stderr))
            .spawn()
            .unwrap();
        let session = Self {
            setting,
            child,
            stdout,
            stderr,
        };
        session.wait_for_note("Players come in");
        session
    }

    fn service(&self) -> &Service {
        &self.setting.service
    }

    fn want(&self, runtimes: Value) {
        self.service()
            .change(|world| drop(world.insert("runtimes".to_owned(), runtimes)));
    }

    fn printed(&self) -> String {
        std::fs::read_to_string(&self.stdout).unwrap()
    }

    fn notes(&self) -> String {
        std::fs::read_to_string(&self.stderr).unwrap()
    }

    fn wait_for_line(&self, line: &str) {
        wait_for(&format!("{line}\n{}{}", self.printed(), self.notes()), || {
            self.printed().lines().any(|printed| printed == line)
        });
    }

    fn wait_for_note(&self, note: &str) {
        wait_for(&format!("{note}\n{}", self.notes()), || self.notes().contains(note));
    }

    /// Processes of the game servers that were ever started, as they wrote them down.
    fn pids(&self) -> Vec<u32> {
        let text = std::fs::read_to_string(self.setting.folder.path().join("pids")).unwrap_or_default();
        text.lines().map(|pid| pid.parse().unwrap()).collect()
    }

    fn wait_for_no_process(&self) {
        for pid in self.pids() {
            wait_for("the end of a game server", || !is_alive(pid));
        }
    }

    fn stop(&mut self, signal: &str) -> Option<i32> {
        send(signal, self.child.id());
        wait_for("the end", || self.child.try_wait().unwrap().is_some());
        self.child.wait().unwrap().code()
    }
}

/// A test that fails must not leave anything running.
impl Drop for Session {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            send("KILL", self.child.id());
            let _ = self.child.wait();
        }
    }
}

fn send(signal: &str, pid: u32) {
    let sent = std::process::Command::new("kill")
        .args(["-s", signal, &pid.to_string()])
        .status();
    assert!(sent.unwrap().success());
}

fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
}

/// Puts a program into its place at once, as linkers and `mv` do.
fn build(folder: &Path, script: &str) {
    let new = folder.join("server.new");
    std::fs::write(&new, format!("#!/bin/sh\necho $$ >> pids\n{script}")).unwrap();
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::rename(&new, folder.join("server")).unwrap();
}

const SERVER: &str = "echo \"first $1 $OMGSERVERS_RUNTIME_ID.$GENERATION\"\nexec sleep 1000";

fn lobby(id: &str) -> Value {
    json!({"runtime_id": id, "generation": 1, "qualifier": "LOBBY"})
}

#[test]
fn what_the_service_wants_runs_here_and_a_new_build_replaces_it() {
    let mut session = Session::start(SERVER, &["--", "--mode"]);
    assert!(
        session
            .notes()
            .contains("Version 400 is deployed there as deployment 500.")
    );
    session.want(json!([lobby("1"), {"runtime_id": "2", "generation": 1, "qualifier": "MATCH"}]));
    session.wait_for_line("lobby_1 | first --mode 1.1");
    session.wait_for_line("match_2 | first --mode 2.1");

    let folder = session.setting.folder.path().to_owned();
    build(
        &folder,
        "echo second $OMGSERVERS_RUNTIME_ID.$GENERATION\nexec sleep 1000",
    );
    session.wait_for_line("lobby_1 | second 1.2");
    session.wait_for_line("match_2 | second 2.2");
    assert!(session.notes().contains("./server has changed"));
    assert!(
        !session.service().read()["told"].to_string().contains("runtime_id"),
        "nothing ended by itself"
    );

    session.want(json!([{"runtime_id": "1", "generation": 2, "qualifier": "LOBBY"}]));
    session.wait_for_note("match_2 is no longer needed and stops");
    session.wait_for_note("match_2 is stopped");

    let pids = session.pids();
    assert_eq!(pids.len(), 4);
    assert_eq!(pids.iter().filter(|pid| is_alive(**pid)).count(), 1);
    assert_eq!(session.stop("INT"), Some(0));
    session.wait_for_no_process();
    assert!(session.service().read().contains_key("stopped"));
    let log = run(&folder, "logs");
    assert!(log.contains("start-local-run") && !log.contains("interchange-local-run"));
}

#[test]
fn game_servers_have_the_environment_of_whoever_runs_them_and_of_the_platform() {
    let mut session = Session::start(
        "echo $OWN $GENERATION $OMGSERVERS_SERVICE_URL $OMGSERVERSCTL_NOT_FOR_THEM\nexec sleep 1000",
        &[],
    );
    session.want(json!([lobby("1")]));
    let url = run(session.setting.folder.path(), "get SERVICE_URL");
    session.wait_for_line(&format!("lobby_1 | own 1 {url}"));
    assert_eq!(session.stop("INT"), Some(0));
}

#[test]
fn a_game_server_that_ends_is_told_and_started_anew() {
    let mut session = Session::start(
        "echo generation $GENERATION\n[ $GENERATION = 1 ] && exit 3\nexec sleep 1000",
        &[],
    );
    session.want(json!([lobby("1")]));
    session.wait_for_line("lobby_1 | generation 2");
    let told = session.service().read()["told"].clone();
    assert_eq!(
        told,
        json!([{"runtime_id": "1", "generation": 1, "detail": "exited with code 3"}])
    );
    assert_eq!(session.stop("TERM"), Some(0));
    session.wait_for_no_process();
}

#[test]
fn who_ignores_the_request_to_stop_is_killed() {
    let mut session = Session::start("trap '' TERM\necho deaf\nwhile :; do sleep 0.1; done", &[]);
    session.want(json!([lobby("1")]));
    session.wait_for_line("lobby_1 | deaf");
    assert_eq!(session.stop("INT"), Some(0));
    assert!(
        session.notes().contains("did not stop within 5 s"),
        "{}",
        session.notes()
    );
    session.wait_for_no_process();
}

#[test]
fn a_service_that_is_away_is_waited_for_while_games_go_on() {
    let mut session = Session::start(SERVER, &[]);
    session.want(json!([lobby("1")]));
    session.wait_for_line("lobby_1 | first  1.1");
    session
        .service()
        .change(|world| drop(world.insert("away".to_owned(), json!(true))));
    session.wait_for_note("the service is asked again");
    session.service().change(|world| drop(world.remove("away")));
    session.wait_for_note("The service answers again.");
    session
        .service()
        .change(|world| drop(world.insert("forget".to_owned(), json!(true))));
    session.wait_for_note("has forgotten this run");
    session
        .service()
        .change(|world| drop(world.insert("expired".to_owned(), json!(true))));
    let asked = || session.service().read()["asked"].as_i64().unwrap();
    let before = asked();
    wait_for("more questions", || asked() > before + 3);
    assert_eq!(
        session.pids().iter().filter(|pid| is_alive(**pid)).count(),
        1,
        "it played on"
    );
    assert_eq!(session.service().read()["run"], 2);
    assert_eq!(session.stop("INT"), Some(0));
    session.wait_for_no_process();
}

#[test]
fn nothing_outlives_omgctl_even_if_it_is_killed() {
    let mut session = Session::start(SERVER, &[]);
    session.want(json!([lobby("1")]));
    session.wait_for_line("lobby_1 | first  1.1");
    assert_eq!(session.stop("KILL"), None);
    session.wait_for_no_process();
}

#[test]
fn a_config_is_always_deployed_and_what_cannot_run_is_refused() {
    let Setting {
        folder, mut transcript, ..
    } = setting();
    let folder = folder.path();
    run(folder, "developer useCredentials 700 developer-password");
    std::fs::write(folder.join("data"), "no program").unwrap();
    std::fs::write(folder.join("broken.json"), "{").unwrap();
    build(folder, SERVER);
    transcript.run_all(
        "
        developer run ./server
        developer run 100 200 ./server
        developer run 100 200 300 ./server surplus
        developer run 100 200 300 ./nowhere
        developer run 100 200 300 ./data
        developer run 100 200 300 ./server --config broken.json
        developer run 100 200 forbidden ./server
        ",
    );
    transcript.check("run");
    let leash = answer(
        {
            let mut command = omgctl(folder);
            command.args(["leash", "1", "./server"]);
            command
        },
        "",
    );
    assert_eq!(leash.status.code(), Some(1), "{}", text(&leash.stderr));
    assert!(
        !folder.join("pids").exists(),
        "a program whose holder is gone is not started"
    );
}
