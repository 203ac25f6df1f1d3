//! On what it was measured: figures mean nothing without.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde::Serialize;

use crate::Result;

/// Crates whose versions matter to the figures, and the lock file that says what was linked: of this build, and of the
/// peer that is a program of its own.
const CRATES: [(&str, &[&str]); 2] = [
    (
        include_str!("../../../Cargo.lock"),
        &["cerrojo", "tokio", "rusqlite", "libsqlite3-sys", "redis", "rslock", "tokio-postgres"],
    ),
    (include_str!("../peers/distributed-lock/Cargo.lock"), &["distributed-lock-postgres", "sqlx"]),
];

/// The versions of the peers in Python and JavaScript.
const PYTHON: &str = include_str!("../peers/requirements.txt");
const NODE: &str = include_str!("../peers/package.json");

#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    cpu: String,
    cores: usize,
    kernel: String,
    filesystem: String,
    folder: PathBuf,
    optimised: bool,
    versions: Vec<(String, String)>,
}

pub(crate) fn describe(folder: PathBuf) -> Result<Machine> {
    Ok(Machine {
        cpu: cpu_model().unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        cores: std::thread::available_parallelism()?.get(),
        kernel: read("/proc/sys/kernel/osrelease"),
        filesystem: filesystem(&folder.canonicalize()?),
        folder,
        optimised: !cfg!(debug_assertions),
        versions: versions()?,
    })
}

fn read(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

fn cpu_model() -> Option<String> {
    let text = read("/proc/cpuinfo");
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(": ").map(|(_, model)| model.to_owned())
}

/// The type of the mount that is nearest above the folder; the last one of several on one point counts.
fn filesystem(folder: &Path) -> String {
    let mounts = read("/proc/self/mountinfo");
    let above = mounts.lines().filter_map(mount).filter(|(point, _)| folder.starts_with(point));
    let nearest = above.max_by_key(|(point, _)| point.len());
    nearest.map_or("unknown", |(_, kind)| kind).to_owned()
}

fn mount(line: &str) -> Option<(&str, &str)> {
    let (left, right) = line.split_once(" - ")?;
    Some((left.split(' ').nth(4)?, right.split(' ').next()?))
}

/// Of the crates that were linked, the servers that are there, and the peers that are pinned.
fn versions() -> Result<Vec<(String, String)>> {
    let crates = CRATES
        .iter()
        .flat_map(|(lock_file, names)| names.iter().filter_map(|name| version_of(lock_file, name)));
    let servers = redis_server().into_iter().chain(postgres());
    let python = PYTHON.lines().filter_map(|line| line.split(';').next()?.split_once("=="));
    let python = python.map(|(name, version)| (format!("{name} (Python)"), version.to_owned()));
    Ok(crates.chain(servers).chain(python).chain(node_versions()?).collect())
}

/// `Redis server v=7.0.15 sha=...`, where there is one.
fn redis_server() -> Option<(String, String)> {
    let said = Command::new("redis-server").arg("--version").output().ok()?.stdout;
    let said = String::from_utf8_lossy(&said);
    let version = said.split(' ').find_map(|word| word.strip_prefix("v="))?;
    Some(("redis-server".to_owned(), version.to_owned()))
}

/// `pgbench (PostgreSQL) 15.18 (Debian ...)`, which comes with the server.
fn postgres() -> Option<(String, String)> {
    let said = Command::new("pgbench").arg("--version").output().ok()?.stdout;
    let said = String::from_utf8_lossy(&said);
    Some(("PostgreSQL".to_owned(), said.split_whitespace().nth(2)?.to_owned()))
}

fn node_versions() -> Result<Vec<(String, String)>> {
    let package: serde_json::Value = serde_json::from_str(NODE)?;
    let pinned = package.get("dependencies").and_then(serde_json::Value::as_object);
    let pinned = pinned.into_iter().flatten();
    let versions = pinned.filter_map(|(name, version)| Some((name, version.as_str()?)));
    Ok(versions.map(|(name, version)| (format!("{name} (Node)"), version.to_owned())).collect())
}

fn version_of(lock_file: &str, name: &str) -> Option<(String, String)> {
    let start = format!("name = \"{name}\"\nversion = \"");
    let (_, rest) = lock_file.split_once(&start)?;
    let (version, _) = rest.split_once('"')?;
    Some((name.to_owned(), version.to_owned()))
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpu, cores, kernel, filesystem, .. } = self;
        write!(
            f,
            "{cpu}, {cores} cores, Linux {kernel}, {filesystem} at {}",
            self.folder.display()
        )?;
        let versions: Vec<_> =
            self.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
        write!(f, "\n{}", versions.join(", "))?;
        if !self.optimised {
            write!(f, "\nNOT OPTIMISED: build with --release before quoting a figure")?;
        }
        if filesystem == "tmpfs" {
            write!(f, "\ntmpfs: a sync costs nothing here; say --folder on a disk")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_mount_and_its_type() {
        let line = "36 35 98:0 /a /mnt/b rw,noatime shared:1 - ext4 /dev/vda rw";
        assert_eq!(mount(line), Some(("/mnt/b", "ext4")));
        assert_eq!(filesystem(Path::new("/proc")), "proc");
    }

    #[test]
    fn knows_the_versions_it_was_built_with() {
        let own = env!("CARGO_PKG_VERSION").to_owned();
        let [(own_build, _), (peer, _)] = CRATES;
        assert_eq!(version_of(own_build, "cerrojo"), Some(("cerrojo".to_owned(), own)));
        assert_eq!(version_of(own_build, "no-such-crate"), None);
        assert!(version_of(peer, "sqlx").is_some());
    }
}
