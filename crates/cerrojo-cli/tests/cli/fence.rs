//! Files that refuse a holder who was overtaken, from the shell.

use std::{
    fs::{self, File},
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    process::{Command, Stdio},
};

use crate::{
    snapshots::check,
    world::{Finished, Running, World, eventually},
};

const STORE: &str = "0a1b2c3d4e5f60718293a4b5c6d7e8f9";
const OTHER: &str = "9f8e7d6c5b4a39281706f5e4d3c2b1a0";

/// The binary with a token and a store in its environment, as under `run`.
fn granted(world: &World, token: u64, store: &str, arguments: &[&str]) -> Command {
    let mut command = world.command();
    command.env("CERROJO_TOKEN", token.to_string()).env("CERROJO_STORE_ID", store);
    command.args(arguments);
    command
}

/// `fence write` of a text to `FILE`.
fn write(world: &World, token: u64, store: &str, text: &str) -> Finished {
    fs::write(world.path("input"), text).unwrap();
    let mut command = granted(world, token, store, &["fence", "write", "FILE"]);
    command.stdin(File::open(world.path("input")).unwrap());
    Running::start(command).finish()
}

#[test]
fn a_bare_fence_admits_what_is_not_older_of_the_same_store() {
    let world = World::new();
    let cases = [
        (&["5"][..], 0),
        (&["5"], 0),
        (&["4"], 73),
        (&["9"], 0),
        (&["9223372036854775807", "--store-id", STORE], 76),
        (&["5"], 73),
    ];
    for (arguments, code) in cases {
        world.run(&[&["fence", "admit", "STATE"], arguments].concat()).assert_code(code);
    }
    let store = ["--store-id", STORE];
    let admit = |token, more: &[&str]| {
        world.run(&[&["fence", "admit", "NAMED", token], more].concat()).code()
    };
    assert_eq!([admit("5", &store), admit("6", &[]), admit("4", &store)], [0, 76, 73]);
    Running::start(granted(&world, 1, STORE, &["fence", "admit", "NAMED", "7"])).finish();
    assert!(world.run(&["fence", "show", "NAMED"]).stdout.contains("token 7"));
}

#[test]
fn a_holder_that_was_overtaken_under_run_cannot_write() {
    let world = World::new();
    let cerrojo = env!("CARGO_BIN_EXE_cerrojo");
    let script = format!(
        "trap '' TERM; touch first-in; while [ ! -e overtaken ]; do sleep 0.02; done
        echo first | {cerrojo} fence write FILE; echo $? > first-code"
    );
    let first = world.start_script(&["--on-lost", "ignore", "x"], &script);
    world.await_file("first-in");
    world.run(&["break", "x", "--yes", "--now"]).assert_code(0);
    world.run_script(&["x"], &format!("echo second | {cerrojo} fence write FILE")).assert_code(0);
    world.touch("overtaken");
    first.finish();
    assert_eq!(world.read("first-code"), "73\n");
    assert_eq!(world.read("FILE"), "second\n");
}

#[test]
fn what_is_read_after_an_admission_is_written_by_nobody_older() {
    let world = World::new();
    write(&world, 33, STORE, "old").assert_code(0);
    let admit = &["fence", "admit", "FILE.fence", "34", "--store-id", STORE];
    world.run(admit).assert_code(0);
    write(&world, 33, STORE, "late").assert_code(73);
    write(&world, 34, STORE, "new").assert_code(0);
    assert_eq!(world.read("FILE"), "new");
}

#[test]
fn a_token_of_another_store_is_76_until_the_store_is_adopted() {
    let world = World::new();
    write(&world, 9, STORE, "old").assert_code(0);
    write(&world, 10, OTHER, "other").assert_code(76);
    assert_eq!(world.read("FILE"), "old");
    world.run(&["fence", "adopt", "FILE", "--store-id", STORE]).assert_code(0);
    write(&world, 8, STORE, "late").assert_code(73);
    world.run(&["fence", "adopt", "FILE", "--store-id", OTHER]).assert_code(0);
    write(&world, 1, OTHER, "new").assert_code(0);
    write(&world, 10, STORE, "late").assert_code(76);
    assert_eq!(world.read("FILE"), "new");
}

#[test]
fn who_reads_stdin_slowly_is_in_nobodys_way() {
    let world = World::new();
    let mut command = granted(&world, 1, STORE, &["fence", "write", "FILE"]);
    command.stdin(Stdio::piped());
    let mut slow = Running::start(command);
    slow.write("half of what");
    write(&world, 2, STORE, "quick").assert_code(0);
    slow.hang_up();
    slow.finish().assert_code(73);
    assert_eq!(world.read("FILE"), "quick");
}

#[test]
fn a_fence_at_which_somebody_stays_is_75_after_the_wait() {
    let world = World::new();
    write(&world, 1, STORE, "old").assert_code(0);
    let lock = File::open(world.path("FILE.fence.lock")).unwrap();
    lock.lock().unwrap();
    let write_new = ["fence", "write", "FILE", "--wait", "50ms"];
    Running::start(granted(&world, 2, STORE, &write_new)).finish().assert_code(75);
    check(&world, "fence_busy", &["fence", "admit", "FILE.fence", "2", "--wait", "50ms"]);
    assert!(world.run(&["fence", "show", "FILE"]).stdout.contains("token 1"), "a look waits not");
    let waiting = Running::start(granted(&world, 2, STORE, &["fence", "write", "FILE"]));
    let inside = format!("/proc/{}/fd", waiting.id());
    eventually("the writer looks at the lock", || has_open(&inside, "FILE.fence.lock"));
    assert_eq!(world.read("FILE"), "old");
    lock.unlock().unwrap();
    waiting.finish().assert_code(0);
    assert_eq!(world.read("FILE"), "");
}

