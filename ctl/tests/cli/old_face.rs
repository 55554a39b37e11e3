//! The commands of the script that came before, line by line.

use std::path::Path;
use std::process::Command;

use crate::commands::{Setting, setting};
use crate::run::Transcript;
use crate::service::Service;

#[test]
fn every_command_says_what_it_always_said() {
    let Setting {
        folder, mut transcript, ..
    } = setting();
    let config = r#"{"modes": [], "user_data": {"zeta": 1}}"#;
    std::fs::write(folder.path().join("config.json"), config).unwrap();
    std::fs::create_dir(folder.path().join("files")).unwrap();
    std::fs::write(folder.path().join("files/main.lua"), "print('hello')").unwrap();
    let lines = "
        admin useCredentials admin admin
        admin printCurrent
        admin createToken
        admin calculateShard 100
        admin generateId
        admin bcryptHash secret
        admin pingDockerHost unix:///var/run/docker.sock
        admin pingDockerHost tcp://nobody:2375
        support useCredentials support support
        support printCurrent
        support createToken
        support createTenant
        support createTenantAlias 100 acme
        support createProject acme surplus arguments
        support createProjectAlias acme 200 game
        support createDeveloper
        support createTenantPermission acme 700 PROJECT_MANAGER
        support createTenantPermission acme 701 TENANT_VIEWER
        support deleteTenantPermission acme 700 PROJECT_MANAGER
        support createProjectPermission acme game 700 VERSION_MANAGER
        support deleteProjectPermission acme game 700 VERSION_MANAGER
        support createStagePermission acme game 300 700 DEPLOYMENT_MANAGER
        support deleteStagePermission acme game 300 700 STAGE_VIEWER
        developer useCredentials 700 developer-password
        developer printCurrent
        developer createToken
        developer getTenantDetails acme
        developer createProject acme
        developer createProjectAlias acme 200 other
        developer getProjectDetails acme game
        developer createStage acme game
        developer createStageAlias acme 301 prod
        developer getStageDetails acme game prod
        developer createVersion acme game ./config.json
        developer uploadFilesArchive acme 400 files
        developer getVersionDetails acme 400
        developer deployVersion acme game prod 400
        developer getDeploymentDetails acme 500
        developer createLobbyRequest acme 500
        developer deleteLobby 600
        developer createMatchmakerRequest acme 500
        developer deleteMatchmaker 601
        developer deleteDeployment acme 500
        developer deleteVersion acme 400
        developer deleteStage acme game prod
        developer deleteProject acme game
        support deleteProject acme game
        support deleteTenant 999
        support deleteTenant acme
        environment printVariable TENANT
        environment printCurrent
        ";
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        transcript.run_old(line);
    }
    transcript.check("old_commands");
}

#[test]
fn usage_is_told_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let mut transcript = Transcript::new(folder.path());
    transcript.run_old("").run_old("help").run_old("help environment");
    transcript.run_old("help developer deployVersion");
    transcript.run_old("help support createProjectPermission");
    transcript
        .run_old("help support createDeveloper")
        .run_old("help nothing");
    transcript
        .run_old("nonsense")
        .run_old("admin nonsense")
        .run_old("admin");
    transcript.run_old("environment useEnvironment test").run_old("logs");
    transcript.check("old_usage");
}

#[test]
fn refusals_are_told_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("http://{}", Service::new(folder.path()).start());
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let mut transcript = Transcript::new(folder.path())
        .replace(url.clone(), "URL")
        .replace(port.to_string(), "PORT");
    transcript
        .run_old("environment printCurrent")
        .run_old("support createTenant");
    transcript.run_old(&format!("environment useEnvironment test {url}"));
    transcript
        .run_old("environment printVariable")
        .run_old("environment printVariable NOTHING");
    for role in ["admin", "support", "developer"] {
        transcript
            .run_old(&format!("{role} printCurrent"))
            .run_old(&format!("{role} createToken"));
    }
    transcript
        .run_old("admin generateId")
        .run_old("developer createLobbyRequest 100 500");
    transcript
        .run_old("support createTenantAlias 100 acme")
        .run_old("support useCredentials support wrong");
    transcript
        .run_old("support printCurrent")
        .run_old("developer useCredentials 700 developer-password");
    transcript
        .run_old("developer getTenantDetails")
        .run_old("developer getTenantDetails missing");
    transcript
        .run_old("developer uploadFilesArchive missing 400 .")
        .run_old("developer uploadFilesArchive 100 newest .")
        .run_old("developer createVersion 100 200 nowhere.json");
    std::fs::write(folder.path().join("broken.json"), "{").unwrap();
    std::fs::write(folder.path().join("empty.json"), "\n").unwrap();
    transcript
        .run_old("developer createVersion 100 200 broken.json")
        .run_old("developer createVersion 100 200 empty.json");
    transcript.run_old(&format!("environment useEnvironment nobody http://127.0.0.1:{port}"));
    transcript
        .run_old("developer createToken")
        .run_old("developer uploadFilesArchive 100 400 .");
    transcript.run_old("environment usePublic").run_old("environment reset");
    transcript.run_old("developer createToken").check("old_refusals");
}

