//! PostgreSQL's own client for measurements: what a cycle costs with next to no client.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use super::Database;
use crate::{Result, harness::Played};

/// Its scripts, by what they are called in tables. Each client of a run has a lock of its own.
pub(super) const SCRIPTS: [(&str, &str); 4] = [
    (UPSERT, "upsert.sql"),
    ("pgbench: session advisory", "session_advisory.sql"),
    ("pgbench: transaction advisory", "transaction_advisory.sql"),
    ("pgbench: serializable", "serializable.sql"),
];

pub(super) const UPSERT: &str = "pgbench: upsert";

/// It knows whole seconds only.
const SECONDS: &str = "1";

/// As many as the workers of a runtime.
const THREADS_MAX: u32 = 2;

pub(super) fn cycles(script: &str, clients: u32, database: &Database) -> Result<Played> {
    let output = command(script, clients, database).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() || !said.contains("number of failed transactions: 0 ") {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("pgbench: {}\n{said}{errors}", output.status).into());
    }
    let rate = per_second(&said).ok_or("pgbench said no rate")?;
    Ok(Played::default().figure("cycles", "1/s", vec![rate]))
}

fn command(script: &str, clients: u32, database: &Database) -> Command {
    let mut command = Command::new("pgbench");
    command.args(["--no-vacuum", "--protocol=prepared", "--time", SECONDS]);
    // A serialization failure is tried again for as long as it lasts.
    command.arg("--max-tries=0");
    command.args(["--client", &clients.to_string()]);
    command.args(["--jobs", &clients.min(THREADS_MAX).to_string()]);
    command.arg("--file").arg(scripts().join(script)).arg(database.url());
    command
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/pgbench")
}

/// `tps = 3361.4 (without initial connection time)`
fn per_second(said: &str) -> Option<f64> {
    let rate = said.lines().find_map(|line| line.strip_prefix("tps = "))?;
    rate.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_rate_is_read() {
        let said = "latency average = 0.3 ms\ntps = 3361.4 (without initial connection time)\n";
        assert_eq!(per_second(said), Some(3361.4));
        assert_eq!(per_second("nothing"), None);
    }

    #[test]
    fn every_script_is_there() {
        for (_, script) in SCRIPTS {
            assert!(scripts().join(script).is_file(), "{script}");
        }
    }
}
