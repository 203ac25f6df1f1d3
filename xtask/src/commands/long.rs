//! `cargo xtask long`

use crate::{Outcome, needs, process};

/// The variable by which a test takes its long form.
const LONG: &str = "CERROJO_TEST_LONG";

/// The tests that have a long form: package and target.
const TARGETS: &[(&str, &str)] = &[
    ("cerrojo", "fenced_file"),
    ("cerrojo", "local_kills"),
    ("cerrojo", "local_power_loss"),
    ("cerrojo", "local_races"),
    ("cerrojo", "postgres_grants"),
    ("cerrojo", "postgres_guarded"),
    ("cerrojo", "redis_faults"),
    ("cerrojo", "redlock_faults"),
];

/// Runs the long forms, minutes each, one after the other, up to the first that fails.
pub(crate) fn run(args: &[String]) -> Outcome {
    needs::install()?;
    TARGETS.iter().try_for_each(|(package, target)| {
        let words = format!("test --release --all-features -p {package} --test {target} --");
        let mut command = process::cargo(&words);
        process::run(command.args(args).env(LONG, "1").env("CERROJO_TEST_REQUIRE", "1"))
    })
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        fs,
        path::{Path, PathBuf},
    };

    use super::*;

    #[test]
    fn every_test_with_a_long_form_is_listed() {
        let listed = TARGETS.iter().map(|(package, target)| format!("{package}/{target}"));
        assert_eq!(listed.collect::<BTreeSet<_>>(), with_a_long_form());
    }

    /// What a source with a long form has: the variable, or `rounds(SHORT, LONG)`, which reads it.
    const MARKS: &[&str] = &[LONG, "rounds("];

    /// Every `PACKAGE/TARGET` that has a long form.
    fn with_a_long_form() -> BTreeSet<String> {
        let packages = fs::read_dir(process::root().join("crates")).unwrap();
        packages.flat_map(|package| long_targets(&package.unwrap().path())).collect()
    }

    fn long_targets(package: &Path) -> Vec<String> {
        let targets = entries(&package.join("tests")).into_iter();
        let long = targets.filter(|target| sources(target).iter().any(|file| has_long_form(file)));
        let stem = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
        long.map(|target| format!("{}/{}", stem(package), stem(&target))).collect()
    }

    /// The files of a test target: itself, or those beside its `main.rs`.
    fn sources(target: &Path) -> Vec<PathBuf> {
        if target.is_file() {
            return vec![target.to_owned()];
        }
        if target.join("main.rs").exists() { entries(target) } else { Vec::new() }
    }

    fn entries(folder: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    fn has_long_form(file: &Path) -> bool {
        let text = fs::read_to_string(file).unwrap_or_default();
        MARKS.iter().any(|mark| text.contains(mark))
    }
}
