//! Every command, and what an answer is without a token.

use serde_json::Value;

use crate::{
    Proof, started,
    world::{Finished, Running, World, eventually},
};

pub(crate) const TRIALS: &[(&str, Proof)] = &[
    ("a_command_gets_no_token_and_no_store_id", a_command_gets_no_token_and_no_store_id),
    ("a_script_acquires_renews_and_releases", a_script_acquires_renews_and_releases),
    ("a_lock_is_listed_shown_and_broken", a_lock_is_listed_shown_and_broken),
    ("holding_without_a_command_tells_no_token", holding_without_a_command_tells_no_token),
    ("a_lock_is_kept_for_a_process", a_lock_is_kept_for_a_process),
    ("fenced_refuses_it", fenced_refuses_it),
    ("every_command_works", every_command_works),
];

pub(crate) fn json(run: &Finished) -> Value {
    run.assert_code(0);
    serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}: {run:?}"))
}

pub(crate) fn as_owner(world: &World, owner: &Value, arguments: &[&str]) -> Finished {
    let mut command = world.command();
    command.args(arguments).env("CERROJO_OWNER", owner.as_str().unwrap());
    Running::start(command).finish()
}

fn a_command_gets_no_token_and_no_store_id() {
    let (_server, world) = started();
    let script = "echo $CERROJO_LOCK ${CERROJO_TOKEN-none} ${CERROJO_STORE_ID-none}; exit 7";
    let run = world.run_script(&["x"], script);
    run.assert_code(7);
    assert_eq!(run.stdout, "x none none\n");
    world.run(&["show", "x"]).assert_code(1);
}

fn a_script_acquires_renews_and_releases() {
    let (_server, world) = started();
    let first = json(&world.run(&["acquire", "x", "--ttl", "1m"]));
    assert_eq!((&first["token"], &first["store_id"]), (&Value::Null, &Value::Null));
    assert_eq!(first["ttl_ms"], 60_000);
    assert!(first["valid_for_ms"].as_u64().is_some_and(|valid| valid < 60_000), "{first}");
    world.run(&["acquire", "x", "-n"]).assert_code(75);
    let owner = &first["owner"];
    let renewed = json(&as_owner(&world, owner, &["renew", "x", "--ttl", "2m"]));
    assert_eq!((&renewed["owner"], &renewed["token"]), (owner, &Value::Null));
    assert_eq!(renewed["ttl_ms"], 120_000);
    as_owner(&world, owner, &["release", "x"]).assert_code(0);
    as_owner(&world, owner, &["release", "x"]).assert_code(79);
    as_owner(&world, owner, &["renew", "x"]).assert_code(79);
}

fn a_lock_is_listed_shown_and_broken() {
    let (_server, world) = started();
    let names = ["a {b} c", "x", "x/1"];
    let holders = names.map(|name| json(&world.run(&["acquire", name])));
    let listed = world.run(&["ls", "--json"]).stdout;
    let listed: Vec<Value> =
        listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(listed.iter().map(|lock| &lock["name"]).collect::<Vec<_>>(), names);
    let shown = json(&world.run(&["show", "x", "--json"]));
    assert_eq!(shown["token"], Value::Null);
    assert_eq!(shown["pid"], std::process::id());
    assert_eq!(shown["owner"].as_str().unwrap(), &holders[1]["owner"].as_str().unwrap()[..8]);
    assert!(shown["ends_in_ms"].as_u64().unwrap() <= 30_000, "{shown}");
    assert_eq!(world.run(&["ls", "x/"]).stdout.lines().count(), 1);
    assert_eq!(json(&world.run(&["break", "x", "--yes", "--json"]))["free"], "at_expiry");
    assert_eq!(json(&world.run(&["show", "x", "--json"]))["broken"], true);
    as_owner(&world, &holders[1]["owner"], &["renew", "x"]).assert_code(79);
    world.run(&["break", "x/1", "--yes", "--now"]).assert_code(0);
    world.run(&["show", "x/1"]).assert_code(1);
}

fn holding_without_a_command_tells_no_token() {
    let (_server, world) = started();
    let holder = world.start(&["run", "x", "--json"]);
    eventually("it says that it holds", || holder.told().ends_with('\n'));
    let held: Value = serde_json::from_str(&holder.told()).unwrap();
    assert_eq!((&held["token"], &held["store_id"]), (&Value::Null, &Value::Null));
    holder.signal(rustix::process::Signal::TERM);
    holder.finish().assert_code(0);
}

fn a_lock_is_kept_for_a_process() {
    let (_server, world) = started();
    let own = std::process::id().to_string();
    let kept = json(&world.run(&["acquire", "x", "--pid", &own, "--ttl", "1s"]));
    // It is renewed: nobody else enters for as long as two TTLs.
    world.run(&["acquire", "x", "-w", "2s"]).assert_code(75);
    as_owner(&world, &kept["owner"], &["release", "x"]).assert_code(0);
    let keeper = format!("/proc/{}", kept["keeper_pid"]);
    eventually("the keeper ends", || !std::path::Path::new(&keeper).exists());
}

fn fenced_refuses_it() {
    let (_server, world) = started();
    let own = std::process::id().to_string();
    let cases: &[&[&str]] = &[
        &["run", "x", "--fenced", "--", "touch", "ran"],
        &["acquire", "x", "--fenced"],
        &["acquire", "x", "--fenced", "--pid", &own],
    ];
    for arguments in cases {
        let run = world.run(arguments);
        run.assert_code(69);
        assert!(run.stderr.contains("no fencing token"), "{run:?}");
    }
    assert!(!world.path("ran").exists());
    world.run(&["show", "x"]).assert_code(1);
}

fn every_command_works() {
    let (_server, world) = started();
    let owner = "0".repeat(32);
    let cases: &[(&[&str], i32)] = &[
        (&["run", "x", "--", "true"], 0),
        (&["acquire", "x", "--ttl", "1m"], 0),
        (&["run", "x", "-n", "--", "true"], 75),
        (&["renew", "z", "--owner", &owner], 79),
        (&["release", "z", "--owner", &owner], 79),
        (&["ls"], 0),
        (&["show", "x"], 0),
        (&["show", "z"], 1),
        (&["break", "z", "--yes"], 1),
        (&["prune"], 0),
        (&["store", "init"], 0),
        (&["store", "init", "--print"], 0),
        (&["store", "init", "--grant", "somebody"], 69),
    ];
    for (arguments, code) in cases {
        world.run(arguments).assert_code(*code);
    }
}
