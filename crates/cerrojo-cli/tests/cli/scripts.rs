//! `acquire`, `renew`, `release` and `prune`, as scripts call them.

use std::{
    env,
    ffi::OsString,
    fs::{self, File},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
};

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    kept::Keeper,
    world::{Running, World, answer, as_owner, eventually},
};

/// What a shell script needs to read an answer with.
const FIELD: &str = r#"field() { sed "s/.*\"$1\":\"\([^\"]*\)\".*/\1/"; }"#;

/// A lock that is left standing, and its owner id.
pub(crate) fn acquire(world: &World, arguments: &[&str]) -> (Value, String) {
    let answer = answer(&world.run(&[&["acquire"], arguments].concat()));
    let owner = answer["owner"].as_str().unwrap().to_owned();
    (answer, owner)
}

fn token(answer: &Value) -> u64 {
    answer["token"].as_str().unwrap().parse().unwrap()
}

/// A shell script that finds `cerrojo` and `field` and stops at the first error.
fn script(world: &World, text: &str) -> Command {
    let folder = Path::new(env!("CARGO_BIN_EXE_cerrojo")).parent().unwrap();
    let path = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths([folder.to_owned()].into_iter().chain(env::split_paths(&path)));
    let mut command = Command::new("sh");
    command.args(["-euc", &format!("{FIELD}\n{text}")]).env("PATH", path.unwrap());
    world.prepare(command)
}

#[test]
fn a_script_acquires_renews_and_releases() {
    let world = World::new();
    let text = "
        CERROJO_OWNER=$(cerrojo acquire x | field owner)
        export CERROJO_OWNER
        cerrojo acquire x -n 2>/dev/null && exit 1
        cerrojo renew x --ttl 1m > renewed
        cerrojo release x
        cerrojo release x 2>/dev/null || test $? = 79
        owner=$(cerrojo acquire x | field owner)
        echo $owner | cerrojo release x --owner -
        cerrojo show x || test $? = 1
    ";
    Running::start(script(&world, text)).finish().assert_code(0);
    let renewed: Value = serde_json::from_str(&world.read("renewed")).unwrap();
    assert_eq!(renewed["ttl_ms"], 60_000);
}

#[test]
fn the_answer_has_all_that_a_script_needs() {
    let world = World::new();
    let (first, owner) = acquire(&world, &["x", "--ttl", "1m"]);
    assert_eq!(first["name"], "x");
    assert_eq!(first["ttl_ms"], 60_000);
    assert_eq!(owner.len(), 32);
    let valid = first["valid_for_ms"].as_u64().unwrap();
    assert!(0 < valid && valid < 60_000, "{valid}");
    let renewed = answer(&as_owner(&world, &owner, &["renew", "x", "--ttl", "2m"]));
    for same in ["name", "owner", "token", "store_id"] {
        assert_eq!(renewed[same], first[same], "{same}");
    }
    assert_eq!(renewed["ttl_ms"], 120_000);
    as_owner(&world, &owner, &["release", "x"]).assert_code(0);
    let under_run = world.run_script(&["x"], "echo $CERROJO_TOKEN $CERROJO_STORE_ID").stdout;
    let (next, store_id) = under_run.trim().split_once(' ').unwrap();
    assert_eq!(store_id, first["store_id"].as_str().unwrap());
    assert!(next.parse::<u64>().unwrap() > token(&first));
}

#[test]
fn the_holder_that_is_shown_is_the_script() {
    let world = World::new();
    acquire(&world, &["x"]);
    let shown: Value = serde_json::from_str(&world.run(&["show", "x", "--json"]).stdout).unwrap();
    assert_eq!(shown["pid"], std::process::id());
}

#[test]
fn a_lock_that_stands_ends_by_its_ttl() {
    let world = World::new();
    let (first, owner) = acquire(&world, &["x", "--ttl", "300ms"]);
    let (second, _) = acquire(&world, &["x", "-w", "50s"]);
    assert!(token(&second) > token(&first));
    as_owner(&world, &owner, &["renew", "x"]).assert_code(79);
    as_owner(&world, &owner, &["release", "x"]).assert_code(79);
    world.run(&["show", "x"]).assert_code(0);
}

