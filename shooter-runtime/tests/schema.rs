//! The generated code belongs to the schema: sums that the generator wrote, computed again without it.

use std::fs;
use std::path::Path;

/// As in `schema/generate.mjs`.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[test]
fn the_generated_code_is_that_of_the_schema() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sums = fs::read_to_string(root.join("schema/generated.sums")).expect("the sums are part of the repository");
    assert!(sums.contains("schema/shooter.fbs") && sums.contains("src/shooter_generated.rs"));
    for line in sums.lines() {
        let (expected, path) = line.split_once("  ").expect("a sum and a path");
        let bytes = fs::read(root.join(path)).unwrap_or_else(|error| panic!("`{path}`: {error}"));
        assert_eq!(
            format!("{:016x}", sum(&bytes)),
            expected,
            "`{path}` is not current: run schema/generate.sh"
        );
    }
}
