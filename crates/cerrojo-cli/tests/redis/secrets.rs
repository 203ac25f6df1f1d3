//! The password in CERROJO_STORE stays there.

use crate::{
    PASSWORD, Proof, started, url,
    world::{Finished, Running, World},
};

pub(crate) const TRIALS: &[(&str, Proof)] = &[
    ("a_command_does_not_get_the_password", a_command_does_not_get_the_password),
    ("no_output_shows_the_password", no_output_shows_the_password),
    ("a_wrong_password_is_not_repeated", a_wrong_password_is_not_repeated),
    ("no_argument_of_ours_is_the_password", no_argument_of_ours_is_the_password),
];

/// With everything logged.
fn traced(world: &World, arguments: &[&str]) -> Finished {
    let mut command = world.command();
    command.args(arguments).env("CERROJO_LOG", "trace");
    Running::start(command).finish()
}

fn a_command_does_not_get_the_password() {
    let (_server, world) = started();
    let run = world.run_script(&["x"], "env; tr '\\0' '\\n' < /proc/self/environ");
    run.assert_code(0);
    assert!(run.stdout.contains("CERROJO_LOCK=x"), "{run:?}");
    assert!(!run.stdout.contains(PASSWORD), "{run:?}");
}

fn no_output_shows_the_password() {
    let (_server, world) = started();
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
        &["--help"],
        &["no-command"],
    ];
    for arguments in cases {
        let run = traced(&world, arguments);
        assert!(!(run.stdout.clone() + &run.stderr).contains(PASSWORD), "{arguments:?}: {run:?}");
    }
}

fn a_wrong_password_is_not_repeated() {
    let (server, _) = started();
    let world = World::on(url(&server, "guessed-wrong"));
    for arguments in [&["ls"][..], &["ls", "--json"], &["run", "x", "--", "true"]] {
        let run = traced(&world, arguments);
        run.assert_code(69);
        assert!(run.stderr.contains("user or password is wrong"), "{run:?}");
        assert!(!run.stderr.contains("guessed-wrong"), "{run:?}");
    }
}

/// Of the runner, the guardian and the gate, while one waits and one holds.
fn no_argument_of_ours_is_the_password() {
    let (_server, world) = started();
    let holder = world.hold("x");
    let waiter = world.start_script(&["x"], "true");
    crate::world::eventually("it waits", || !waiter.said().is_empty());
    let processes = Running::start(world.prepare(all_arguments())).finish().stdout;
    assert!(processes.contains("--guardian-of x"), "{processes}");
    assert!(!processes.contains(PASSWORD), "{processes}");
    world.let_go();
    holder.finish().assert_code(0);
    waiter.finish().assert_code(0);
}

fn all_arguments() -> std::process::Command {
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '; true"]);
    command
}
