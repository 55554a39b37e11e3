//! The shooter as a game of the stories.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use omgservers_service::archive::{self, ImageFile};
use serde_json::Value;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../shooter-runtime")
}

/// Its version config, as it is deployed.
pub fn version() -> Value {
    let text = std::fs::read_to_string(folder().join("version.json")).expect("shooter-runtime/version.json");
    serde_json::from_str(&text).expect("a version config")
}

/// An archive of the program that was built beside the stories, for hosts that run processes.
pub fn archive() -> PathBuf {
    static ARCHIVE: OnceLock<PathBuf> = OnceLock::new();
    ARCHIVE.get_or_init(|| pack("shooter-runtime")).clone()
}

/// The same as the image of a version.
pub fn image() -> String {
    format!("file://{}", archive().display())
}

/// Packs a program into an archive in the target folder.
pub fn pack(name: &str) -> PathBuf {
    let program = crate::program(name);
    let path = program.with_extension("stories.tar");
    let entry = format!("/{name}");
    let file = ImageFile {
        path: entry.clone(),
        source: program.clone(),
        mode: 0o755,
    };
    // Another run of the stories may be reading it: the new one takes its place in one step.
    let fresh = program.with_extension(format!("{}.tar", std::process::id()));
    archive::write(&fresh, &format!("stories/{name}:1"), &[entry], &[file], &[]).expect("the image is written");
    std::fs::rename(&fresh, &path).expect("the image is in its place");
    path
}
