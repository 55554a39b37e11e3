//! Commands against the service's HTTP contract.

use std::path::Path;

use crate::run::{Transcript, answer, omgctl, text};
use crate::service::{Service, always};

pub(crate) struct Setting {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) service: Service,
    pub(crate) transcript: Transcript,
}

/// A service that answers, and an environment that names it.
pub(crate) fn setting() -> Setting {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::new(folder.path());
    let url = format!("http://{}", service.clone().start());
    run(folder.path(), &format!("environment useEnvironment test {url}"));
    let transcript = Transcript::new(folder.path()).replace(url, "URL");
    Setting {
        folder,
        service,
        transcript,
    }
}

/// Runs a command that must succeed, for what it leaves behind.
pub(crate) fn run(folder: &Path, line: &str) -> String {
    let mut command = omgctl(folder);
    command.args(line.split_whitespace());
    let answer = answer(command, "");
    assert!(answer.status.success(), "{line}: {}", text(&answer.stderr));
    text(&answer.stdout)
}

#[test]
fn a_game_is_brought_from_nothing_to_a_deployment() {
    let mut setting = setting();
    let config = r#"{"modes": [{"name": "duel", "min_players": 2, "max_players": 2,
        "groups": [{"name": "players", "min_players": 2, "max_players": 2}]}], "user_data": {"bots": 3}}"#;
    std::fs::write(setting.folder.path().join("version.json"), config).unwrap();
    std::fs::write(setting.folder.path().join("deployment.json"), r#"{"min_lobbies": 2}"#).unwrap();
    let transcript = &mut setting.transcript;
    transcript.run("support useCredentials support support");
    transcript
        .run("support createTenant")
        .run("support createTenantAlias 100 acme");
    transcript
        .run("support createDeveloper")
        .run("support createTenantPermission acme 700 PROJECT_MANAGER");
    transcript
        .run("developer createProject acme")
        .run("developer create-project-alias acme 200 game");
    transcript
        .run("developer createStage acme game")
        .run("developer createStageAlias acme 301 prod");
    transcript.run("developer createVersion acme game version.json");
    transcript.run_with_input("developer createVersion acme game -", config);
    transcript.run("developer createImage acme game 400 universal shooter:dev");
    transcript.run("developer deployVersion acme game prod 400 --config deployment.json");
    transcript
        .run("developer getTenantDetails acme")
        .run("developer getProjectDetails acme game");
    transcript
        .run("developer getStageDetails acme game prod")
        .run("developer getVersionDetails acme 400");
    transcript
        .run("developer getDeploymentDetails acme 500")
        .run("environment printCurrent");
    transcript.check("deployment");
}

#[test]
fn everything_can_be_deleted_and_what_was_not_there_is_told() {
    let mut setting = setting();
    run(setting.folder.path(), "support useCredentials support support");
    run(setting.folder.path(), "developer useCredentials 700 developer-password");
    let transcript = &mut setting.transcript;
    transcript
        .run("developer deleteDeployment 100 500")
        .run("developer deleteVersion 100 400");
    transcript
        .run("developer deleteStage 100 200 300")
        .run("developer deleteProject 100 200");
    transcript
        .run("support deleteTenant 100")
        .run("support deleteTenant 999")
        .run("environment printVariable DELETED");
    transcript.check("deletion");
}

#[test]
fn json_is_the_reply_of_the_service_and_nothing_else_is_on_stdout() {
    let mut setting = setting();
    let transcript = &mut setting.transcript;
    transcript
        .run("admin useCredentials admin admin --output json")
        .run("--output json admin generateId");
    transcript
        .run("support useCredentials support support --output json")
        .run("support --output json createDeveloper");
    transcript.run("support createTenantAlias 100 acme --output json");
    transcript
        .run("developer getTenantDetails acme --output json")
        .run("developer deleteProject acme 999 --output json");
    transcript
        .run("developer printCurrent --output json")
        .run("developer getTenantDetails missing --output json")
        .run("admin printCurrent --output json")
        .run("admin useCredentials admin wrong --output json")
        .run("environment printVariable NOTHING --output json")
        .check("json");
}

