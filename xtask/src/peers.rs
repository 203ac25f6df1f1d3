//! The lock libraries that tests and comparisons run beside ours as programs of their own, in the versions that files pin.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{Outcome, process};

/// What pins the versions.
const PINS: [&str; 3] = ["requirements.txt", "package.json", "package-lock.json"];

/// Installs them into `target/peers`, unless just these versions are there already.
pub(crate) fn install() -> Outcome {
    let pins = process::root().join("crates/cerrojo-bench/peers");
    let place = process::root().join("target/peers");
    let (stamp, wanted) = (place.join("installed"), pinned(&pins)?);
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    clear(&place)?;
    process::run(&mut python(&pins, &place))?;
    process::run(&mut node(&pins, &place)?)?;
    fs::write(&stamp, wanted).map_err(|e| said(&stamp, &e))
}

/// Builds those in Rust that are programs of their own.
pub(crate) fn build() -> Outcome {
    let manifest = "--manifest-path crates/cerrojo-bench/peers/distributed-lock/Cargo.toml";
    let words = format!("build --release --locked {manifest} --target-dir target/peers/rust");
    process::run(&mut process::cargo(&words))
}

fn pinned(pins: &Path) -> Result<String, String> {
    let texts = PINS.map(|file| read(&pins.join(file)));
    texts.into_iter().collect()
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|e| said(file, &e))
}

/// Other versions must not shine through.
fn clear(place: &Path) -> Outcome {
    if place.exists() {
        fs::remove_dir_all(place).map_err(|e| said(place, &e))?;
    }
    fs::create_dir_all(place).map_err(|e| said(place, &e))
}

fn python(pins: &Path, place: &Path) -> Command {
    let mut command = Command::new("python3");
    command.args(["-m", "pip", "install", "--quiet", "--no-input", "--no-deps", "--no-compile"]);
    command.arg("--root-user-action=ignore").arg("--disable-pip-version-check");
    command.arg("--target").arg(place.join("python"));
    command.arg("--requirement").arg(pins.join("requirements.txt"));
    command
}

/// The packages must stand beside the files that name them, so those are copied.
fn node(pins: &Path, place: &Path) -> Result<Command, String> {
    let folder = place.join("node");
    fs::create_dir_all(&folder).map_err(|e| said(&folder, &e))?;
    for file in ["package.json", "package-lock.json"] {
        let copy: PathBuf = folder.join(file);
        fs::copy(pins.join(file), &copy).map_err(|e| said(&copy, &e))?;
    }
    let mut command = Command::new("npm");
    command.args(["ci", "--no-audit", "--no-fund", "--ignore-scripts", "--omit=dev", "--prefix"]);
    command.arg(&folder);
    Ok(command)
}

fn said(path: &Path, why: &dyn std::fmt::Display) -> String {
    format!("{}: {why}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_is_pinned() {
        let pins = process::root().join("crates/cerrojo-bench/peers");
        let python = read(&pins.join("requirements.txt")).unwrap();
        assert!(python.lines().count() > 0 && python.lines().all(|line| line.contains("==")));
        let node = read(&pins.join("package.json")).unwrap();
        assert!(!node.contains(['^', '~', '*', '>']), "{node}");
    }

    #[test]
    fn a_pinned_version_says_nothing_of_where_it_comes_from() {
        let lock = read(&process::root().join("crates/cerrojo-bench/peers/package-lock.json"));
        assert!(!lock.unwrap().contains("://"));
    }
}
