//! The way of a studio, from nothing to a running lobby, with `omgctl` only.

use std::path::Path;
use std::process::Command;

use harness::{Installation, Options, eventually, game_config, shooter};

/// `omgctl` with its own folder; says what it printed, and fails with what it said.
struct Terminal<'a> {
    folder: &'a Path,
}

impl Terminal<'_> {
    fn try_run(&self, arguments: &[&str]) -> (i32, String, String) {
        let mut command = Command::new(harness::program("omgctl"));
        command
            .args(arguments)
            .env("OMGSERVERSCTL_DIRECTORY", self.folder.join("ctl"))
            .current_dir(self.folder);
        let output = command.output().expect("omgctl runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            output.status.code().unwrap_or(-1),
            text(&output.stdout),
            text(&output.stderr),
        )
    }

    fn run(&self, arguments: &[&str]) -> String {
        let (code, out, err) = self.try_run(arguments);
        assert_eq!(code, 0, "omgctl {arguments:?}\n{out}{err}");
        out
    }

    fn variable(&self, name: &str) -> String {
        self.run(&["environment", "printVariable", name])
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_studio_gets_from_nothing_to_a_running_lobby_with_omgctl_only() {
    let installation = Installation::start(Options::default()).await;
    let folder = installation.folder();
    let base = installation.base.clone();
    let deployment = tokio::task::spawn_blocking({
        let folder = folder.clone();
        move || walk(&Terminal { folder: &folder }, &base)
    })
    .await
    .expect("the walk ends");
    let terminal = Terminal { folder: &folder };
    let running = || async {
        let details = tokio::task::block_in_place(|| {
            terminal.run(&[
                "--output",
                "json",
                "developer",
                "getDeploymentDetails",
                "acme",
                &deployment,
            ])
        });
        let details: serde_json::Value = serde_json::from_str(&details).expect("JSON");
        let venues = details["details"]["venues"].as_array()?.clone();
        venues
            .iter()
            .any(|venue| venue["qualifier"] == "LOBBY" && venue["state"] == "OPEN")
            .then_some(())
    };
    eventually("a lobby runs", running).await;
    tokio::task::block_in_place(|| {
        terminal.run(&["developer", "deleteDeployment", "acme", &deployment]);
        assert_eq!(terminal.variable("DELETED"), "true");
        terminal.run(&["support", "deleteTenant", "acme"]);
    });
    eventually("nothing runs any more", || async {
        let running = std::fs::read_dir(folder.join("data/processes/running")).map_or(0, Iterator::count);
        (running == 0).then_some(())
    })
    .await;
    installation.stop().await;
}

/// The steps of the first documentation, in its words and order.
fn walk(terminal: &Terminal<'_>, base: &str) -> String {
    terminal.run(&["environment", "useEnvironment", "story", base]);
    terminal.run(&["admin", "useCredentials", "admin", "admin"]);
    terminal.run(&["admin", "generateId"]);
    terminal.run(&["support", "useCredentials", "support", "support"]);
    terminal.run(&["support", "createTenant"]);
    let tenant = terminal.variable("TENANT");
    terminal.run(&["support", "createTenantAlias", &tenant, "acme"]);
    terminal.run(&["support", "createDeveloper"]);
    let (user, password) = (
        terminal.variable("DEVELOPER_USER"),
        terminal.variable("DEVELOPER_PASSWORD"),
    );
    for permission in ["PROJECT_MANAGER", "TENANT_VIEWER"] {
        terminal.run(&["support", "createTenantPermission", "acme", &user, permission]);
    }
    terminal.run(&["developer", "useCredentials", &user, &password]);
    terminal.run(&["developer", "createProject", "acme"]);
    let (project, stage) = (terminal.variable("PROJECT"), terminal.variable("STAGE"));
    terminal.run(&["developer", "createProjectAlias", "acme", &project, "shooter"]);
    terminal.run(&["developer", "createStageAlias", "acme", &stage, "prod"]);
    let config = terminal.folder.join("config.json");
    std::fs::write(&config, serde_json::to_string(&game_config()).expect("JSON")).expect("the config is written");
    terminal.run(&[
        "developer",
        "createVersion",
        "acme",
        "shooter",
        &config.to_string_lossy(),
    ]);
    let version = terminal.variable("VERSION");
    // Without an image it cannot be deployed, and the refusal says so.
    let (code, _, err) = terminal.try_run(&["developer", "deployVersion", "acme", "shooter", "prod", &version]);
    assert!(code == 1 && err.contains("with an image"), "{code}: {err}");
    terminal.run(&[
        "developer",
        "createImage",
        "acme",
        "shooter",
        &version,
        "UNIVERSAL",
        &shooter::image(),
    ]);
    terminal.run(&["developer", "deployVersion", "acme", "shooter", "prod", &version]);
    terminal.variable("DEPLOYMENT")
}

/// `./omgserversctl.sh`, as the first documentation spells it.
fn old(folder: &Path, line: &str) -> String {
    let output = Command::new("./omgserversctl.sh")
        .args(line.split_whitespace())
        .env_remove("OMGSERVERSCTL_DIRECTORY")
        .current_dir(folder)
        .output()
        .expect("omgserversctl.sh runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "./omgserversctl.sh {line}\n{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_documentation_is_followed_word_by_word_with_the_old_tool() {
    let installation = Installation::start(Options::default()).await;
    let (folder, base) = (installation.folder(), installation.base.clone());
    std::os::unix::fs::symlink(harness::program("omgctl"), folder.join("omgserversctl.sh")).expect("a link");
    std::fs::write(
        folder.join("config.json"),
        serde_json::to_string(&game_config()).expect("JSON"),
    )
    .expect("a config");
    std::fs::create_dir(folder.join("files")).expect("a folder");
    std::fs::write(folder.join("files/main.lua"), "print('hello')").expect("a file");
    tokio::task::block_in_place(|| {
        let run = |line: &str| old(&folder, line);
        let variable = |name: &str| run(&format!("environment printVariable {name}"));
        run(&format!("environment useEnvironment local {base}"));
        assert!(run("admin useCredentials admin admin").contains(" local Admin token was created"));
        assert!(run("admin calculateShard 1").contains("SHARD_INDEX=1, SERVER_URI="));
        run("support useCredentials support support");
        assert!(run("support createTenant").contains(" local Tenant was created, TENANT="));
        let tenant = variable("TENANT");
        run(&format!("support createTenantAlias {tenant} omgservers"));
        assert!(run("support createDeveloper").contains("Developer was created, DEVELOPER_USER="));
        let (user, password) = (variable("DEVELOPER_USER"), variable("DEVELOPER_PASSWORD"));
        let granted = run(&format!(
            "support createTenantPermission omgservers {user} PROJECT_MANAGER"
        ));
        assert!(
            granted.contains("Created permissions, CREATED_PERMISSION=[\"PROJECT_MANAGER\"]"),
            "{granted}"
        );
        run(&format!(
            "support createTenantPermission omgservers {user} TENANT_VIEWER"
        ));
        run(&format!("developer useCredentials {user} {password}"));
        assert!(run("developer createProject omgservers").contains("Project was created, PROJECT="));
        let (project, stage) = (variable("PROJECT"), variable("STAGE"));
        run(&format!("developer createProjectAlias omgservers {project} game"));
        run(&format!("developer createStageAlias omgservers {stage} prod"));
        assert!(run("developer createVersion omgservers game config.json").contains("Version was created, VERSION="));
        let version = variable("VERSION");
        let uploaded = run(&format!("developer uploadFilesArchive omgservers {version} files"));
        assert!(
            uploaded.contains("Files archive was uploaded, FILES_ARCHIVE="),
            "{uploaded}"
        );
        // The push of the first documentation needs a registry; the image is named instead.
        let terminal = Terminal { folder: &folder };
        terminal.run(&["environment", "useEnvironment", "story", &base]);
        terminal.run(&["developer", "useCredentials", &user, &password]);
        let image = shooter::image();
        terminal.run(&[
            "developer",
            "createImage",
            "omgservers",
            "game",
            &version,
            "UNIVERSAL",
            &image,
        ]);
        let deployed = run(&format!("developer deployVersion omgservers game prod {version}"));
        assert!(deployed.contains("Deployment was created, DEPLOYMENT="), "{deployed}");
        let details = run("developer getTenantDetails omgservers");
        assert!(details.contains("\"projects\": ["), "{details}");
    });
    let deployment = tokio::task::block_in_place(|| old(&folder, "environment printVariable DEPLOYMENT"));
    eventually("a lobby runs", || async {
        let line = format!("developer getDeploymentDetails omgservers {deployment}");
        let details = tokio::task::block_in_place(|| old(&folder, &line));
        details.contains("\"OPEN\"").then_some(())
    })
    .await;
    tokio::task::block_in_place(|| {
        let deleted = old(&folder, &format!("developer deleteDeployment omgservers {deployment}"));
        assert!(deleted.contains("Deployment was deleted"), "{deleted}");
        assert!(old(&folder, "support deleteTenant omgservers").contains("Tenant was deleted, TENANT=omgservers"));
    });
    installation.stop().await;
}
