//! The rules of the house, checked on the sources: who may import whom, who reads time, and what nobody does.
#![allow(missing_docs, unreachable_pub, reason = "a test has no users")]
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "what surprises the scanner fails the test"
)]

#[path = "architecture/paths.rs"]
mod paths;
#[path = "architecture/rules.rs"]
mod rules;
#[path = "architecture/scan.rs"]
mod scan;
#[path = "architecture/tree.rs"]
mod tree;

use rules::Violation;
use tree::Tree;

type Rule = fn(&Tree) -> Vec<Violation>;

/// Each rule of the library, with a file and a text that break it.
const RULES: &[(Rule, &[(&str, &str)])] = &[
    (
        rules::imports,
        &[
            ("name.rs", "use crate::clock::Instant;"),
            ("error.rs", "pub fn owner() -> u8 { crate::rng::id()[0] }"),
            ("owner.rs", "use crate::rng::jitter;"),
            ("validity.rs", "use crate::{clock::{Instant, sleep}};"),
            ("holder.rs", "use super::keeper;"),
            ("fence.rs", "use crate::Locker;"),
            ("spi.rs", "use crate::Guard;"),
            ("spi.rs", "mod inner { use super::super::keeper::serve; }"),
            ("backend/memory.rs", "use crate::keeper::serve;"),
            ("backend/memory.rs", "use crate::LeaseState;"),
            ("backend/memory.rs", "use crate::{locker, queue::Queue};"),
            ("backend/memory.rs", "use super::local::Local;"),
            ("backend/toy/lease.rs", "use crate::backend::memory::Memory;"),
            ("backend/toy.rs", "use crate::*;"),
            ("backend/toy.rs", "use crate::erased::Erased as E;"),
            ("backend/toy.rs", "use crate::connect;"),
            ("guard.rs", "use crate::keeper::Keeper;"),
            ("keeper.rs", "use crate::Locker;"),
            ("locker.rs", "use crate::backend::memory::Memory;"),
            ("keeper.rs", "fn any(_: &crate::backend::memory::Memory) {}"),
            ("clock.rs", "use crate::Ttl;"),
            ("sql.rs", "use crate::rng;"),
            ("fence/postgres.rs", "use crate::backend::postgres::Postgres;"),
        ],
    ),
    (rules::table_is_whole, &[("helpers.rs", ""), ("waker/inner.rs", "")]),
    (
        rules::suite_uses_the_public_api,
        &[
            ("conformance.rs", "use crate::keeper::Keeper;"),
            ("conformance/cases.rs", "use crate::rng;"),
            ("conformance/cases.rs", "use crate::guard::Status;"),
            ("conformance/cases.rs", "use super::super::queue::Queue;"),
            ("conformance/cases.rs", "use crate::{clock::{self, source}};"),
            ("conformance/cases.rs", "use crate::watched::Labels;"),
            ("conformance/cases.rs", "use crate::backend::memory::Memory;"),
            ("conformance/cases.rs", "use crate::*;"),
        ],
    ),
    (
        rules::time_and_randomness_have_one_reader,
        &[
            ("keeper.rs", "use std::time::{Duration, Instant};"),
            ("guard.rs", "fn now() { std::time::SystemTime::now(); }"),
            ("waiter.rs", "use tokio::time::sleep;"),
            ("waiter.rs", "use tokio::{time, sync};"),
            ("backend/memory.rs", "fn f() { rustix::time::clock_gettime(CLOCK); }"),
            ("locker.rs", "fn f() { std::thread::sleep(LONG) }"),
            ("owner.rs", "fn f() -> u8 { rand::random() }"),
            ("clock.rs", "fn f() -> u8 { rand::random() }"),
            ("rng.rs", "fn f() { tokio::time::pause() }"),
            ("conformance/cases.rs", "use std::time::Instant;"),
            ("backend/memory.rs", "use getrandom::fill;"),
        ],
    ),
    (
        rules::local_scripts_read_no_clock,
        &[
            ("backend/local/sql/acquire.sql", "SELECT unixepoch('now');"),
            ("backend/local/store.rs", "const S: &str = r#\"SELECT RandomBlob(16)\"#;"),
        ],
    ),
    (
        rules::no_environment_is_read,
        &[
            ("connect.rs", "fn f() { std::env::var(\"HOME\"); }"),
            ("locker.rs", "use std::env::{self, var_os};"),
            ("backend/local.rs", "fn f() { std::env::home_dir() }"),
            ("backend/memory.rs", "fn f() { env::vars() }"),
        ],
    ),
    (
        rules::nothing_is_printed,
        &[
            ("guard.rs", "fn f() { println!(\"held\") }"),
            ("guard.rs", "fn f() { eprint!(\"held\") }"),
            ("keeper.rs", "fn f() { dbg!(1); }"),
            ("keeper.rs", "fn f() { std::io::stderr().write(b\"lost\"); }"),
        ],
    ),
    (
        rules::no_driver_is_public,
        &[
            (
                "backend/memory.rs",
                "impl Memory { pub fn inner(&self) -> &rusqlite::Connection { &self.0 } }",
            ),
            (
                "backend/memory.rs",
                "use rusqlite::Connection; pub struct Open { pub inner: Connection }",
            ),
            ("backend/memory.rs", "pub use rusqlite::Error;"),
            ("backend/memory.rs", "use redis::Client; pub struct Open(pub Client);"),
        ],
    ),
];

