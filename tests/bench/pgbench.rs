//! pgbench as the reference for writes: the statements of one operation of the service, without the service.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

use crate::machine;

const RUN_WAIT: Duration = Duration::from_secs(120);
/// Shards of an installation with the defaults.
const SHARDS: u32 = 8;

/// Transactions per second of so many clients, each with so many transactions.
pub(crate) async fn run(folder: &Path, database: &str, clients: u32, transactions: u32) -> Result<f64> {
    let program = machine::program("pgbench", "postgresql")?;
    let mut command = Command::new(program);
    command.args(["--no-vacuum", "--protocol=simple"]);
    command.args([
        format!("--client={clients}"),
        "--jobs=1".into(),
        format!("--transactions={transactions}"),
    ]);
    for shard in 0..SHARDS {
        let path = folder.join(format!("create-user-{shard}.sql"));
        std::fs::write(&path, script(shard))?;
        command.arg("--file").arg(path);
    }
    command.arg(database).stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(RUN_WAIT, command.output())
        .await
        .context("pgbench does not end")??;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success(),
        "pgbench failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    rate(&said).with_context(|| format!("pgbench says no rate: {said}"))
}

/// What `player/create-user` sends to Postgres, in as many round trips: the opening of a transaction in a shard with
/// its fence, the row, the commit.
fn script(shard: u32) -> String {
    format!(
        "\\set id random(1, 9000000000000000000)\n\
         BEGIN \\; SET LOCAL search_path TO shard_{shard:05} \\; SET LOCAL lock_timeout TO '5s' \\; \
         SELECT pg_advisory_xact_lock_shared(1330464595, {shard});\n\
         insert into account (id, role, password_hash) values (:id, 'player', 'sha256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=');\n\
         COMMIT;\n"
    )
}

fn rate(said: &str) -> Option<f64> {
    let line = said
        .lines()
        .find(|line| line.starts_with("tps = ") && !line.contains("including"))?;
    line.split_whitespace().nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_the_one_without_the_time_to_connect() {
        let said =
            "latency average = 3 ms\ninitial connection time = 9 ms\ntps = 2672.5 (without initial connection time)\n";
        assert_eq!(rate(said), Some(2672.5));
        assert_eq!(rate("nothing"), None);
    }

    #[test]
    fn a_transaction_takes_three_round_trips() {
        let ends = script(3).lines().filter(|line| line.ends_with(';')).count();
        assert_eq!(ends, 3);
        assert!(script(3).contains("shard_00003"));
    }
}
