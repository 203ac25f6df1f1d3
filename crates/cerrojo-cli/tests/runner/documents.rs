//! What docs/runner.md shows works.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use crate::{
    Proof,
    world::{Running, World},
};

pub(crate) const TRIALS: &[(&str, Proof)] = &[
    ("the_pages_shell_parts_run", shell_parts),
    ("the_pages_crontab_lines_run", crontab),
    ("the_pages_units_are_well_formed_and_run", units),
    ("the_pages_manifests_are_well_formed_and_run", manifests),
];

const CERROJO: &str = env!("CARGO_BIN_EXE_cerrojo");

/// The blocks of the page that are marked so.
fn blocks(mark: &str) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/runner.md");
    let page = fs::read_to_string(page).unwrap();
    let fence = format!("\n```{mark}\n");
    let blocks = page.split(&fence).skip(1).map(|rest| rest.split("\n```").next().unwrap());
    let blocks: Vec<_> = blocks.map(|block| format!("{block}\n")).collect();
    assert!(!blocks.is_empty(), "no block is marked `{mark}`");
    blocks
}

/// A shell that finds the binary by its name, in a folder with a job.
fn shell(script: &str) {
    let world = World::new();
    fs::write(world.path("report.sh"), "#!/bin/sh\necho the report\n").unwrap();
    fs::set_permissions(world.path("report.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    let folder = Path::new(CERROJO).parent().unwrap().display();
    let mut command = world.prepare(Command::new("sh"));
    command.env("PATH", format!("{folder}:{}", std::env::var("PATH").unwrap()));
    command.args(["-euc", script]);
    let run = Running::start(command).finish();
    assert_eq!(run.code(), 0, "{script}\n{run:?}");
}

/// The same command line with a job that is there on every machine.
fn dry(line: &str) -> String {
    let (run, _job) = line.split_once(" -- ").unwrap();
    format!("{run} -- true")
}

fn shell_parts() {
    blocks("sh tested").iter().for_each(|script| shell(script));
}

fn crontab() {
    for block in blocks("crontab") {
        let lines = block.lines().filter(|line| line.contains("cerrojo run"));
        for line in lines {
            let command = line.split_whitespace().skip(5).collect::<Vec<_>>().join(" ");
            shell(&dry(&command));
        }
    }
}

fn units() {
    for block in blocks("ini") {
        block.lines().for_each(assert_unit_line);
        let commands = block.lines().filter_map(|line| line.strip_prefix("ExecStart=/usr/bin/"));
        commands.for_each(|command| shell(&dry(command)));
    }
}

fn assert_unit_line(line: &str) {
    let is_section = line.starts_with('[') && line.ends_with(']');
    let is_setting = line.split_once('=').is_some_and(|(name, value)| {
        name.bytes().all(|byte| byte.is_ascii_alphabetic()) && !value.is_empty()
    });
    assert!(line.is_empty() || line.starts_with('#') || is_section || is_setting, "{line}");
}

fn manifests() {
    for block in blocks("yaml") {
        assert!(block.starts_with("apiVersion: ") && block.contains("\nkind: "), "{block}");
        block.lines().for_each(assert_manifest_line);
        block.lines().filter_map(|line| line.trim().strip_prefix("command: ")).for_each(run_words);
    }
}

/// The page keeps to a part of YAML that can be checked line by line.
fn assert_manifest_line(line: &str) {
    let text = line.trim_start();
    let indent = line.len() - text.len();
    let text = text.strip_prefix("- ").unwrap_or(text);
    let is_pair = text.ends_with(':') || text.contains(": ");
    assert!(indent.is_multiple_of(2) && is_pair && !line.contains('\t'), "{line}");
}

fn run_words(array: &str) {
    let words: Vec<String> = serde_json::from_str(array).unwrap();
    if words[0] == "cerrojo" {
        shell(&dry(&words.join(" ")));
    }
}
