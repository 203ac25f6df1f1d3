//! The password in CERROJO_STORE stays there.

use std::process::Command;

use crate::{
    Proof,
    servers::Servers,
    world::{Finished, Running, World, eventually},
};

pub(crate) const TRIALS: &[(&str, Proof)] = &[
    ("a_command_does_not_get_the_password", a_command_does_not_get_the_password),
    ("no_output_shows_the_password", no_output_shows_the_password),
    ("a_wrong_password_is_not_repeated", a_wrong_password_is_not_repeated),
    ("a_url_that_is_wrong_is_not_repeated", a_url_that_is_wrong_is_not_repeated),
    ("no_argument_of_ours_is_the_password", no_argument_of_ours_is_the_password),
];

/// With everything logged.
fn traced(world: &World, arguments: &[&str]) -> Finished {
    let mut command = world.command();
    command.args(arguments).env("CERROJO_LOG", "trace");
    Running::start(command).finish()
}

fn a_command_does_not_get_the_password(servers: &Servers) {
    let site = servers.store();
    let run = site.world.run_script(&["x"], "env; tr '\\0' '\\n' < /proc/self/environ");
    run.assert_code(0);
    assert!(run.stdout.contains("CERROJO_LOCK=x"), "{run:?}");
    assert!(!run.stdout.contains(site.server.password()), "{run:?}");
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
        &["prune"],
        &["store", "init"],
        &["store", "init", "--print"],
        &["--help"],
        &["no-command"],
    ];
    for arguments in cases {
        let run = traced(&site.world, arguments);
        let said = run.stdout.clone() + &run.stderr;
        assert!(!said.contains(site.server.password()), "{arguments:?}: {run:?}");
    }
}

fn a_wrong_password_is_not_repeated(servers: &Servers) {
    let site = servers.store();
    let store = site.world.store().replace(site.server.password(), "guessed-wrong");
    let world = World::on(store);
    for arguments in
        [&["ls"][..], &["ls", "--json"], &["run", "x", "--", "true"], &["store", "init"]]
    {
        let run = traced(&world, arguments);
        run.assert_code(69);
        assert!(run.stderr.contains("password or pg_hba.conf is wrong"), "{run:?}");
        assert!(!run.stderr.contains("guessed-wrong"), "{run:?}");
    }
}

fn a_url_that_is_wrong_is_not_repeated(_: &Servers) {
    for store in [
        "postgres://ann:hush-hush@h/app?pool=3",
        "postgres://ann:hush-hush@h:port/app",
        "postgres:host=h password='hush-hush",
        "postgres:host=h password=hush-hush sslmode=perhaps",
        "postgres:hush-hush",
    ] {
        for arguments in [&["ls"][..], &["store", "init"], &["store", "init", "--print"]] {
            let run = traced(&World::on(store.to_owned()), arguments);
            run.assert_code(69);
            assert!(!run.stderr.contains("hush-hush"), "{run:?}");
        }
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
    let processes = Running::start(site.world.prepare(all_arguments())).finish().stdout;
    assert!(processes.contains("--guardian-of x"), "{processes}");
    assert!(processes.contains("--keeper-of kept"), "{processes}");
    assert!(!processes.contains(site.server.password()), "{processes}");
    site.world.let_go();
    holder.finish().assert_code(0);
    waiter.finish().assert_code(0);
    site.world.run(&["break", "kept", "--yes", "--now"]).assert_code(0);
}

fn all_arguments() -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '; true"]);
    command
}