#[test]
fn refusals_say_what_helps() {
    let mut setting = setting();
    let transcript = &mut setting.transcript;
    transcript
        .run("developer getTenantDetails acme")
        .run("admin createToken")
        .run("admin printCurrent");
    transcript
        .run("support useCredentials support wrong")
        .run("support useCredentials nobody support")
        .run("developer useCredentials nobody password");
    run(setting.folder.path(), "support useCredentials support support");
    run(setting.folder.path(), "developer useCredentials 700 developer-password");
    transcript
        .run("support createTenantAlias 100 taken")
        .run("developer getTenantDetails missing")
        .run("support createProject missing")
        .run("developer getProjectDetails 100 missing")
        .run("developer getStageDetails 100 200 missing")
        .run("developer getDeploymentConfig 100 999")
        .run("developer deleteLobby 999")
        .run("support changePassword wrong new");
    run(setting.folder.path(), "admin useCredentials admin admin");
    transcript.run("admin resetPassword nobody");
    transcript
        .run("developer getTenantDetails forbidden")
        .run("developer createStage 100 forbidden");
    transcript
        .run("developer deployVersion 100 200 forbidden 400")
        .run("developer deployVersion poor 200 300 400")
        .run("developer deployVersion 100 200 300 404")
        .run("developer deployVersion 100 200 300 403");
    transcript
        .run("developer getTenantDetails broken")
        .run("developer getTenantDetails away");
    transcript
        .run("developer createVersion 100 200 nowhere.json")
        .run_with_input("developer createVersion 100 200 -", "{");
    transcript.run_with_input(
        "developer createVersion 100 200 -",
        r#"{"modes": [{"name": "x", "min_players": 1, "max_players": 1, "groups": []}]}"#,
    );
    std::fs::write(setting.folder.path().join("game"), "").unwrap();
    transcript
        .run("developer createImage 100 200 400 UNIVERSAL game")
        .run("developer createImage 100 200 400 UNIVERSAL build/image.tar")
        .run("developer createImage 100 200 400 UNIVERSAL file:///image.tar");
    let unknown = r#"{"modes": [{"name": "x", "min_players": 1, "max_players": 1, "colour": "red",
        "groups": [{"name": "x", "min_players": 1, "max_players": 1, "size": 2}]}], "user_data": {"a": 1}, "mode": 1}"#;
    transcript
        .run_with_input("developer createVersion 100 200 -", unknown)
        .run_with_input(
            "developer deployVersion 100 200 300 400 --config -",
            r#"{"min_lobbies": 1, "lobby": {"cpu": 1}, "lobbies": 2}"#,
        );
    run(setting.folder.path(), "developer useApiKey omgk.700.901.x");
    transcript
        .run("developer getTenantDetails 100")
        .run("developer deployVersion 100 200 300 400");
    transcript
        .run("environment printVariable NOTHING")
        .run("get NOTHING")
        .run("image pack --binary nowhere --tag game:dev --output game.tar");
    let stored = setting.folder.path().join(".omgserversctl/environment");
    let other = std::fs::read_to_string(&stored).unwrap() + "export OMGSERVERSCTL_SUPPORT_TOKEN=token.of.admin\n";
    std::fs::write(&stored, other).unwrap();
    transcript.run("support createTenant");
    setting
        .service
        .change(|world| drop(world.insert("deleted".to_owned(), serde_json::json!(true))));
    transcript.run("admin generateId").check("refusals");
}

#[test]
fn the_installation_of_this_machine_is_used_with_one_command() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::new(folder.path());
    let port = service.clone().start().port();
    let mut transcript = Transcript::new(folder.path()).replace(port.to_string(), "PORT");
    transcript
        .run(&format!("environment useLocal --port {port}"))
        .run("admin printCurrent")
        .run("admin generateId");
    transcript.run("support printCurrent").run("support createTenant");
    service.change(|world| drop(world.insert("password support".to_owned(), serde_json::json!("other"))));
    transcript
        .run(&format!("environment useLocal --port {port}"))
        .check("local");
}

#[test]
fn without_an_installation_the_next_step_is_told() {
    let folder = tempfile::tempdir().unwrap();
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let mut transcript = Transcript::new(folder.path()).replace(port.to_string(), "PORT");
    transcript
        .run("support createTenant")
        .run("environment printCurrent")
        .run("logs");
    transcript.run(&format!("environment useEnvironment nobody http://127.0.0.1:{port}"));
    transcript
        .run("support useCredentials support support")
        .run("environment usePublic")
        .run("environment reset")
        .run("support createTenant");
    transcript.check("nobody");
}

