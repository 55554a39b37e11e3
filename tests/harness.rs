//! Starts the parts of the system for the stories: one throw-away Postgres cluster for all of them, and installations of
//! services and a dispatcher on it. Waiting is for a condition with a deadline, never a sleep.

mod fleet;
mod platform;
mod process;
mod server;
pub mod shooter;
mod studio;

pub mod engine;

pub use fleet::{Fleet, Part};
pub use platform::{Installation, Options, cluster};
pub use process::{Durable, ServiceProcess};
pub use server::Server;
pub use studio::{Studio, game_config};

use std::future::Future;
use std::time::{Duration, Instant};

/// Generous: the machine is shared and noisy.
pub const DEADLINE: Duration = Duration::from_secs(90);

/// Waits until the condition gives something, and says what was waited for if it never does.
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut condition: impl FnMut() -> F) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = condition().await {
            return found;
        }
        assert!(
            begun.elapsed() < DEADLINE,
            "waited {} s in vain: {what}",
            DEADLINE.as_secs()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A file or folder that `./dev test` has built and named in the environment. Without it the story cannot be told.
#[expect(
    clippy::disallowed_methods,
    reason = "the stories' only settings: where the built artefacts are"
)]
pub fn artefact(variable: &str) -> std::path::PathBuf {
    let path =
        std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set: run the stories by ./dev test"));
    let path = std::path::PathBuf::from(path);
    assert!(
        path.exists(),
        "{variable} names `{}`, which does not exist",
        path.display()
    );
    path
}

/// A program that was built beside the stories.
pub fn program(name: &str) -> std::path::PathBuf {
    let stories = std::env::current_exe().expect("a running program has a path");
    let folder = stories
        .parent()
        .and_then(std::path::Path::parent)
        .expect("target/<profile>/deps/stories");
    let program = folder.join(name);
    assert!(
        program.exists(),
        "`{}` is missing: cargo build --workspace",
        program.display()
    );
    program
}

/// The built browser client, where `./dev test` has built one.
pub fn web() -> Option<std::path::PathBuf> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the stories' only settings: where the built artefacts are"
    )]
    std::env::var("OMGSERVERS_TEST_WEB_DIST").ok().map(Into::into)
}

/// Copies logs or pictures of a story to `test-output/<name>`, to be looked at.
pub fn keep(name: &str, folder: &std::path::Path) {
    let target = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../test-output")
        .join(name);
    std::fs::create_dir_all(&target).ok();
    for entry in std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
        std::fs::copy(entry.path(), target.join(entry.file_name())).ok();
    }
}

/// A port that nobody has now, and that no connection gets by chance before its server binds it: those are above 32768.
pub fn free_port() -> u16 {
    let is_free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    std::iter::repeat_with(|| rand::random_range(20_000..32_000))
        .find(is_free)
        .expect("there is a free port")
}
