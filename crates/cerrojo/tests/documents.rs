//! The documents say what the tests prove.
#![allow(clippy::unwrap_used)] // a test may stop where it stands

use std::{fs, path::Path};

/// The sources in which a name in the documents must be found.
fn sources() -> String {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut text = String::new();
    for folder in ["src", "tests", "examples"] {
        read_all(&crates.join(folder), &mut text);
    }
    text
}

fn read_all(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_all(&path, text);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            text.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

fn guarantees() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guarantees.md"))
        .unwrap()
}

/// What a promise names as its proof: the words in backticks between its last parentheses.
fn proofs(promise: &str) -> Vec<&str> {
    let Some((_, proof)) = promise.rsplit_once(" (") else { return vec![] };
    proof.split('`').skip(1).step_by(2).collect()
}

/// What is wrong with the proofs of one promise.
fn faults(promise: &str, sources: &str) -> Vec<String> {
    let proofs = proofs(promise);
    if proofs.is_empty() {
        return vec![format!("no proof: {promise}")];
    }
    let missing = proofs.into_iter().filter(|proof| !exists(proof, sources));
    missing.map(|proof| format!("`{proof}` is no test: {promise}")).collect()
}

/// A function, also one that is imported by another name, or the name under which a trial runs.
fn exists(proof: &str, sources: &str) -> bool {
    match proof {
        "compile_fail" | "token.rs" => true,
        file if file.ends_with(".rs") => Path::new(env!("CARGO_MANIFEST_DIR")).join(file).exists(),
        test => [format!("fn {test}"), format!(" as {test}"), format!("\"{test}\"")]
            .iter()
            .any(|name| sources.contains(name)),
    }
}

#[test]
fn every_guarantee_names_a_test_that_exists() {
    let (guarantees, sources) = (guarantees(), sources());
    let promises: Vec<_> = guarantees.lines().filter(|line| line.starts_with("* ")).collect();
    assert!(promises.len() > 20, "the page has another form: {} promises found", promises.len());
    let faults: Vec<_> = promises.iter().flat_map(|promise| faults(promise, &sources)).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn rights(text: &str) -> Vec<&str> {
    text.split_whitespace().filter_map(|word| word.strip_prefix('+')).collect()
}

#[test]
fn the_rights_on_the_page_of_redis_are_those_that_the_suite_has() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(own.join("../../docs/backends/redis.md")).unwrap();
    let suite = fs::read_to_string(own.join("tests/conformance/redis.rs")).unwrap();
    let (_, page) = page.split_once("\nuser ").unwrap();
    let (_, suite) = suite.split_once("const RIGHTS").unwrap();
    let (page, suite) = (page.split("```").next().unwrap(), suite.split(';').next().unwrap());
    assert_eq!(rights(page), rights(&suite.replace('"', " ")));
}

#[test]
fn a_promise_without_proof_is_found() {
    assert_eq!(faults("* All is well.", "").len(), 1);
    assert_eq!(faults("* All is well. (`no_such_test`)", "fn another").len(), 1);
    assert!(faults("* All is well. (`a_test`)", "fn a_test()").is_empty());
    assert!(faults("* All is well. (`a_test`)", "use shared::test as a_test;").is_empty());
    assert!(faults("* All is well. (`a_test`)", "trial(\"a_test\", proof)").is_empty());
}