#[test]
fn a_password_from_stdin_is_neither_an_argument_nor_in_the_log() {
    let Setting { folder, service, .. } = setting();
    let mut command = omgctl(folder.path());
    command.args(["developer", "useCredentials", "700", "-"]);
    let answer = answer(command, "developer-password\n");
    assert!(answer.status.success(), "{}", text(&answer.stderr));
    assert_eq!(service.calls(), ["developer create-token", "developer renew-token"]);
    let log = run(folder.path(), "logs");
    assert!(
        log.contains("developer/request/create-token") && log.contains(r#""user_id":"700""#),
        "{log}"
    );
    assert!(
        !log.contains("developer-password") && !log.contains("token.of"),
        "{log}"
    );
    // A later command can log in again with what is stored.
    run(folder.path(), "developer createToken");
}

#[test]
fn scripts_read_bare_values_and_the_stored_file_wins_over_the_environment() {
    let Setting { folder, .. } = setting();
    run(folder.path(), "support useCredentials support support");
    run(folder.path(), "support createTenant");
    assert_eq!(run(folder.path(), "environment printVariable TENANT"), "100");
    assert_eq!(
        run(folder.path(), "environment printVariable OMGSERVERSCTL_TENANT"),
        "100"
    );
    for name in ["tenant", "tenant_id", "TENANT_ID"] {
        assert_eq!(run(folder.path(), &format!("get {name}")), "100");
    }
    run(folder.path(), "developer useCredentials 700 developer-password");
    for name in ["developer", "user_id", "developer_user"] {
        assert_eq!(run(folder.path(), &format!("get {name}")), "700");
    }
    run(folder.path(), "admin useCredentials admin admin");
    run(folder.path(), "admin generateId");
    assert_eq!(run(folder.path(), "get generated_id"), "790000000000000001");
    let print = |name: &str| {
        let mut command = omgctl(folder.path());
        command.env("OMGSERVERSCTL_TENANT", "1").env("OMGSERVERSCTL_STAGE", "2");
        command.args(["environment", "printVariable", name]);
        text(&answer(command, "").stdout)
    };
    assert_eq!((print("TENANT").as_str(), print("STAGE").as_str()), ("100", "2"));
    let mut elsewhere = omgctl(folder.path());
    elsewhere
        .env("OMGSERVERSCTL_DIRECTORY", folder.path().join("other"))
        .args(["environment", "printVariable", "TENANT"]);
    assert_eq!(answer(elsewhere, "").status.code(), Some(1));
    let mut nowhere = omgctl(folder.path());
    nowhere
        .env("OMGSERVERSCTL_DIRECTORY", "")
        .args(["environment", "printVariable", "TENANT"]);
    assert_eq!(
        text(&answer(nowhere, "").stdout),
        "100",
        "an empty name means the usual place"
    );
}

#[test]
fn logins_are_not_shown_to_another_installation() {
    let Setting {
        folder,
        service,
        mut transcript,
    } = setting();
    run(folder.path(), "support useCredentials support support");
    run(folder.path(), "support createTenant");
    run(folder.path(), "developer useCredentials 700 developer-password");
    let own = run(folder.path(), "get SERVICE_URL");
    // The same one keeps everything.
    run(folder.path(), &format!("environment useEnvironment again {own}/"));
    run(folder.path(), "support createTenant");
    let before = service.calls().len();
    let (_, port) = own.rsplit_once(':').unwrap();
    transcript = transcript.replace(port, "PORT");
    transcript
        .run(&format!("environment useEnvironment other http://localhost:{port}"))
        .run("support createTenant")
        .run("developer createToken")
        .run("get TENANT")
        .run("environment printCurrent");
    assert_eq!(service.calls().len(), before, "nothing of the old one was sent");
    // The script that came before keeps them.
    run(folder.path(), "support useCredentials support support");
    transcript
        .run_old(&format!("environment useEnvironment test {own}"))
        .run_old("support printCurrent")
        .check("other_address");
}

#[test]
fn an_address_of_somebody_else_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let there = Service::new(folder.path());
    let service = there.clone().start();
    let route = "/service/v1/entrypoint/support/request/create-token";
    let moved = always(format!(
        "HTTP/1.1 301 Moved Permanently\r\nlocation: http://{service}{route}"
    ));
    let page = always("HTTP/1.1 200 OK\r\ncontent-type: text/html".to_owned());
    let missing = always("HTTP/1.1 404 Not Found".to_owned());
    let proxy = always("HTTP/1.1 502 Bad Gateway".to_owned());
    let mut transcript = Transcript::new(folder.path()).replace(service.to_string(), "SERVICE");
    let addresses = [
        (format!("http://{moved}"), "MOVED"),
        (format!("http://{page}"), "PAGE"),
        (format!("http://{missing}"), "MISSING"),
        (format!("http://{proxy}"), "PROXY"),
        (format!("https://{service}"), "TLS"),
    ];
    for (url, name) in addresses {
        transcript = transcript.replace(url.clone(), name);
        transcript
            .run(&format!("environment useEnvironment x {url}"))
            .run("support useCredentials support support");
        if name == "MOVED" {
            transcript.run_old("support useCredentials support support");
        }
    }
    assert!(there.calls().is_empty(), "nobody is followed");
    transcript.check("addresses");
}

#[test]
fn whoever_deletes_much_on_a_terminal_types_its_name() {
    let setting = setting();
    let folder = setting.folder.path();
    run(folder, "support useCredentials support support");
    run(folder, "developer useCredentials 700 developer-password");
    let delete = |line: &str, typed: &str| {
        let program = env!("CARGO_BIN_EXE_omgctl");
        let mut terminal = std::process::Command::new("script");
        terminal.current_dir(folder).env_clear().env("PATH", "/usr/bin:/bin");
        terminal.args(["-qec", &format!("{program} {line}"), "/dev/null"]);
        answer(terminal, typed).status.success()
    };
    for (line, name) in [
        ("support deleteTenant 100", "100"),
        ("support deleteProject 100 200", "200"),
        ("support deleteStage 100 200 300", "300"),
        ("developer deleteProject 100 200", "200"),
        ("developer deleteStage 100 200 300", "300"),
    ] {
        let before = setting.service.calls().len();
        assert!(!delete(line, "yes\n"), "{line}");
        assert_eq!(setting.service.calls().len(), before, "{line}");
        assert!(delete(line, &format!("{name}\n")), "{line}");
        assert!(delete(&format!("{line} --yes"), ""), "{line}");
        assert_eq!(setting.service.calls().len(), before + 2, "{line}");
    }
}
