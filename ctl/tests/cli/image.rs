//! `omgctl image pack` with a real program.

use std::path::Path;

use crate::run::{answer, omgctl, text};

/// The smallest file with the header of a static program.
fn program() -> Vec<u8> {
    let mut elf = vec![0; 64];
    elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
    elf[18] = 0x3e;
    elf
}

fn pack(folder: &Path, binary: &str, archive: &str) -> std::process::Output {
    let mut command = omgctl(folder);
    command.args([
        "image",
        "pack",
        "--binary",
        binary,
        "--tag",
        "game:dev",
        "--output",
        archive,
        "--env",
        "MODE=test",
    ]);
    answer(command, "")
}

#[test]
fn the_same_program_gives_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("game"), program()).unwrap();
    for archive in ["first.tar", "second.tar"] {
        let packed = pack(folder.path(), "game", archive);
        assert!(packed.status.success(), "{}", text(&packed.stderr));
        // Times of the files must not matter.
        std::fs::write(folder.path().join("game"), program()).unwrap();
    }
    let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    assert_eq!(read("first.tar"), read("second.tar"));
    let listed = std::process::Command::new("tar")
        .arg("-tvf")
        .arg(folder.path().join("first.tar"))
        .output()
        .unwrap();
    let listed = text(&listed.stdout);
    assert!(
        listed.contains("manifest.json") && listed.contains("layer.tar") && listed.contains("1970-01-01"),
        "{listed}"
    );
}

#[test]
fn a_program_that_needs_a_loader_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let packed = pack(folder.path(), env!("CARGO_BIN_EXE_omgctl"), "game.tar");
    assert_eq!(packed.status.code(), Some(2));
    assert!(text(&packed.stderr).contains("crt-static"), "{}", text(&packed.stderr));
    assert!(!folder.path().join("game.tar").exists());
}