#[test]
fn renew_and_release_say_79_when_it_is_not_held_by_this_owner() {
    let world = World::new();
    let stranger = "0".repeat(32);
    let both = |owner: &str, renew: i32, release: i32| {
        as_owner(&world, owner, &["renew", "x"]).assert_code(renew);
        as_owner(&world, owner, &["release", "x"]).assert_code(release);
    };
    both(&stranger, 79, 79);
    let (_, owner) = acquire(&world, &["x"]);
    both(&stranger, 79, 79);
    both(&owner, 0, 0);
    both(&owner, 79, 79);
    // Broken at expiry it is still this owner's to give back.
    let (_, owner) = acquire(&world, &["x"]);
    world.run(&["break", "x", "--yes"]).assert_code(0);
    both(&owner, 79, 0);
    let (_, owner) = acquire(&world, &["x", "-n"]);
    world.run(&["break", "x", "--yes", "--now"]).assert_code(0);
    both(&owner, 79, 79);
    // Another name is another lock.
    let (_, owner) = acquire(&world, &["y"]);
    both(&owner, 79, 79);
    as_owner(&world, &owner, &["release", "y"]).assert_code(0);
}

#[test]
fn acquire_says_75_when_it_is_held_or_what_it_was_told_to() {
    let world = World::new();
    let _holder = world.hold("x");
    world.run(&["acquire", "x", "-n"]).assert_code(75);
    world.run(&["acquire", "x", "-w", "50ms"]).assert_code(75);
    world.run(&["acquire", "x", "-n", "-E", "0"]).assert_code(0);
    let own = std::process::id().to_string();
    let told = world.run(&["acquire", "x", "-n", "-E", "9", "--pid", &own, "--json"]);
    told.assert_code(9);
    let error: Value = serde_json::from_str(&told.stderr).unwrap();
    assert_eq!(error["error"]["kind"], "contended");
    assert_eq!(error["error"]["holder"]["held"], true);
}

#[test]
fn what_is_wrong_with_the_command_line_is_64() {
    let world = World::new();
    let cases: &[&[&str]] = &[
        &["acquire"],
        &["acquire", ""],
        &["acquire", "x", "--ttl", "1ms"],
        &["acquire", "x", "-n", "-w", "1s"],
        &["acquire", "x", "-E", "256"],
        &["acquire", "x", "--pid", "0"],
        &["acquire", "x", "--pid", "-1"],
        &["acquire", "x", "--pid", "2147483648"],
        &["renew", "x"],
        &["release", "x"],
        &["release", "x", "--owner", ""],
        &["release", "x", "--owner", "-"],
        &["prune", "x"],
        &["completions", "no-shell"],
    ];
    for arguments in cases {
        world.run(arguments).assert_code(64);
    }
    assert!(!world.path("store").exists(), "a usage error touches no store");
}

#[test]
fn a_store_that_is_none_is_69() {
    let world = World::new();
    let own = std::process::id().to_string();
    let owner = "0".repeat(32);
    let cases: &[&[&str]] = &[
        &["acquire", "x"],
        &["acquire", "x", "--pid", &own],
        &["renew", "x", "--owner", &owner],
        &["release", "x", "--owner", &owner],
        &["prune"],
    ];
    for arguments in cases {
        let run = world.run(&[&["--store", "pigeon:secret"], *arguments].concat());
        run.assert_code(69);
        assert!(!run.stderr.contains("secret"), "{run:?}");
    }
}

