//! What the tests need beside a Rust toolchain, and how to get it.

use std::{
    env,
    ffi::OsStr,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{Outcome, process};

/// Debian packages, the program that proves that they are there, and the tests that use it.
struct Need {
    packages: &'static [&'static str],
    program: &'static str,
    trials: &'static str,
}

const NEEDS: &[Need] = &[
    Need {
        packages: &["gcc", "libc6-dev"],
        program: "cc",
        trials: "the embedded store, and the shims for power loss and wrong clocks",
    },
    Need {
        packages: &["tmux"],
        program: "tmux",
        trials: "people at a terminal under `cerrojo run`",
    },
    Need { packages: &["redis-server"], program: "redis-server", trials: "the Redis store" },
    Need { packages: &["postgresql"], program: "postgres", trials: "the PostgreSQL store" },
    Need { packages: &["pgbouncer"], program: "pgbouncer", trials: "PostgreSQL through a pool" },
    Need { packages: &["etcd-server"], program: "etcd", trials: "the etcd store" },
    Need { packages: &["etcd-client"], program: "etcdctl", trials: "etcdctl beside ours" },
    Need { packages: &["zookeeper"], program: "zkServer.sh", trials: "the ZooKeeper store" },
    Need { packages: &["less"], program: "less", trials: "a pager under `cerrojo run`" },
    Need { packages: &["vim-tiny"], program: "vi", trials: "an editor under `cerrojo run`" },
    Need {
        packages: &["python3", "python3-pip"],
        program: "pip3",
        trials: "redis-py, python-redis-lock and kazoo beside ours",
    },
    Need { packages: &["nodejs"], program: "node", trials: "node-redlock beside ours" },
    Need { packages: &["npm"], program: "npm", trials: "node-redlock beside ours" },
    Need {
        packages: &["libcurator-recipes-java"],
        program: "curator-recipes.jar",
        trials: "Curator beside ours",
    },
    Need { packages: &["default-jdk-headless"], program: "javac", trials: "Curator beside ours" },
];

/// Where Debian has a folder for each version of PostgreSQL, with programs that are on nobody's `PATH`.
const POSTGRESQL: &str = "/usr/lib/postgresql";

/// Where Debian has servers and Java's libraries: on the `PATH` of root only, or on nobody's.
const FOLDERS: [&str; 3] = ["/usr/sbin", "/usr/share/zookeeper/bin", "/usr/share/java"];

/// Installs what is missing where that is possible: as root on Debian. Elsewhere says how.
pub(crate) fn install() -> Outcome {
    let missing = missing(NEEDS, &env::var_os("PATH").unwrap_or_default());
    if missing.is_empty() {
        return Ok(());
    }
    println!("{}", list(&missing));
    if !(is_debian() && is_root()) {
        return Err(format!("install what is missing; on Debian, as root:\n{}", spelled(&missing)));
    }
    commands(&missing).iter_mut().try_for_each(process::run)
}

fn missing<'a>(needs: &'a [Need], path: &OsStr) -> Vec<&'a Need> {
    needs.iter().filter(|need| !is_there(path, need.program)).collect()
}

fn is_there(path: &OsStr, program: &str) -> bool {
    env::split_paths(path).chain(off_path()).any(|folder| folder.join(program).is_file())
}

/// Folders beside the `PATH` in which the tests find what they need too.
fn off_path() -> impl Iterator<Item = PathBuf> {
    let versions = fs::read_dir(POSTGRESQL).into_iter().flatten().flatten();
    versions.map(|version| version.path().join("bin")).chain(FOLDERS.map(PathBuf::from))
}

fn list(missing: &[&Need]) -> String {
    let lines = missing.iter().map(|need| format!("missing: {} ({})", need.program, need.trials));
    lines.collect::<Vec<_>>().join("\n")
}

fn commands(missing: &[&Need]) -> [Command; 2] {
    let mut update = Command::new("apt-get");
    update.arg("update");
    let mut install = Command::new("apt-get");
    install.env("DEBIAN_FRONTEND", "noninteractive");
    install.args(["install", "--yes", "--no-install-recommends"]).args(packages(missing));
    [update, install]
}

fn packages(missing: &[&Need]) -> Vec<&'static str> {
    missing.iter().flat_map(|need| need.packages).copied().collect()
}

fn spelled(missing: &[&Need]) -> String {
    let lines = commands(missing).map(|command| format!("  {}\n", process::spelled(&command)));
    lines.concat()
}

fn is_debian() -> bool {
    Path::new("/etc/debian_version").exists()
}

/// Whoever owns our entry in /proc is who we are.
fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|entry| entry.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MADE_UP: Need =
        Need { packages: &["made-up", "made-up-dev"], program: "no-such-program", trials: "none" };
    const SHELL: Need = Need { packages: &["dash"], program: "sh", trials: "all" };

    #[test]
    fn only_what_is_missing_is_installed() {
        let needs = [SHELL, MADE_UP];
        let missing = missing(&needs, &env::var_os("PATH").unwrap());
        assert_eq!(packages(&missing), ["made-up", "made-up-dev"]);
        assert!(spelled(&missing).ends_with("--no-install-recommends made-up made-up-dev\n"));
        assert!(list(&missing).contains("no-such-program"));
    }

    #[test]
    fn without_a_path_all_is_missing() {
        assert_eq!(missing(&[SHELL, MADE_UP], OsStr::new("")).len(), 2);
    }
}
