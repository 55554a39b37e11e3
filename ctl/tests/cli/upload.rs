//! Which files of a folder are sent.

use std::collections::BTreeMap;
use std::io::{Cursor, Read};
use std::os::unix::fs::{PermissionsExt, symlink};

use crate::commands::{run, setting};

/// Files by their names, as the service received them.
fn received(form: &[u8]) -> BTreeMap<String, (u32, String)> {
    let find = |what: &[u8]| form.windows(what.len()).position(|window| window == what);
    let text = String::from_utf8_lossy(form);
    for part in ["name=\"tenant\"", "name=\"tenantVersionId\"", "name=\"version.zip\""] {
        assert!(text.contains(part), "{part} is missing");
    }
    let start = find(b"PK\x03\x04").expect("there is an archive");
    let mut archive = zip::ZipArchive::new(Cursor::new(&form[start..])).unwrap();
    let files = (0..archive.len()).map(|index| {
        let mut file = archive.by_index(index).unwrap();
        let mut content = String::new();
        file.read_to_string(&mut content).unwrap();
        (
            file.name().unwrap().into_owned(),
            (file.unix_mode().unwrap() & 0o777, content),
        )
    });
    files.collect()
}

#[test]
fn all_files_are_sent_except_those_that_dockerignore_names_and_links_that_lead_out() {
    let setting = setting();
    let folder = setting.folder.path();
    run(folder, "developer useCredentials 700 developer-password");
    let files = folder.join("game files");
    for (name, content) in [
        (".dockerignore", "target\n*.log\n!keep.log\n"),
        ("main.lua", "main"),
        ("lib/deep/tool.lua", "tool"),
        ("target/debug/big", "big"),
        ("a.log", "log"),
        ("keep.log", "keep"),
        ("lib/b.log", "not at the top"),
        ("run.sh", "#!/bin/sh"),
    ] {
        let path = files.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    std::fs::set_permissions(files.join("run.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    symlink("/etc/passwd", files.join("out")).unwrap();
    symlink("../version.json", files.join("up")).unwrap();
    symlink("nowhere", files.join("dangling")).unwrap();
    symlink("main.lua", files.join("inside")).unwrap();
    symlink(".", files.join("loop")).unwrap();

    let upload = |face: &str| {
        let mut command = crate::run::omgctl(folder);
        std::os::unix::process::CommandExt::arg0(&mut command, face);
        command
            .args(["developer", "uploadFilesArchive", "100", "400"])
            .arg("game files");
        let answer = crate::run::answer(command, "");
        assert!(answer.status.success(), "{}", crate::run::text(&answer.stderr));
        std::fs::read(folder.join("uploaded")).unwrap()
    };
    let first = received(&upload("omgctl"));
    let names: Vec<_> = first.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            ".dockerignore",
            "inside",
            "keep.log",
            "lib/b.log",
            "lib/deep/tool.lua",
            "main.lua",
            "run.sh"
        ]
    );
    assert_eq!(first["inside"].1, "main");
    assert_eq!((first["run.sh"].0, first["main.lua"].0), (0o755, 0o644));
    assert_eq!(run(folder, "get FILES_ARCHIVE"), "950");

    // Nothing of an earlier archive stays, in neither face.
    std::fs::remove_file(files.join("main.lua")).unwrap();
    let second = received(&upload("omgserversctl"));
    assert!(!second.contains_key("main.lua") && second.contains_key("run.sh"));
    assert!(folder.join(".omgserversctl/versions/version_100_400.zip").exists());
}

#[test]
fn a_folder_without_files_is_refused() {
    let setting = setting();
    let folder = setting.folder.path();
    run(folder, "developer useCredentials 700 developer-password");
    std::fs::create_dir(folder.join("empty")).unwrap();
    for (name, reason) in [("empty", "has no files"), ("nowhere", "No such file")] {
        let mut command = crate::run::omgctl(folder);
        command.args(["developer", "uploadFilesArchive", "100", "400", name]);
        let answer = crate::run::answer(command, "");
        let said = crate::run::text(&answer.stderr);
        assert!(answer.status.code() == Some(2) && said.contains(reason), "{said}");
    }
}

#[test]
fn what_omgctl_keeps_for_itself_is_never_sent() {
    let setting = setting();
    let folder = setting.folder.path();
    let files = folder.join("game");
    for name in [
        ".git/config",
        "lib/.omgserversctl/environment",
        ".omgservers/secrets",
        "main.lua",
    ] {
        let path = files.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "").unwrap();
    }
    // In use, whatever its name.
    std::fs::rename(folder.join(".omgserversctl"), files.join("mine")).unwrap();
    symlink("mine/environment", files.join("link")).unwrap();
    let upload = |face: &str, what: &str| {
        let mut command = crate::run::omgctl(folder);
        std::os::unix::process::CommandExt::arg0(&mut command, face);
        command.env("OMGSERVERSCTL_DIRECTORY", "game/mine").args(["developer"]);
        if what.is_empty() {
            command.args(["useCredentials", "700", "developer-password"]);
        } else {
            command.args(["uploadFilesArchive", "100", "400", what]);
        }
        crate::run::answer(command, "")
    };
    for face in ["omgctl", "omgserversctl"] {
        assert!(upload(face, "").status.success());
        assert!(upload(face, "game").status.success());
        let sent = received(&std::fs::read(folder.join("uploaded")).unwrap());
        assert_eq!(sent.into_keys().collect::<Vec<_>>(), ["main.lua"]);
        assert!(!upload(face, "game/mine").status.success());
    }
}
