//! Archives that nobody should unpack, by way of the real upload.

use std::io::{Cursor, Write as _};

use harness::{Installation, Options, Studio, game_config};
use omgservers_protocol::token::Role;
use serde_json::json;
use zip::write::SimpleFileOptions;

use super::{Answer, post};
use crate::http::{post_fields, post_form};

fn archive(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in entries {
        zip.start_file(*name, SimpleFileOptions::default()).expect("an entry");
        zip.write_all(content).expect("its content");
    }
    zip.finish().expect("an archive").into_inner()
}

fn link() -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    zip.add_symlink("main.lua", "/etc/passwd", SimpleFileOptions::default())
        .expect("a link");
    zip.finish().expect("an archive").into_inner()
}

/// Bytes that do not compress.
fn noise(length: usize) -> Vec<u8> {
    use rand::{RngCore as _, SeedableRng as _};
    let mut bytes = vec![0; length];
    rand::rngs::StdRng::seed_from_u64(1).fill_bytes(&mut bytes);
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_that_nobody_should_unpack_is_refused_at_the_door() {
    let installation = Installation::start(Options {
        configure: |config| config.archive_max_mb = 2,
        ..Options::default()
    })
    .await;
    let studio = Studio::open(&installation).await;
    let version = studio.version(game_config(), "local://").await;
    let app = installation.services[0].app();
    let token = app.tokens.for_user(studio.user, Role::Developer, 0);
    let area = format!("{}/service/v1/entrypoint/developer/request", installation.base);
    let url = format!("{area}/upload-files-archive");
    let fields = json!({"tenant": studio.tenant, "tenantVersionId": version});
    let before = installation.dump("audit").await;

    let good = archive(&[("main.lua", b"print('hello')")]);
    let mut broken = archive(&[("main.lua", &b"print('hello, world, this is text')".repeat(9))]);
    broken[45] ^= 0xff;
    let wrong = (400, "WRONG_VERSION_ZIP");
    for (what, part, file, expected) in [
        (
            "a path out of the folder",
            "version.zip",
            archive(&[("../../etc/cron.d/x", b"x")]),
            wrong,
        ),
        (
            "an absolute path",
            "version.zip",
            archive(&[("/etc/passwd", b"x")]),
            wrong,
        ),
        (
            "a path of another system",
            "version.zip",
            archive(&[("..\\x", b"x")]),
            wrong,
        ),
        ("a symbolic link", "version.zip", link(), wrong),
        ("a bomb", "version.zip", archive(&[("bomb", &vec![0; 64 << 20])]), wrong),
        ("a damaged file", "version.zip", broken, wrong),
        ("half an archive", "version.zip", good[..good.len() / 2].to_vec(), wrong),
        ("no archive", "version.zip", b"not a zip".to_vec(), wrong),
        ("an empty file", "version.zip", Vec::new(), wrong),
        ("an archive of nothing", "version.zip", archive(&[]), wrong),
        ("another name", "game.zip", good.clone(), (400, "VERSION_ZIP_NOT_FOUND")),
        (
            "too much",
            "version.zip",
            archive(&[("data", &noise(3 << 20))]),
            (413, "WRONG_REQUEST"),
        ),
        ("far too much", "version.zip", noise(100 << 20), (413, "WRONG_REQUEST")),
    ] {
        let answer = post_form(&url, Some(&token), &fields, (part, file)).await;
        check(what, &answer, expected);
    }
    let (tenant, version) = (studio.tenant.to_string(), version.to_string());
    let invalid = (400, "VALIDATION_CONSTRAINT_VIOLATED");
    type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], (u16, &'a str));
    let named: [Case<'_>; 4] = [
        (
            "no file",
            &[("tenant", &tenant), ("tenantVersionId", &version)],
            invalid,
        ),
        (
            "no file, but its name",
            &[("tenant", &tenant), ("tenantVersionId", &version), ("version.zip", "x")],
            wrong,
        ),
        ("no form", &[], (400, "WRONG_REQUEST")),
        (
            "a long field",
            &[("tenant", &"x".repeat(100_000)), ("tenantVersionId", &version)],
            invalid,
        ),
    ];
    for (what, fields, expected) in named {
        check(what, &post_fields(&url, Some(&token), fields).await, expected);
    }
    for (what, fields, expected) in [
        ("no version", json!({"tenant": tenant}), invalid),
        (
            "a version by name",
            json!({"tenant": tenant, "tenantVersionId": "new"}),
            (400, "WRONG_REQUEST"),
        ),
        (
            "an unknown version",
            json!({"tenant": tenant, "tenantVersionId": "1"}),
            (404, "OBJECT_NOT_FOUND"),
        ),
        (
            "a zero byte",
            json!({"tenant": "a\u{0}", "tenantVersionId": version}),
            invalid,
        ),
    ] {
        let answer = post_form(&url, Some(&token), &fields, ("version.zip", good.clone())).await;
        check(what, &answer, expected);
    }
    let form = post(&url, Some(&token), &fields).await;
    check("JSON", &form, (400, "WRONG_MEDIA_TYPE"));

    // Nothing was kept, and a good one is welcome.
    assert_eq!(installation.dump("files_archive").await, "");
    assert_eq!(installation.dump("audit").await, before);
    let answer = post_form(&url, Some(&token), &fields, ("version.zip", good)).await;
    check("a good one", &answer, (200, ""));
    installation.stop().await;
}

#[track_caller]
fn check(what: &str, answer: &Answer, expected: (u16, &str)) {
    assert_eq!(
        (answer.status, answer.qualifier.as_str()),
        expected,
        "{what}: {}",
        answer.body
    );
}
