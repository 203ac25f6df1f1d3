//! `cargo xtask long`

use crate::{Outcome, needs, process};

/// The variable by which a test takes its long form.
const LONG: &str = "CERROJO_TEST_LONG";

/// The tests that have a long form: package and target.
const TARGETS: &[(&str, &str)] = &[];

/// Runs the long forms, minutes each, one after the other, up to the first that fails.
pub(crate) fn run(args: &[String]) -> Outcome {
    needs::install()?;
    TARGETS.iter().try_for_each(|(package, target)| {
        let words = format!("test --release --all-features -p {package} --test {target} --");
        process::run(
            process::cargo(&words)
                .args(args)
                .env(LONG, "1")
                .env("CERROJO_TEST_REQUIRE", "1"),
        )
    })
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    #[test]
    fn every_test_with_a_long_form_is_listed() {
        let listed = TARGETS
            .iter()
            .map(|(package, target)| format!("{package}/{target}"));
        assert_eq!(listed.collect::<BTreeSet<_>>(), with_a_long_form());
    }

    /// Every `PACKAGE/TARGET` whose source names the variable.
    fn with_a_long_form() -> BTreeSet<String> {
        let packages = fs::read_dir(process::root().join("crates")).unwrap();
        packages
            .flat_map(|package| targets(&package.unwrap().path()))
            .collect()
    }

    fn targets(package: &Path) -> Vec<String> {
        let Ok(tests) = fs::read_dir(package.join("tests")) else {
            return Vec::new();
        };
        let files = tests.map(|file| file.unwrap().path());
        let long =
            files.filter(|file| fs::read_to_string(file).is_ok_and(|text| text.contains(LONG)));
        let package = package.file_name().unwrap().to_str().unwrap();
        long.map(|file| format!("{package}/{}", file.file_stem().unwrap().to_str().unwrap()))
            .collect()
    }
}
