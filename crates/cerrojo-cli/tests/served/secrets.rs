//! The password in CERROJO_STORE stays there.

use std::{
    fs::{self, DirEntry},
    io,
};

use super::{Trials, traced};
use crate::{
    servers::{Servers, WRONG_PASSWORD},
    world::{World, eventually},
};

pub(crate) const TRIALS: Trials = &[
    ("a_command_does_not_get_the_password", a_command_does_not_get_the_password),
    ("no_output_shows_the_password", no_output_shows_the_password),
    ("a_wrong_password_is_not_repeated", a_wrong_password_is_not_repeated),
    ("no_argument_of_ours_is_the_password", no_argument_of_ours_is_the_password),
];

fn a_command_does_not_get_the_password(servers: &Servers) {
    let site = servers.store();
    let run = site.world.run_script(&["x"], "env; tr '\\0' '\\n' < /proc/self/environ");
    run.assert_code(0);
    assert!(run.stdout.contains("CERROJO_LOCK=x"), "{run:?}");
    assert!(!run.stdout.contains(site.password()), "{run:?}");
}

fn no_output_shows_the_password(servers: &Servers) {
    let site = servers.store();
    let cases: &[&[&str]] = &[
        &["run", "x", "--", "true"],
        &["acquire", "x", "--ttl", "1m"],
        &["run", "x", "-n", "--json", "--", "true"],
        &["acquire", "x", "-w", "100ms"],
        &["ls"],
        &["show", "x", "--json"],
        &["break", "x", "--yes", "--now"],
        &["run", "x", "--fenced", "--", "true"],
        &["prune"],
        &["store", "init"],
        &["store", "init", "--print"],
        &["--help"],
        &["no-command"],
    ];
    for arguments in cases {
        let run = traced(&site.world, arguments);
        let said = run.stdout.clone() + &run.stderr;
        assert!(!said.contains(site.password()), "{arguments:?}: {run:?}");
    }
}

fn a_wrong_password_is_not_repeated(servers: &Servers) {
    let site = servers.store();
    let world = World::on(site.world.store().replace(site.password(), "guessed-wrong"));
    for arguments in
        [&["ls"][..], &["ls", "--json"], &["run", "x", "--", "true"], &["store", "init"]]
    {
        let run = traced(&world, arguments);
        run.assert_code(69);
        assert!(run.stderr.contains(WRONG_PASSWORD), "{run:?}");
        assert!(!run.stderr.contains("guessed-wrong"), "{run:?}");
    }
}

/// Of the runner, the guardian and the gate, while one waits and one holds, and of a keeper.
fn no_argument_of_ours_is_the_password(servers: &Servers) {
    let site = servers.store();
    let own = std::process::id().to_string();
    site.world.run(&["acquire", "kept", "--pid", &own]).assert_code(0);
    let holder = site.world.hold("x");
    let waiter = site.world.start_script(&["x"], "true");
    eventually("it waits", || !waiter.said().is_empty());
    let processes = our_arguments();
    assert!(processes.contains("--guardian-of x"), "{processes}");
    assert!(processes.contains("--keeper-of kept"), "{processes}");
    assert!(!processes.contains(site.password()), "{processes}");
    site.world.let_go();
    holder.finish().assert_code(0);
    waiter.finish().assert_code(0);
    site.world.run(&["break", "kept", "--yes", "--now"]).assert_code(0);
}

/// The arguments of each process of ours.
fn our_arguments() -> String {
    let read = |entry: io::Result<DirEntry>| fs::read(entry.ok()?.path().join("cmdline")).ok();
    let all = fs::read_dir("/proc").unwrap().filter_map(read);
    let all = all.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    all.filter(|line| line.contains("cerrojo")).collect::<Vec<_>>().join("\n")
}
