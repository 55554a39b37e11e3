//! Where Postgres is installed on this machine.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Result, bail};
use tokio::process::Command;

const ANSWER_WAIT: Duration = Duration::from_secs(10);

/// The programs of one version of Postgres.
#[derive(Debug)]
pub(super) struct Binaries {
    folder: PathBuf,
}

impl Binaries {
    /// The newest version that is installed; for an existing cluster the one that made it.
    pub(super) async fn find(made_by: Option<&str>) -> Result<Self> {
        let mut found: Vec<(u32, PathBuf)> = Vec::new();
        for folder in folders() {
            if let Some(major) = major_version(&folder).await {
                found.push((major, folder));
            }
        }
        // The first of equal ones: those of the distribution before those that merely are in the path.
        let Some(newest) = found.iter().map(|(major, _)| *major).max() else {
            bail!(
                "Postgres is not installed: install it (Debian and Ubuntu: `apt-get install postgresql`), or give the address of a database"
            );
        };
        let wanted = made_by.and_then(|text| text.parse().ok()).unwrap_or(newest);
        match found.into_iter().find(|(major, _)| *major == wanted) {
            Some((_, folder)) => Ok(Self { folder }),
            None => bail!(
                "the cluster was made by Postgres {wanted}, but only {newest} is installed: install `postgresql-{wanted}`"
            ),
        }
    }

    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

fn folders() -> Vec<PathBuf> {
    let children = |parent: &str, prefix: &str| -> Vec<PathBuf> {
        let entries = fs::read_dir(parent).into_iter().flatten().flatten();
        let matching = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
        matching.map(|entry| entry.path().join("bin")).collect()
    };
    let mut folders = children("/usr/lib/postgresql", "");
    folders.extend(children("/usr", "pgsql-"));
    folders.extend(["/usr/local/pgsql/bin", "/usr/local/bin", "/usr/bin"].map(PathBuf::from));
    folders.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    folders.retain(|folder| folder.join("postgres").is_file() && folder.join("initdb").is_file());
    folders
}

/// `postgres (PostgreSQL) 15.14 (Debian …)`
async fn major_version(folder: &Path) -> Option<u32> {
    let answer = Command::new(folder.join("postgres"))
        .arg("--version")
        .kill_on_drop(true)
        .output();
    let answer = tokio::time::timeout(ANSWER_WAIT, answer).await.ok()?.ok()?;
    parse_major(&String::from_utf8_lossy(&answer.stdout))
}

fn parse_major(text: &str) -> Option<u32> {
    let version = text.split_once("(PostgreSQL) ")?.1;
    version
        .split(|character: char| !character.is_ascii_digit())
        .next()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_is_read_from_what_the_server_says_of_itself() {
        assert_eq!(
            parse_major("postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)\n"),
            Some(15)
        );
        assert_eq!(parse_major("postgres (PostgreSQL) 18beta1\n"), Some(18));
        assert_eq!(parse_major("something else"), None);
    }
}
