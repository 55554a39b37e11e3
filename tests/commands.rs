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
    assert!(code == 1 && err.contains("has no image"), "{code}: {err}");
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
