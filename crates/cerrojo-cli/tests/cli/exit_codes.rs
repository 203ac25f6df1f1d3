//! Each exit code, and what leads to it.

use std::{fs, os::unix::fs::PermissionsExt, process::Stdio};

use crate::world::{Running, World};

#[test]
fn the_commands_own_code_is_passed_on() {
    let world = World::new();
    for code in [0, 1, 7, 64, 255] {
        world.run_script(&["x"], &format!("exit {code}")).assert_code(code);
    }
}

#[test]
fn a_command_ended_by_a_signal_is_128_and_its_number() {
    let world = World::new();
    for (signal, code) in [("TERM", 143), ("KILL", 137), ("USR1", 138)] {
        world.run_script(&["x"], &format!("kill -{signal} $$")).assert_code(code);
    }
}

#[test]
fn a_command_that_does_not_start_is_126_or_127_and_frees_the_lock() {
    let world = World::new();
    fs::write(world.path("no-program"), "text").unwrap();
    fs::set_permissions(world.path("no-program"), fs::Permissions::from_mode(0o644)).unwrap();
    let cases =
        [("./no-program", 126), (".", 126), ("no-such-program-at-all", 127), ("./absent", 127)];
    for (program, code) in cases {
        let run = world.run(&["run", "x", "--", program]);
        run.assert_code(code);
        assert!(run.stderr.contains(program), "{run:?}");
        world.run(&["show", "x"]).assert_code(1);
    }
}

#[test]
fn usage_errors_are_64_and_touch_no_store() {
    let world = World::new();
    let too_long = "x".repeat(513);
    let cases: &[&[&str]] = &[
        &[],
        &["frobnicate"],
        &["run"],
        &["run", "x", "true"],
        &["run", "x", "-c", "true", "--", "true"],
        &["run", "x", "--ttl", "30s", "--grace", "11s", "--", "true"],
        &["run", "x", "--on-lost", "panic", "--", "true"],
        &["run", "x", "-E", "256", "--", "true"],
        &["run", "", "--", "true"],
        &["run", "two\nlines", "--", "true"],
        &["run", &too_long, "--", "true"],
        &["run", "x", "--ttl", "9ms", "--", "true"],
        &["run", "x", "--ttl", "25h", "--", "true"],
        &["run", "x", "--ttl", "soon", "--", "true"],
        &["run", "x", "-n", "-w", "1s", "--", "true"],
        &["show"],
        &["break", "x"],
        &["break", "x", "--now"],
        &["store"],
        &["store", "init", "x"],
        &["store", "init", "--grant"],
    ];
    for arguments in cases {
        world.run(arguments).assert_code(64);
    }
    assert!(!world.path("store").exists());
}

#[test]
fn no_default_place_is_a_usage_error() {
    let world = World::new();
    let mut command = world.command();
    command.env_remove("CERROJO_STORE").env_remove("XDG_STATE_HOME").env_remove("HOME").arg("ls");
    Running::start(command).finish().assert_code(64);
}

#[test]
fn the_default_place_is_made() {
    let world = World::new();
    let mut command = world.command();
    command.env_remove("CERROJO_STORE").env("XDG_STATE_HOME", world.path("deep/state")).arg("ls");
    Running::start(command).finish().assert_code(0);
    assert!(world.path("deep/state/cerrojo").is_dir());
}

/// No command needs it for such a store.
#[test]
fn init_makes_the_folder_and_has_no_sql_and_no_roles() {
    let world = World::new();
    let printed = world.run(&["store", "init", "--print"]);
    printed.assert_code(0);
    assert!(printed.stdout.starts_with("--"), "{printed:?}");
    world.run(&["store", "init", "--grant", "somebody"]).assert_code(69);
    assert!(!world.path("store").exists());
    for _ in 0..2 {
        world.run(&["store", "init"]).assert_code(0);
        assert!(world.path("store").is_dir());
    }
    world.run(&["store", "init", "--store", "memory:"]).assert_code(0);
}

#[test]
fn help_and_version_are_0() {
    let world = World::new();
    for arguments in [&["--help"][..], &["-h"], &["--version"], &["run", "--help"], &["help"]] {
        let run = world.run(arguments);
        run.assert_code(0);
        assert!(!run.stdout.is_empty() && run.stderr.is_empty(), "{run:?}");
    }
}

#[test]
fn an_unusable_store_is_69() {
    let world = World::new();
    world.touch("file");
    let in_a_file = format!("local:{}/store", world.path("file").display());
    for store in ["pigeon://coop", "", "local:/proc/nowhere", &in_a_file] {
        for command in [
            &["ls"][..],
            &["show", "x"],
            &["run", "x", "--", "true"],
            &["break", "x", "--yes"],
            &["store", "init"],
        ] {
            world.run(&[&["--store", store], command].concat()).assert_code(69);
        }
    }
}

#[test]
fn a_lock_that_is_held_is_75_at_once_or_after_waiting() {
    let world = World::new();
    let holder = world.hold("x");
    for options in
        [&["x", "-n"][..], &["x", "--nonblock"], &["x", "-w", "50ms"], &["x", "--wait", "0"]]
    {
        let run = world.run_script(options, "touch entered");
        run.assert_code(75);
        assert!(run.stderr.contains("held by"), "{run:?}");
    }
    world.run_script(&["another", "-n"], "true").assert_code(0);
    world.let_go();
    holder.finish().assert_code(0);
    assert!(!world.path("entered").exists());
    world.run_script(&["x", "-n"], "true").assert_code(0);
}

#[test]
fn a_free_lock_is_1() {
    let world = World::new();
    world.run(&["show", "x"]).assert_code(1);
    world.run(&["break", "x", "--yes"]).assert_code(1);
    world.run(&["break", "x", "--yes", "--now"]).assert_code(1);
}

#[test]
fn output_that_cannot_be_written_is_74() {
    let world = World::new();
    let mut command = world.command();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    command.args(["show", "x"]).stdout(full).stderr(Stdio::null());
    assert_eq!(command.status().unwrap().code(), Some(74));
}
