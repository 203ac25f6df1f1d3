//! What people and programs read, word by word.
//!
//! The files are in tests/snapshots; `CERROJO_UPDATE_SNAPSHOTS=1` writes them anew.

use std::{fmt::Write, fs, path::PathBuf};

use crate::{
    kept::Keeper,
    scripts::acquire,
    world::{Finished, World, answer, as_owner},
};

#[test]
fn the_whole_reference() {
    let world = World::new();
    compare("reference_help", &pages(&world, &[]));
    world.run(&["man", "--out", "."]).assert_code(0);
    let mut pages = files(&world, ".1");
    pages.sort();
    let page = |name: &String| format!("=== {name}\n{}\n", world.read(name));
    compare("reference_man", &pages.iter().map(page).collect::<String>());
}

/// The help of a command, and then that of each below it.
fn pages(world: &World, command: &[&str]) -> String {
    let help = world.run(&[command, &["--help"]].concat());
    help.assert_code(0);
    let mut text = format!("=== {}\n{}\n", [&["cerrojo"], command].concat().join(" "), help.stdout);
    for below in commands(&help.stdout) {
        text += &pages(world, &[command, &[below]].concat());
    }
    text
}

/// What a help page lists as commands; `help` itself is everywhere and of clap's making.
fn commands(help: &str) -> impl Iterator<Item = &str> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    // A line that goes on is indented further.
    let names = lines
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help")
}

fn files(world: &World, ending: &str) -> Vec<String> {
    let names = fs::read_dir(world.path(".")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(ending)).collect()
}

#[test]
fn usage_errors() {
    let world = World::new();
    check(&world, "usage_no_command", &[]);
    check(&world, "usage_no_dashes", &["run", "x", "true"]);
    check(&world, "usage_grace", &["run", "x", "--grace", "11s", "--", "true"]);
    check(&world, "usage_ttl", &["run", "x", "--ttl", "9ms", "--", "true"]);
    check(&world, "usage_duration", &["run", "x", "--wait", "soon", "--", "true"]);
    check(&world, "usage_name", &["show", "two\nlines"]);
    check(&world, "usage_break", &["break", "x"]);
    check(&world, "usage_break_now", &["break", "x", "--now"]);
    check(&world, "usage_break_json", &["--json", "break", "x"]);
    check(&world, "usage_owner", &["release", "x", "--owner", "57b120f3"]);
    check(&world, "usage_owner_json", &["renew", "x", "--owner", "57b120f3", "--json"]);
    check(&world, "usage_no_owner", &["renew", "x"]);
    check(&world, "usage_pid", &["acquire", "x", "--pid", "0"]);
    check(&world, "usage_pid_gone", &["acquire", "x", "--pid", "2147483647"]);
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
fn scripts() {
    let world = World::new();
    let owner = "0".repeat(32);
    let own = std::process::id().to_string();
    check(&world, "acquired", &["acquire", "nightly-report"]);
    check(&world, "acquire_contended", &["acquire", "nightly-report", "-n"]);
    check(
        &world,
        "acquire_contended_json",
        &["--json", "acquire", "nightly-report", "-n", "-E", "9"],
    );
    let kept = world.run(&["acquire", "kept", "--pid", &own]);
    let _keeper = Keeper::of(&answer(&kept));
    show("acquired_for_pid", &format!("acquire kept --pid {own}"), &kept);
    check(&world, "acquire_contended_for_pid", &["acquire", "kept", "-n", "--pid", &own]);
    check(&world, "renew_not_held", &["renew", "nightly-report", "--owner", &owner]);
    check(&world, "release_not_held", &["release", "nightly-report", "--owner", &owner]);
    check(&world, "release_not_held_json", &["release", "x", "--owner", &owner, "--json"]);
    check(&world, "store_init", &["store", "init"]);
    check(&world, "store_init_json", &["store", "init", "--json"]);
    check(&world, "store_init_grant", &["store", "init", "--grant", "app"]);
    check(&world, "prune", &["prune"]);
    check(&world, "prune_json", &["prune", "--json"]);
    let (_, owner) = acquire(&world, &["x"]);
    show("renewed", "renew x", &as_owner(&world, &owner, &["renew", "x"]));
    show("released", "release x", &as_owner(&world, &owner, &["release", "x"]));
    let (_, owner) = acquire(&world, &["x"]);
    show(
        "released_json",
        "release x --json",
        &as_owner(&world, &owner, &["release", "x", "--json"]),
    );
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
pub(crate) fn check(world: &World, name: &str, arguments: &[&str]) {
    show(name, &arguments.join(" "), &world.run(arguments));
}

/// All that a run has shown.
#[track_caller]
fn show(name: &str, line: &str, run: &Finished) {
    let mut text = format!("$ cerrojo {}\n", line.escape_debug());
    write!(text, "exit {}\n--- stdout\n{}--- stderr\n{}", run.code(), run.stdout, run.stderr)
        .unwrap();
    compare(name, &text);
}

#[track_caller]
fn compare(name: &str, text: &str) {
    let text = mask(text);
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
    for before in ["pid ", "--pid ", "pid\":", "_ms\":", "token ", "token=", "\"token\":\""] {
        text = mask_after(&text, before, digit);
    }
    for before in [" for ", "ends in ", "free in "] {
        text = mask_after(&text, before, decimal);
    }
    for before in ["held by ", "\"host\":\"", "\"owner\":\"", "owner=\"", "\"store_id\":\""] {
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