#[test]
fn an_owner_id_is_only_where_it_was_asked_for() {
    let world = World::new();
    let (_, owner) = acquire(&world, &["x"]);
    let mut said = String::new();
    for (name, arguments) in
        [("x", "show"), ("x", "release"), ("x", "release"), ("x", "renew"), ("y", "renew")]
    {
        let mut command = world.command();
        command.args([arguments, name]).env("CERROJO_OWNER", &owner).env("CERROJO_LOG", "trace");
        let run = Running::start(command).finish();
        said += &(run.stdout + &run.stderr);
    }
    let (_, next) = acquire(&world, &["x"]);
    said += &world.run(&["ls", "--json"]).stdout;
    said += &world.run(&["acquire", "x", "-n", "--json"]).stderr;
    said += &world.run(&["break", "x", "--yes", "--json"]).stdout;
    assert!(said.contains(&next[..8]), "owners can be told apart");
    assert!(!said.contains(&owner) && !said.contains(&next), "{said}");
}

#[test]
fn acquire_logs_no_owner_id() {
    let world = World::new();
    let mut command = world.command();
    command.args(["acquire", "x"]).env("CERROJO_LOG", "trace");
    let run = Running::start(command).finish();
    let answer = answer(&run);
    assert!(!run.stderr.is_empty(), "trace logs something");
    assert!(!run.stderr.contains(answer["owner"].as_str().unwrap()), "{run:?}");
}

#[test]
fn a_mistyped_owner_id_is_not_repeated() {
    let world = World::new();
    let nearly = "57b120f3373d6f236e5ebf993b8b1adex";
    for options in [&[][..], &["--json"]] {
        for command in ["renew", "release"] {
            let arguments = [options, &[command, "x"]].concat();
            let by_environment = as_owner(&world, nearly, &arguments);
            by_environment.assert_code(64);
            assert!(!by_environment.stderr.contains(&nearly[..8]), "{by_environment:?}");
            let by_option = world.run(&[&arguments[..], &["--owner", nearly]].concat());
            by_option.assert_code(64);
            assert!(!by_option.stderr.contains(&nearly[..8]), "{by_option:?}");
        }
    }
}

#[test]
fn what_nobody_can_read_is_not_left_standing() {
    let world = World::new();
    let own = std::process::id().to_string();
    for options in [&[][..], &["--pid", &own]] {
        let full = || File::create("/dev/full").unwrap();
        let mut command = world.command();
        let run = command.args(["acquire", "x"]).args(options).stdout(full()).output().unwrap();
        assert_eq!(run.status.code(), Some(74), "{run:?}");
        world.run(&["show", "x"]).assert_code(1);
    }
}

#[test]
fn a_signal_ends_the_wait_and_leaves_the_queue() {
    let world = World::new();
    let holder = world.hold("x");
    let own = std::process::id().to_string();
    for options in [&[][..], &["--pid", &own]] {
        let waiter = world.start(&[&["acquire", "x"], options].concat());
        eventually("it catches signals", || waiter.catches(Signal::TERM));
        waiter.signal(Signal::TERM);
        waiter.finish().assert_code(143);
    }
    world.let_go();
    holder.finish().assert_code(0);
    // A waiter that were still in the queue would have it now.
    world.run(&["acquire", "x", "-n"]).assert_code(0);
}

#[test]
fn every_command_works_on_every_store() {
    let world = World::new();
    let local = world.store();
    let owner = "0".repeat(32);
    let own = std::process::id().to_string();
    let cases: &[(&[&str], i32)] = &[
        (&["run", "x", "--", "true"], 0),
        (&["acquire", "x", "--fenced", "--ttl", "10ms"], 0),
        (&["acquire", "kept", "--fenced", "--pid", &own, "--ttl", "1s"], 0),
        (&["renew", "z", "--owner", &owner], 79),
        (&["release", "z", "--owner", &owner], 79),
        (&["ls"], 0),
        (&["show", "z"], 1),
        (&["break", "z", "--yes"], 1),
        (&["prune"], 0),
    ];
    for store in ["memory:", local] {
        for (arguments, code) in cases {
            let run = world.run(&[&["--store", store], *arguments].concat());
            run.assert_code(*code);
            drop(Keeper::of(&serde_json::from_str(&run.stdout).unwrap_or_default()));
        }
    }
}