fn has_open(descriptors: &str, name: &str) -> bool {
    let Ok(descriptors) = fs::read_dir(descriptors) else { return false };
    descriptors
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .any(|path| path.ends_with(name))
}

#[test]
fn what_is_no_fence_or_no_file_is_left_alone() {
    let world = World::new();
    fs::write(world.path("text"), "hello").unwrap();
    symlink("text", world.path("link")).unwrap();
    world.run(&["fence", "admit", "text", "1"]).assert_code(65);
    world.run(&["fence", "admit", "link", "1"]).assert_code(64);
    world.run(&["fence", "admit", ".", "1"]).assert_code(64);
    world.run(&["fence", "admit", "no-folder/STATE", "1"]).assert_code(71);
    for file in ["link", "."] {
        Running::start(granted(&world, 1, STORE, &["fence", "write", file]))
            .finish()
            .assert_code(64);
    }
    assert_eq!(world.read("text"), "hello");
}

#[test]
fn usage_errors_of_fences_are_64_and_touch_nothing() {
    let world = World::new();
    let cases: &[&[&str]] = &[
        &["fence"],
        &["fence", "admit", "STATE"],
        &["fence", "admit", "STATE", "0"],
        &["fence", "admit", "STATE", "-1"],
        &["fence", "admit", "STATE", "9223372036854775808"],
        &["fence", "admit", "STATE", "1", "--store-id", "abc"],
        &["fence", "write", "STATE"],
        &["fence", "write", "STATE", "--token", "1"],
        &["fence", "write", "STATE", "--store-id", STORE],
        &["fence", "adopt", "STATE"],
        &["fence", "show"],
    ];
    for arguments in cases {
        world.run(arguments).assert_code(64);
    }
    assert_eq!(fs::read_dir(world.path(".")).unwrap().count(), 0);
}

#[test]
fn what_people_and_programs_read_of_fences() {
    let world = World::new();
    check(&world, "fence_show_none", &["fence", "show", "STATE"]);
    check(&world, "fence_show_none_json", &["fence", "show", "STATE", "--json"]);
    check(&world, "fence_admit", &["fence", "admit", "STATE", "5"]);
    check(&world, "fence_admit_json", &["fence", "admit", "STATE", "5", "--json"]);
    check(&world, "fence_stale", &["fence", "admit", "STATE", "4"]);
    check(&world, "fence_stale_json", &["fence", "admit", "STATE", "4", "--json"]);
    check(&world, "fence_other", &["fence", "admit", "STATE", "5", "--store-id", STORE]);
    check(
        &world,
        "fence_other_json",
        &["fence", "admit", "STATE", "5", "--store-id", STORE, "--json"],
    );
    check(&world, "fence_show", &["fence", "show", "STATE"]);
    check(&world, "fence_adopt", &["fence", "adopt", "STATE", "--store-id", STORE]);
    let grant = ["--token", "5", "--store-id", STORE];
    check(&world, "fence_write", &[&["fence", "write", "FILE"], &grant[..]].concat());
    check(
        &world,
        "fence_write_json",
        &[&["fence", "write", "FILE", "--json"], &grant[..]].concat(),
    );
    check(&world, "fence_show_json", &["fence", "show", "FILE", "--json"]);
    check(&world, "fence_write_without_run", &["fence", "write", "FILE"]);
    fs::write(world.path("FILE.fence"), "cerrojo-fence 1 store").unwrap();
    check(&world, "fence_damaged", &["fence", "show", "FILE"]);
    check(&world, "fence_no_state", &["fence", "admit", "FILE", "5"]);
    check(&world, "fence_no_folder", &["fence", "admit", "no-folder/STATE", "5"]);
}

/// Both scripts of docs/fences.md, with a stand-in for what the first calls.
#[test]
fn the_scripts_of_the_page_work() {
    let world = World::new();
    let page = include_str!("../../../../docs/fences.md");
    let blocks = page.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let scripts: Vec<_> = blocks.filter(|script| script.contains("cerrojo run")).collect();
    assert_eq!(scripts.len(), 2);
    fs::write(world.path("report.sh"), "#!/bin/sh\necho fine\n").unwrap();
    fs::set_permissions(world.path("report.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(world.path("count"), "41").unwrap();
    let programs = Path::new(env!("CARGO_BIN_EXE_cerrojo")).parent().unwrap();
    let script = format!("PATH={}:$PATH; set -e\n{}", programs.display(), scripts.join("\n"));
    let mut shell = world.prepare(Command::new("sh"));
    shell.args(["-c", &script]);
    Running::start(shell).finish().assert_code(0);
    assert_eq!((world.read("report.html"), world.read("count")), ("fine\n".into(), "42\n".into()));
}
