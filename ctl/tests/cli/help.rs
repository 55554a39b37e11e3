//! What people read first.

use crate::run::Transcript;

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
    transcript.run("down --help").check("help");
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