#[test]
fn pruning_says_how_many_records_went() {
    let world = World::new();
    assert_eq!(world.run(&["prune"]).stdout, "0 records removed\n");
    let pruned: Value = serde_json::from_str(&world.run(&["prune", "--json"]).stdout).unwrap();
    assert_eq!(pruned["pruned"], 0);
}

#[test]
fn twenty_scripts_that_count_lose_nothing() {
    let world = World::new();
    fs::write(world.path("count"), "0").unwrap();
    let text = "
        for i in 1 2 3 4 5; do
            CERROJO_OWNER=$(cerrojo acquire counter --ttl 10m | field owner)
            export CERROJO_OWNER
            n=$(cat count)
            echo $((n + 1)) > count
            cerrojo release counter > /dev/null
        done
    ";
    let scripts: Vec<Running> = (0..20).map(|_| Running::start(script(&world, text))).collect();
    for script in scripts {
        script.finish().assert_code(0);
    }
    assert_eq!(world.read("count").trim(), "100");
}

#[test]
fn a_completion_script_knows_every_command_and_nothing_hidden() {
    let world = World::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let run = world.run(&["completions", shell]);
        run.assert_code(0);
        for command in ["run", "acquire", "renew", "release", "ls", "show", "break", "prune"] {
            assert!(run.stdout.contains(command), "{shell}: {command}");
        }
        assert!(!run.stdout.contains("--keeper-of"), "{shell}");
    }
}

#[test]
fn bash_completes_a_command() {
    let world = World::new();
    let text = r#"
        source <(cerrojo completions bash)
        COMP_WORDS=(cerrojo rel) COMP_CWORD=1
        _cerrojo cerrojo rel cerrojo
        echo "${COMPREPLY[@]}"
    "#;
    let sh = script(&world, "");
    let mut command = Command::new("bash");
    command.args(["-c", text]);
    for (name, value) in sh.get_envs() {
        command.env(name, value.map(OsString::from).unwrap_or_default());
    }
    let run = Running::start(command).finish();
    assert_eq!(run.stdout.trim(), "release", "{run:?}");
}

#[test]
fn man_pages_are_written_for_each_command() {
    let world = World::new();
    let out = world.path("share/man1");
    world.run(&["man", "--out", "share/man1"]).assert_code(0);
    assert_eq!(fs::read_to_string(out.join("cerrojo.1")).unwrap(), world.run(&["man"]).stdout);
    for command in ["run", "acquire", "renew", "release", "ls", "show", "break", "prune"] {
        let page = fs::read_to_string(out.join(format!("cerrojo-{command}.1"))).unwrap();
        assert!(page.contains("EXIT STATUS"), "{command}");
    }
}

/// The first script of the reference, with stand-ins for what it calls.
#[test]
fn the_script_of_the_reference_works() {
    let world = World::new();
    let reference = include_str!("../../../../docs/cli.md");
    let (_, section) = reference.split_once("## Scripts").unwrap();
    let (_, block) = section.split_once("```sh\n").unwrap();
    let (text, _) = block.split_once("```").unwrap();
    let note = "#!/bin/sh\necho $0 $CERROJO_TOKEN >> log\n";
    let jq = "#!/bin/sh\nsed \"s/.*\\\"${2#.}\\\":\\\"\\([^\\\"]*\\)\\\".*/\\1/\"\n";
    for (name, body) in [("build.sh", note), ("publish.sh", note), ("jq", jq)] {
        fs::write(world.path(name), body).unwrap();
        fs::set_permissions(world.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let run = Running::start(script(&world, &format!("PATH=.:$PATH\n{text}"))).finish();
    run.assert_code(0);
    assert_eq!(world.read("log"), "./build.sh 1\n./publish.sh 1\n");
    world.run(&["show", "deploy"]).assert_code(1);
}

#[test]
fn a_folder_of_man_pages_that_cannot_be_made_is_named() {
    let world = World::new();
    world.touch("file");
    let refused = world.run(&["man", "--out", "file/man1"]);
    refused.assert_code(74);
    assert!(refused.stderr.contains("file/man1"), "{refused:?}");
}
