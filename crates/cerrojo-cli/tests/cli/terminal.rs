//! On a terminal, as `script` makes one.

use std::process::{Command, Stdio};

use crate::world::{Running, World};

const CERROJO: &str = env!("CARGO_BIN_EXE_cerrojo");

/// A shell on a terminal of its own runs `line`; what is written to it is typed.
fn on_a_terminal(world: &World, line: &str) -> Running {
    let mut command = world.prepare(Command::new("script"));
    command.args(["--quiet", "--return", "--command", line, "/dev/null"]).env("SHELL", "/bin/sh");
    command.stdin(Stdio::piped());
    Running::start(command)
}

#[test]
fn the_command_reads_the_terminal_and_gives_it_back() {
    let world = World::new();
    // The shell shares the runner's group: had the terminal not come back, its own reading would fail.
    let line = format!(
        "{CERROJO} run x -- sh -c 'read line; echo $line > first'; code=$?; read line; echo $line > second; exit $code"
    );
    let mut terminal = on_a_terminal(&world, &line);
    terminal.write("one\n");
    world.await_file("first");
    terminal.write("two\n");
    terminal.finish().assert_code(0);
    assert_eq!((world.read("first").trim(), world.read("second").trim()), ("one", "two"));
}

#[test]
fn ctrl_c_reaches_the_command() {
    let world = World::new();
    let line = format!(
        "exec {CERROJO} run x -- sh -c 'trap \"exit 6\" INT; touch ready; while [ -e ready ] && [ ! -e let-go ]; do sleep 0.05; done'"
    );
    let mut terminal = on_a_terminal(&world, &line);
    world.await_file("ready");
    terminal.write("\u{3}");
    terminal.finish().assert_code(6);
    world.run(&["show", "x"]).assert_code(1);
}
