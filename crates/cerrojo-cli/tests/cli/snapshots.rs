//! What people and programs read, word by word.
//!
//! The files are in tests/snapshots; `CERROJO_UPDATE_SNAPSHOTS=1` writes them anew.

use std::{fmt::Write, fs, path::PathBuf};

use crate::world::World;

#[test]
fn help() {
    let world = World::new();
    check(&world, "help", &["--help"]);
    for command in ["run", "ls", "show", "break"] {
        check(&world, &format!("help_{command}"), &[command, "--help"]);
    }
}

#[test]
fn usage_errors() {
    let world = World::new();
    check(&world, "usage_no_command", &[]);
    check(&world, "usage_nothing_to_run", &["run", "x"]);
    check(&world, "usage_ttl", &["run", "x", "--ttl", "9ms", "--", "true"]);
    check(&world, "usage_duration", &["run", "x", "--wait", "soon", "--", "true"]);
    check(&world, "usage_name", &["show", "two\nlines"]);
    check(&world, "usage_break", &["break", "x"]);
    check(&world, "usage_break_now", &["break", "x", "--now"]);
    check(&world, "usage_break_json", &["--json", "break", "x"]);
    check(&world, "usage_ttl_json", &["--json", "run", "x", "--ttl", "9ms", "--", "true"]);
}

#[test]
fn errors() {
    let world = World::new();
    check(&world, "error_store", &["--store", "pigeon://user:secret@coop", "ls"]);
    check(&world, "error_store_json", &["--store", "pigeon://user:secret@coop", "ls", "--json"]);
    check(&world, "error_not_found", &["run", "x", "--", "./absent"]);
    check(&world, "error_not_found_json", &["--json", "run", "x", "--", "./absent"]);
}

#[test]
fn a_free_lock() {
    let world = World::new();
    check(&world, "free_show", &["show", "x"]);
    check(&world, "free_show_json", &["show", "x", "--json"]);
    check(&world, "free_break", &["break", "x", "--yes"]);
    check(&world, "free_ls", &["ls"]);
}

#[test]
fn a_held_lock() {
    let world = World::new();
    let _holder = world.hold("nightly-report");
    check(&world, "held_show", &["show", "nightly-report"]);
    check(&world, "held_show_json", &["show", "nightly-report", "--json"]);
    check(&world, "held_ls", &["ls"]);
    check(&world, "held_ls_json", &["ls", "nightly", "--json"]);
    check(&world, "contended", &["run", "nightly-report", "-n", "--", "true"]);
    check(&world, "contended_json", &["--json", "run", "nightly-report", "-n", "--", "true"]);
    check(&world, "broken", &["break", "nightly-report", "--yes"]);
    check(&world, "broken_show", &["show", "nightly-report"]);
    check(&world, "broken_now_json", &["break", "nightly-report", "--yes", "--now", "--json"]);
}

#[test]
fn a_lock_broken_now() {
    let world = World::new();
    let _holder = world.hold("nightly-report");
    check(&world, "broken_now", &["break", "nightly-report", "--yes", "--now"]);
}

#[track_caller]
fn check(world: &World, name: &str, arguments: &[&str]) {
    let run = world.run(arguments);
    let mut text = format!("$ cerrojo {}\n", arguments.join(" ").escape_debug());
    write!(text, "exit {}\n--- stdout\n{}--- stderr\n{}", run.code(), run.stdout, run.stderr)
        .unwrap();
    let text = mask(&text);
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/snapshots")
        .join(format!("{name}.txt"));
    if std::env::var_os("CERROJO_UPDATE_SNAPSHOTS").is_some() {
        fs::write(&file, &text).unwrap();
    }
    let wanted = fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(text, wanted, "{name}: CERROJO_UPDATE_SNAPSHOTS=1 writes the snapshots anew");
}

/// Hides what differs from run to run: who, where and when.
fn mask(text: &str) -> String {
    let digit = |c: char| c.is_ascii_digit();
    let decimal = |c: char| c.is_ascii_digit() || c == '.';
    let word = |c: char| c != '"' && !c.is_whitespace();
    let mut text = text.to_owned();
    for before in ["pid ", "\"pid\":", "_ms\":", "token ", "token=", "\"token\":\""] {
        text = mask_after(&text, before, digit);
    }
    for before in [" for ", "ends in ", "free in "] {
        text = mask_after(&text, before, decimal);
    }
    for before in ["held by ", "\"host\":\"", "\"owner\":\"", "owner=\""] {
        text = mask_after(&text, before, word);
    }
    text
}

/// Replaces by `#` what follows `before` for as long as it is of that kind.
fn mask_after(text: &str, before: &str, is_kind: impl Fn(char) -> bool) -> String {
    let mut parts = text.split(before);
    let mut masked = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(&is_kind);
        masked += before;
        masked += if rest.len() < part.len() { "#" } else { "" };
        masked += rest;
    }
    masked
}

#[test]
fn masks_hide_values_and_nothing_else() {
    assert_eq!(mask("held by box pid 12 for 1.5 s, token 9"), "held by # pid # for # s, token #");
    assert_eq!(mask("for more than pid and 128"), "for more than pid and 128");
    assert_eq!(
        mask(r#"{"host":"a","owner":"0f","x_ms":5}"#),
        r##"{"host":"#","owner":"#","x_ms":#}"##
    );
}
