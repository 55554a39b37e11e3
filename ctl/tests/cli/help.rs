//! What people read first.

use crate::run::{Transcript, answer, omgctl, text};

#[test]
fn help_lists_what_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let mut transcript = Transcript::new(folder.path());
    transcript
        .run("--help")
        .run("")
        .run("environment --help")
        .run("admin --help")
        .run("support --help");
    transcript
        .run("help developer")
        .run("developer deployVersion --help")
        .run("image pack --help")
        .run("up --help");
    transcript
        .run("down --help")
        .run("help support createStagePermission")
        .run("developer run --help")
        .run("developer createVersion --help")
        .check("help");
}

#[test]
fn shells_learn_the_commands() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let mut command = omgctl(folder.path());
        command.args(["completions", shell]);
        let script = answer(command, "");
        assert!(
            script.status.success() && text(&script.stdout).contains("deployVersion"),
            "{shell}"
        );
        assert!(
            !text(&script.stdout).contains("leash"),
            "{shell} completes what is not for people"
        );
    }
    let mut transcript = Transcript::new(folder.path());
    transcript.run("completions tcsh").check("completions");
}

#[test]
fn wrong_usage_is_told_and_exits_with_2() {
    let folder = tempfile::tempdir().unwrap();
    let mut transcript = Transcript::new(folder.path());
    transcript
        .run("nonsense")
        .run("developer")
        .run("developer createVersion acme")
        .run("support createTenant surplus");
    transcript
        .run("support createTenantAlias acme name")
        .run("support createTenantPermission acme 1 OWNER");
    transcript
        .run("developer createImage acme game 1 BOTH image")
        .run("environment useEnvironment x localhost:8080");
    transcript.run("admin generateId --output yaml").check("usage");
}
