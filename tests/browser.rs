//! Two real browsers spend an evening: sign up, lobby, match with bots in a container, back to the lobby. The pictures
//! are kept in `test-output/two-players`.

use std::path::Path;
use std::process::Command;

use harness::{Fleet, engine, shooter};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn two_browsers_play_a_match_in_a_container() {
    if !engine::wanted() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let engine = engine::Engine::start(folder.path()).expect("an engine starts");
    let archive = harness::artefact("OMGSERVERS_TEST_SHOOTER_ARCHIVE");
    harness::artefact("OMGSERVERS_TEST_WEB_DIST");
    let mut version = shooter::version();
    version["user_data"] = json!({"bots": {"arena": 6}, "frag_limit": 6, "time_limit_s": 240, "closing_s": 4});
    let deployment = json!({"matchmaker": {"modes": {"arena": {"min_matches": 1}}}});
    let fleet = Fleet::start(&engine.address(), &archive, &version, &deployment).await;
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../web");
    let mut browsers = Command::new("node");
    browsers
        .arg("e2e/two-players.mjs")
        .current_dir(web)
        .env("BASE_URL", &fleet.base);
    let output = tokio::task::spawn_blocking(move || browsers.output())
        .await
        .expect("the thread ends")
        .expect("node runs");
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "{said}");
    println!("{said}");
    let listed = engine
        .docker(&["ps", "--format", "{{.Names}}"])
        .expect("the engine answers");
    assert!(
        listed.lines().any(|name| name.starts_with("lobby_")),
        "a lobby runs in a container: {listed}"
    );
    fleet.stop().await;
    let left = engine.docker(&["ps", "-aq"]).expect("the engine answers");
    assert_eq!(left.trim(), "", "a container outlived the platform");
}
