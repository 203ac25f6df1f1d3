//! What goes through a run: lines, descriptors, and the places it is started from.

use std::{
    fs::{self, File},
    process::{Command, Stdio},
};

use crate::{
    Proof,
    world::{Finished, Running, World},
};

pub(crate) const TRIALS: &[(&str, Proof)] = &[
    ("ten_thousand_lines_pass_through_intact", lines),
    ("the_command_has_the_callers_descriptors_and_no_others", descriptors),
    ("it_works_inside_a_pipeline", pipeline),
    ("a_command_whose_reader_has_gone_ends_by_pipe", broken_pipe),
    ("it_works_without_a_controlling_terminal", no_terminal),
    ("it_works_in_a_session_of_its_own", own_session),
    ("it_works_under_nohup", nohup),
    ("it_works_with_stdin_closed", closed_stdin),
    ("it_works_with_stdout_closed", closed_stdout),
    ("it_works_with_everything_closed", all_closed),
    ("a_reader_sees_the_end_when_the_command_has_ended", end_of_output),
];

const CERROJO: &str = env!("CARGO_BIN_EXE_cerrojo");

/// A shell script that finds the binary as `$CERROJO`.
fn shell(world: &World, script: &str) -> Finished {
    Running::start(shell_command(world, script)).finish()
}

fn shell_command(world: &World, script: &str) -> Command {
    let mut command = world.prepare(Command::new("sh"));
    command.args(["-c", script]).env("CERROJO", CERROJO);
    command
}

fn lines() {
    let world = World::new();
    let text: String =
        (0..10_000).map(|number| format!("line {number} with some more text\n")).collect();
    fs::write(world.path("input"), &text).unwrap();
    let mut command = world.command();
    command.args(["run", "x", "--", "sh", "-c", "tee copy | cat"]);
    command.stdin(Stdio::from(File::open(world.path("input")).unwrap()));
    let run = Running::start(command).finish();
    run.assert_code(0);
    assert!(run.stdout == text, "stdout differs");
    assert!(world.read("copy") == text, "stdin differs");
}

/// Its own listing has one more open: the folder. Above 2 the command has what it would have without `cerrojo`.
fn descriptors() {
    const LISTING: &str = "ls /proc/self/fd";
    let world = World::new();
    let bare = shell(&world, &format!("exec 5> five; {LISTING}"));
    let run = shell(&world, &format!("exec 5> five; \"$CERROJO\" run x -- {LISTING}"));
    assert!(bare.stdout.contains("5\n"));
    assert_eq!(run.stdout, bare.stdout);
}

fn pipeline() {
    let world = World::new();
    let run = shell(&world, "seq 1000 | \"$CERROJO\" run x -- grep -v 7 | wc -l");
    assert_eq!(run.stdout.trim(), "729");
}

fn broken_pipe() {
    let world = World::new();
    let run = shell(&world, "{ \"$CERROJO\" run x -- yes; echo $? >code; } | head -n 1; cat code");
    assert_eq!(run.stdout, "y\n141\n");
}

fn no_terminal() {
    let world = World::new();
    let run = shell(&world, "setsid -w \"$CERROJO\" run x -- sh -c 'true < /dev/tty || exit 3'");
    assert_ne!(run.code(), 0);
    world.run(&["show", "x"]).assert_code(1);
}

fn own_session() {
    let world = World::new();
    shell(&world, "setsid -w \"$CERROJO\" run x -- sh -c 'exit 3'").assert_code(3);
    world.run(&["show", "x"]).assert_code(1);
}

fn nohup() {
    let world = World::new();
    let script = "nohup \"$CERROJO\" run x -- sh -c 'kill -HUP $$; kill -HUP $PPID; echo on; exit 4' > out 2> err";
    shell(&world, script).assert_code(4);
    assert_eq!(world.read("out"), "on\n");
}

fn closed_stdin() {
    let world = World::new();
    let run = shell(&world, "exec \"$CERROJO\" run x -- sh -c 'cat; readlink /proc/$$/fd/0' <&-");
    assert_eq!(run.stdout, "/dev/null\n", "{run:?}");
    run.assert_code(0);
}

fn closed_stdout() {
    let world = World::new();
    let run = shell(&world, "exec \"$CERROJO\" run x -- sh -c 'touch ran; exit 4' >&-");
    run.assert_code(4);
    assert!(world.path("ran").exists());
}

fn all_closed() {
    let world = World::new();
    let run = shell(&world, "exec \"$CERROJO\" run x -- sh -c 'touch ran; exit 4' <&- >&- 2>&-");
    run.assert_code(4);
    assert!(world.path("ran").exists());
    world.run(&["show", "x"]).assert_code(1);
}

/// Nothing that stays behind may keep the pipe open.
fn end_of_output() {
    let world = World::new();
    let mut command = world.command();
    command.args(["run", "x", "--", "echo", "all"]);
    let output = command.output().unwrap();
    assert_eq!((output.stdout.as_slice(), output.status.code()), (&b"all\n"[..], Some(0)));
}
