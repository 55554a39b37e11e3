//! Commands that do many things at once.

use crate::commands::{run, setting};

#[test]
fn a_place_for_a_game_is_made_once_and_found_again() {
    let mut setting = setting();
    let folder = setting.folder.path().to_owned();
    run(&folder, "support useCredentials support support");
    std::fs::write(folder.join("version.json"), r#"{"modes": []}"#).unwrap();
    let transcript = &mut setting.transcript;
    transcript.run("developer init acme hello");
    let made = setting.service.calls().len();
    transcript.run("developer init acme hello --from version.json");
    let calls = setting.service.calls();
    let again: Vec<_> = calls[made..]
        .iter()
        .filter(|call| call.contains(" create-") && !call.ends_with("-permissions"))
        .collect();
    assert_eq!(again, ["developer create-token", "developer create-version"]);
    transcript.run("developer init acme hello --stage test --output json");
    transcript.run("get TENANT").run("get STAGE").check("init");
}

#[test]
fn a_developer_who_is_not_known_any_more_is_made_anew() {
    let setting = setting();
    let folder = setting.folder.path();
    run(folder, "support useCredentials support support");
    let environment = folder.join(".omgserversctl/environment");
    let mut stored = std::fs::read_to_string(&environment).unwrap();
    stored += "export OMGSERVERSCTL_DEVELOPER_USER=1\nexport OMGSERVERSCTL_DEVELOPER_PASSWORD=x\n";
    std::fs::write(&environment, stored).unwrap();
    run(folder, "developer init acme hello");
    assert_eq!(run(folder, "get DEVELOPER_USER"), "700");
}

#[test]
fn somebody_is_invited_with_everything_that_is_needed() {
    let mut setting = setting();
    let folder = setting.folder.path().to_owned();
    run(&folder, "support useCredentials support support");
    run(&folder, "developer init acme hello");
    let count = |call: &str| setting.service.calls().iter().filter(|made| *made == call).count();
    let before = count("support create-developer");
    let transcript = &mut setting.transcript;
    transcript.run_all(
        "
        support inviteDeveloper nobody
        support inviteDeveloper 999
        support inviteDeveloper acme --project 999
        support inviteDeveloper acme --project hello --stage nowhere
        ",
    );
    assert_eq!(count("support create-developer"), before, "a wrong name makes nobody");
    run(&folder, "support createStageAlias acme 300 deleted");
    transcript.run_all(
        "
        support inviteDeveloper acme --name taken
        support inviteDeveloper acme --project hello --stage deleted
        ",
    );
    assert_eq!(count("support create-developer"), before + 2);
    assert_eq!(count("support delete-developer"), 2, "nobody is left behind");
    transcript.run_all(
        "
        support inviteDeveloper acme
        support inviteDeveloper acme --project hello --stage prod --name bob
        ",
    );
    // Whoever works on one project does not manage the tenant.
    assert_eq!(
        setting.service.read()["create-tenant-permissions"],
        serde_json::json!(["TENANT_VIEWER"])
    );
    transcript.run_all(
        "
        support inviteDeveloper acme --output json
        support inviteDeveloper acme --stage prod
        ",
    );
    transcript.check("invite");
}

#[test]
fn commands_that_are_told_can_be_typed_whatever_the_names_are() {
    let setting = setting();
    let folder = setting.folder.path();
    run(folder, "support useCredentials support support");
    let say = |words: &[&str]| {
        let mut command = crate::run::omgctl(folder);
        command.args(words);
        crate::run::text(&crate::run::answer(command, "").stdout)
    };
    let said = say(&["developer", "init", "my studio", "it's a game"]);
    assert!(
        said.contains(r"omgctl developer deploy 'my studio' 'it'\''s a game' prod"),
        "{said}"
    );
    let said = say(&["support", "inviteDeveloper", "my studio", "--name", "Ada L"]);
    assert!(said.contains("omgctl developer useCredentials 'Ada L' -"), "{said}");
}

#[test]
fn a_game_is_deployed_in_one_command() {
    let mut setting = setting();
    let folder = setting.folder.path().to_owned();
    run(&folder, "developer useCredentials 700 developer-password");
    std::fs::write(folder.join("version.json"), r#"{"modes": []}"#).unwrap();
    std::fs::write(folder.join("deployment.json"), r#"{"min_lobbies": 2}"#).unwrap();
    std::fs::write(folder.join("asleep.json"), r#"{"min_lobbies": 0}"#).unwrap();
    let made = setting.service.calls().len();
    let transcript = &mut setting.transcript;
    transcript.run("developer deploy 100 200 300 --config version.json --image image.tar");
    transcript.run("developer deploy 100 200 300 --config nowhere.json --image shooter:dev");
    assert_eq!(setting.service.calls().len(), made, "mistakes leave nothing behind");
    transcript.run("developer deploy 100 200 300 --config version.json --image shooter:dev");
    assert_eq!(
        setting.service.calls()[made..],
        [
            "create-version",
            "create-image",
            "deploy-version",
            "get-deployment-details"
        ]
        .map(|call| format!("developer {call}"))
    );
    transcript.run("get VERSION").run("get DEPLOYMENT");
    let pending = |world: &mut crate::service::World| {
        world.insert("reason".to_owned(), serde_json::json!("no host has room"));
    };
    setting.service.change(pending);
    transcript.run_with_input(
        "developer deploy 100 200 300 --from - --image shooter:dev --deployment-config deployment.json --wait 1",
        r#"{"modes": []}"#,
    );
    transcript.run("developer deploy 100 200 300 --config version.json --image shooter:dev --no-wait --output json");
    transcript
        .run("developer deploy 100 200 300 --config version.json --image shooter:dev --deployment-config asleep.json");
    transcript.run("developer deploy 100 200 forbidden --config version.json --image shooter:dev");
    transcript.run("developer deploy --help").check("deploy");
}
