//! What the command gets, and that it is alone.

use std::{fs::File, process::Stdio};

use crate::world::{Running, World};

#[test]
fn the_command_knows_its_lock_and_not_the_store() {
    let world = World::new();
    let script = "echo \"$CERROJO_LOCK|$CERROJO_TOKEN|$CERROJO_STORE_ID|${CERROJO_STORE-unset}\"";
    let run = world.run_script(&["a b/ü"], script);
    let words: Vec<_> = run.stdout.trim().split('|').collect();
    let [lock, token, id, store] = words[..] else { panic!("{run:?}") };
    assert_eq!((lock, store), ("a b/ü", "unset"));
    assert!(token.parse::<u64>().is_ok_and(|token| token > 0), "{token}");
    assert!(id.len() == 32 && id.bytes().all(|digit| digit.is_ascii_hexdigit()), "{id}");
}

#[test]
fn tokens_rise_from_run_to_run_and_the_store_id_stays() {
    let world = World::new();
    let read = || {
        let run = world.run_script(&["x"], "echo $CERROJO_TOKEN $CERROJO_STORE_ID");
        let (token, id) = run.stdout.trim().split_once(' ').unwrap();
        (token.parse::<u64>().unwrap(), id.to_owned())
    };
    let (first, second) = (read(), read());
    assert!(second.0 > first.0);
    assert_eq!(second.1, first.1);
}

#[test]
fn stdin_stdout_and_stderr_are_the_commands() {
    let world = World::new();
    std::fs::write(world.path("input"), "one\ntwo\n").unwrap();
    let mut command = world.command();
    command.args(["run", "x", "--", "sh", "-c", "cat; echo three >&2"]);
    command.stdin(Stdio::from(File::open(world.path("input")).unwrap()));
    let run = Running::start(command).finish();
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("one\ntwo\n", "three\n"));
    run.assert_code(0);
}

#[test]
fn words_reach_the_command_as_they_are() {
    let world = World::new();
    let words = ["run", "x", "--", "printf", "[%s]", "a b", "$HOME", "--json", "-n", "--", "*"];
    assert_eq!(world.run(&words).stdout, "[a b][$HOME][--json][-n][--][*]");
}

/// A read, a pause and a write: any overlap loses an update.
#[test]
fn twenty_at_once_lose_no_update_and_tokens_rise() {
    let world = World::new();
    let script = "n=$(cat count 2>/dev/null || echo 0); sleep 0.01; echo $((n + 1)) > count; \
                  echo $CERROJO_TOKEN >> tokens";
    let runs: Vec<_> = (0..20).map(|_| world.start_script(&["counter"], script)).collect();
    for run in runs {
        run.finish().assert_code(0);
    }
    assert_eq!(world.read("count").trim(), "20");
    let tokens: Vec<u64> = world.read("tokens").lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(tokens.len(), 20);
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{tokens:?}");
}

#[test]
fn the_lock_is_kept_over_many_ttls() {
    let world = World::new();
    let holder = world.start_script(&["x", "--ttl", "1s"], "touch held; sleep 4; touch left");
    world.await_file("held");
    let next = world.run_script(&["x"], "test -e left");
    next.assert_code(0);
    holder.finish().assert_code(0);
}