/// Asserts that nothing breaks a rule.
fn assert_clean(found: &[Violation]) {
    let list: Vec<_> = found.iter().map(ToString::to_string).collect();
    assert!(list.is_empty(), "{} broken:\n  {}", list.len(), list.join("\n  "));
}

#[test]
fn the_library_keeps_every_rule() {
    let library = Tree::library();
    let found: Vec<_> = RULES.iter().flat_map(|(rule, _)| rule(&library)).collect();
    assert_clean(&found);
}

#[test]
fn each_rule_catches_what_breaks_it() {
    let library = Tree::library();
    for (rule, breaks) in RULES {
        let before = rule(&library).len();
        for (file, text) in *breaks {
            let found = rule(&library.clone().with(file, text));
            let caught =
                found.len() > before && found.iter().any(|v| v.to_string().starts_with(file));
            assert!(caught, "not caught: {text} in {file}");
        }
    }
}

#[test]
fn what_is_allowed_is_not_caught() {
    let fine = [
        ("owner.rs", "fn f() -> [u8; 16] { crate::rng::id() }"),
        ("validity.rs", "use crate::clock::Instant as I;"),
        (
            "spi.rs",
            "// use crate::keeper::Keeper;\n/* println!() /* rand::random() */ std::env::var */",
        ),
        ("spi.rs", "/// ```\n/// use crate::Locker;\n/// ```\nfn f() {}"),
        (
            "spi.rs",
            "const S: &str = \"crate::keeper \\\" println!()\"; const R: &str = r#\"crate::locker\"#;",
        ),
        ("name.rs", "#[cfg(test)]\nmod more { use crate::Locker; fn f() { println!(); } }"),
        ("name.rs", "#[cfg(test)]\n#[path = \"x.rs\"]\nuse crate::{Locker, Guard};"),
        ("name.rs", "const A: char = '\"'; const B: char = '\\''; fn f<'a>(_: &'a str) {}"),
        ("keeper/tests.rs", "use crate::backend::memory::Memory; fn f() { tokio::time::pause(); }"),
        ("backend/toy/backend.rs", "use super::lease::Lease; use crate::backend::toy::config;"),
        (
            "backend/toy/lease.rs",
            "use crate::{Error, FencedGrant, clock::Instant, rng, spi::Lease};",
        ),
        ("backend/toy.rs", "use redis::Client; impl Toy { pub fn from_client(client: Client) {} }"),
        ("backend/toy.rs", "use redis::Client; pub struct Toy(Client); struct Two { one: Client }"),
        (
            "conformance/cases.rs",
            "use crate::{Locker, LockName, spi::{Backend, Poll}, clock::sleep};",
        ),
        (
            "conformance/cases.rs",
            "use super::Harness; use crate::conformance::faulty::Faulty; fn f() { println!(); }",
        ),
        ("keeper.rs", "fn f() { clock::Instant::now(); let time = Instant::now(); }"),
    ];
    let library = Tree::library();
    for (file, text) in fine {
        let more = library.clone().with(file, text);
        for (rule, _) in RULES {
            let found = rule(&more);
            assert_eq!(found.len(), rule(&library).len(), "caught: {text} in {file}: {found:?}");
        }
    }
}

#[test]
fn the_command_line_names_no_driver() {
    assert_clean(&rules::no_driver_is_named(&Tree::of_crate("cerrojo-cli")));
    assert_clean(&rules::no_driver_is_a_dependency(&tree::manifest("cerrojo-cli")));
}

#[test]
fn a_driver_in_a_program_is_caught() {
    let named = |text| rules::no_driver_is_named(&Tree::library().with("main.rs", text)).len();
    assert_eq!(named("use tokio_postgres::Client; fn f() { redis::cmd() }"), named("") + 2);
    assert_eq!(named("use cerrojo::backend::redis::Redis;"), named(""));
    let manifests = [
        "[dependencies]\nredis = \"1\"",
        "[dependencies.tokio-postgres]\nversion = \"1\"",
        "[target.'cfg(unix)'.build-dependencies]\nrusqlite.workspace = true",
    ];
    for manifest in manifests {
        assert_eq!(rules::no_driver_is_a_dependency(manifest).len(), 1, "{manifest}");
    }
    assert_clean(&rules::no_driver_is_a_dependency(
        "[package]\nname = \"redis\"\n[features]\nredis = []",
    ));
}

#[test]
fn the_testbed_stands_alone() {
    assert_clean(&rules::testbed_stands_alone(&tree::manifest("cerrojo-testbed")));
    assert!(
        !rules::testbed_stands_alone("[dev-dependencies]\ncerrojo = { path = \"..\" }").is_empty()
    );
}

#[test]
fn every_dependency_has_its_reason() {
    let reasons = tree::workspace_file("docs/decisions/0001-dependencies.md");
    let found = rules::dependencies_have_reasons(&tree::workspace_file("Cargo.toml"), &reasons);
    assert_clean(&found);
    let manifest = "[workspace.dependencies]\none = \"1\"\ncerrojo = { path = \".\" }";
    assert_clean(&rules::dependencies_have_reasons(manifest, "| `one` | why |"));
    assert_eq!(rules::dependencies_have_reasons(manifest, "| `two` | why |").len(), 2);
}

#[test]
fn the_scanner_leaves_only_code() {
    let source = "a /* b /* c */ d */ \"e\" // f\n'g' '\\'' 'static br##\"h\"#\"## r#fn #[cfg(test)] mod t { i } j";
    assert_eq!(scan::spelled(source), "a e static h\"# r # fn j");
}
