//! `sqlx::migrate!` does not watch its folders.
fn main() {
    println!("cargo::rerun-if-changed=../migrations");
}