#[test]
fn an_address_may_lack_its_scheme_and_replies_are_kept() {
    let Setting { folder, transcript, .. } = setting();
    let stored = std::fs::read_to_string(folder.path().join(".omgserversctl/environment")).unwrap();
    let (_, address) = stored.split_once("http://").unwrap();
    let address = address.lines().next().unwrap();
    let mut transcript = transcript.replace(address, "ADDRESS");
    transcript
        .run_old(&format!("environment useEnvironment bare {address}"))
        .run_old("developer useCredentials 700 developer-password")
        .run_old("developer getVersionDetails 100 400")
        .run_old("developer getTenantDetails missing");
    transcript.check("old_address");
    let kept = |name: &str| std::fs::read_to_string(folder.path().join(".omgserversctl/temp").join(name)).unwrap();
    assert!(kept("developer-create-token_700.json").contains("raw_token"));
    assert!(kept("developer-get-version-details_100_400.json").contains("build_requests"));
    assert!(kept("developer-get-tenant-details_missing.json").contains("OBJECT_NOT_FOUND"));
}

#[test]
fn the_installation_of_this_machine_is_used_at_its_old_port() {
    let folder = tempfile::tempdir().unwrap();
    let mut transcript = Transcript::new(folder.path());
    // Whether somebody listens there is not for this test to say.
    if std::net::TcpStream::connect("127.0.0.1:8080").is_ok() {
        return;
    }
    transcript.run_old("environment useLocal").check("old_local");
}

/// Runs a script with the program under its old name in the path.
fn script(folder: &Path, script: &str) -> String {
    let programs = folder.join("bin");
    std::fs::create_dir_all(&programs).unwrap();
    let link = programs.join("omgserversctl");
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_omgctl"), link).unwrap();
    let output = Command::new("bash")
        .args(["-euc", script])
        .current_dir(folder)
        .env_clear()
        .env("PATH", format!("{}:/usr/bin:/bin", programs.display()))
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

#[test]
fn scripts_that_were_written_for_it_work() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("http://{}", Service::new(folder.path()).start());
    std::fs::write(folder.path().join("config.json"), r#"{"modes": []}"#).unwrap();
    let printed = script(
        folder.path(),
        &format!(
            r#"
            omgserversctl environment useEnvironment local {url} > log
            omgserversctl support useCredentials support support >> log
            omgserversctl support createTenant >> log
            TENANT=$(omgserversctl environment printVariable TENANT)
            omgserversctl support createProject $TENANT >> log
            PROJECT=$(omgserversctl environment printVariable PROJECT)
            STAGE=$(omgserversctl environment printVariable STAGE)
            omgserversctl support createDeveloper >> log
            DEVELOPER_USER=$(omgserversctl environment printVariable DEVELOPER_USER)
            for permission in PROJECT_MANAGER TENANT_VIEWER; do
              omgserversctl support createTenantPermission $TENANT $DEVELOPER_USER $permission >> log
            done
            omgserversctl support createStagePermission $TENANT $PROJECT $STAGE $DEVELOPER_USER DEPLOYMENT_MANAGER >> log
            omgserversctl developer createToken >> log
            omgserversctl developer createVersion $TENANT $PROJECT ./config.json >> log
            VERSION=$(omgserversctl environment printVariable VERSION)
            omgserversctl developer deployVersion $TENANT $PROJECT $STAGE $VERSION >> log
            echo "localhost:5000/omgservers/$TENANT/$PROJECT/universal:$VERSION"
            . .omgserversctl/environment
            echo "$OMGSERVERSCTL_DEPLOYMENT $OMGSERVERSCTL_DEVELOPER_PASSWORD"
            "#
        ),
    );
    assert_eq!(
        printed,
        "localhost:5000/omgservers/100/200/universal:400\n500 developer-password\n"
    );
}

#[test]
fn dates_are_those_of_this_machine() {
    let folder = tempfile::tempdir().unwrap();
    let printed = script(
        folder.path(),
        "TZ=Asia/Tokyo omgserversctl environment useEnvironment test http://localhost:1; LC_ALL=C TZ=Asia/Tokyo date +'%a %b %e'",
    );
    let (line, today) = printed.split_once('\n').unwrap();
    assert!(
        line.contains(" test Environment was set, NAME=test, SERVICE_URL=http://localhost:1"),
        "{line}"
    );
    // Over midnight the two may differ.
    assert!(
        line.starts_with(&today[..3]) || line.contains(" 23:59:"),
        "{line} {today}"
    );
}
