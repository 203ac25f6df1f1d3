//! Every command, and what an answer is with a token.

use serde_json::Value;

use crate::{
    Proof,
    servers::Servers,
    world::{Finished, Running, World, eventually},
};

pub(crate) const TRIALS: &[(&str, Proof)] = &[
    ("a_command_gets_a_growing_token_and_the_store_id", a_command_gets_token_and_store_id),
    ("a_script_acquires_renews_and_releases", a_script_acquires_renews_and_releases),
    ("a_lock_is_listed_shown_and_broken", a_lock_is_listed_shown_and_broken),
    ("a_fenced_file_refuses_the_older_of_two_commands", a_fenced_file_refuses_the_older),
    ("holding_without_a_command_tells_the_token", holding_without_a_command_tells_the_token),
    ("a_lock_is_kept_for_a_process", a_lock_is_kept_for_a_process),
    ("keywords_and_values_name_the_same_store", keywords_and_values_name_the_same_store),
    ("prune_removes_free_rows_and_no_held_ones", prune_removes_free_rows_and_no_held_ones),
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

fn a_command_gets_token_and_store_id(servers: &Servers) {
    let site = servers.store();
    let script = "echo $CERROJO_TOKEN $CERROJO_STORE_ID ${CERROJO_STORE-none}; exit 7";
    let tell = || {
        let run = site.world.run_script(&["x", "--fenced"], script);
        run.assert_code(7);
        let words: Vec<_> = run.stdout.split_whitespace().map(str::to_owned).collect();
        assert_eq!(words[2], "none", "{run:?}");
        (words[0].parse::<u64>().unwrap(), words[1].clone())
    };
    let (first, second) = (tell(), tell());
    assert!(first.0 < second.0, "{first:?} {second:?}");
    assert_eq!(first.1, second.1);
    let stored = site.sql("SELECT replace(store_id::text, '-', '') FROM SCHEMA.lock_store");
    assert_eq!(first.1, stored);
    site.world.run(&["show", "x"]).assert_code(1);
}

fn a_script_acquires_renews_and_releases(servers: &Servers) {
    let site = servers.store();
    let world = &site.world;
    let first = json(&world.run(&["acquire", "x", "--ttl", "1m", "--fenced"]));
    assert_eq!(first["ttl_ms"], 60_000);
    assert!(first["valid_for_ms"].as_u64().is_some_and(|valid| valid < 60_000), "{first}");
    world.run(&["acquire", "x", "-n"]).assert_code(75);
    let owner = &first["owner"];
    let renewed = json(&as_owner(world, owner, &["renew", "x", "--ttl", "2m"]));
    for key in ["owner", "token", "store_id"] {
        assert_eq!(renewed[key], first[key]);
    }
    assert_eq!(renewed["ttl_ms"], 120_000);
    as_owner(world, owner, &["release", "x"]).assert_code(0);
    as_owner(world, owner, &["release", "x"]).assert_code(79);
    as_owner(world, owner, &["renew", "x"]).assert_code(79);
}

fn a_lock_is_listed_shown_and_broken(servers: &Servers) {
    let site = servers.store();
    let world = &site.world;
    let names = ["a 'b' \"c\"", "x", "x/1"];
    let holders = names.map(|name| json(&world.run(&["acquire", name])));
    let listed = world.run(&["ls", "--json"]).stdout;
    let listed: Vec<Value> =
        listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(listed.iter().map(|lock| &lock["name"]).collect::<Vec<_>>(), names);
    let shown = json(&world.run(&["show", "x", "--json"]));
    assert_eq!(shown["token"], holders[1]["token"]);
    assert_eq!(shown["pid"], std::process::id());
    assert_eq!(shown["owner"].as_str().unwrap(), &holders[1]["owner"].as_str().unwrap()[..8]);
    assert!(shown["ends_in_ms"].as_u64().unwrap() <= 30_000, "{shown}");
    assert_eq!(world.run(&["ls", "x/"]).stdout.lines().count(), 1);
    assert_eq!(json(&world.run(&["break", "x", "--yes", "--json"]))["free"], "at_expiry");
    assert_eq!(json(&world.run(&["show", "x", "--json"]))["broken"], true);
    as_owner(world, &holders[1]["owner"], &["renew", "x"]).assert_code(79);
    world.run(&["break", "x/1", "--yes", "--now"]).assert_code(0);
    world.run(&["show", "x/1"]).assert_code(1);
}

/// The first command is broken out of its lock, and writes late.
fn a_fenced_file_refuses_the_older(servers: &Servers) {
    let site = servers.store();
    let world = &site.world;
    let older = json(&world.run(&["acquire", "x"]));
    world.run(&["break", "x", "--yes", "--now"]).assert_code(0);
    let write = format!("echo newer | {} fence write file", env!("CARGO_BIN_EXE_cerrojo"));
    world.run_script(&["x"], &write).assert_code(0);
    let [token, store] = ["token", "store_id"].map(|key| older[key].as_str().unwrap());
    world.run(&["fence", "write", "file", "--token", token, "--store-id", store]).assert_code(73);
    assert_eq!(world.read("file"), "newer\n");
}

fn holding_without_a_command_tells_the_token(servers: &Servers) {
    let site = servers.store();
    let holder = site.world.start(&["run", "x", "--json"]);
    eventually("it says so", || !holder.told().is_empty());
    let told: Value = serde_json::from_str(&holder.told()).unwrap();
    let shown = json(&site.world.run(&["show", "x", "--json"]));
    assert_eq!((&told["held"], &told["token"]), (&Value::Bool(true), &shown["token"]));
    holder.signal(rustix::process::Signal::TERM);
    holder.finish().assert_code(0);
    site.world.run(&["show", "x"]).assert_code(1);
}

fn a_lock_is_kept_for_a_process(servers: &Servers) {
    let site = servers.store();
    let own = std::process::id().to_string();
    let kept = json(&site.world.run(&["acquire", "x", "--pid", &own, "--ttl", "1s"]));
    // It is renewed: nobody else enters for as long as two TTLs.
    site.world.run(&["acquire", "x", "-w", "2s"]).assert_code(75);
    as_owner(&site.world, &kept["owner"], &["release", "x"]).assert_code(0);
    let keeper = format!("/proc/{}", kept["keeper_pid"]);
    eventually("the keeper ends", || !std::path::Path::new(&keeper).exists());
}

fn keywords_and_values_name_the_same_store(servers: &Servers) {
    let site = servers.store();
    let (port, password) = (site.server.port(), site.server.password());
    let words = format!(
        "postgres:host=127.0.0.1 port={port} user=client password={password} dbname=app schema={}",
        site.schema
    );
    let by_words = World::on(words);
    json(&by_words.run(&["acquire", "x"]));
    site.world.run(&["acquire", "x", "-n"]).assert_code(75);
    let same = format!("postgresql{}", site.world.store().strip_prefix("postgres").unwrap());
    World::on(same).run(&["show", "x"]).assert_code(0);
}

fn prune_removes_free_rows_and_no_held_ones(servers: &Servers) {
    let site = servers.store();
    for name in ["a", "b", "c"] {
        site.world.run_script(&[name], "true").assert_code(0);
    }
    json(&site.world.run(&["acquire", "held"]));
    assert_eq!(json(&site.world.run(&["prune", "--json"]))["pruned"], 3);
    assert_eq!(json(&site.world.run(&["prune", "--json"]))["pruned"], 0);
    assert_eq!(site.sql("SELECT name FROM SCHEMA.lock"), "held");
}

fn every_command_works(servers: &Servers) {
    let site = servers.store();
    let owner = "0".repeat(32);
    let cases: &[(&[&str], i32)] = &[
        (&["run", "x", "--", "true"], 0),
        (&["acquire", "x", "--ttl", "1m"], 0),
        (&["run", "x", "-n", "--", "true"], 75),
        (&["run", "x", "-w", "50ms", "-E", "9", "--", "true"], 9),
        (&["renew", "z", "--owner", &owner], 79),
        (&["release", "z", "--owner", &owner], 79),
        (&["ls"], 0),
        (&["show", "x"], 0),
        (&["show", "z"], 1),
        (&["break", "z", "--yes"], 1),
        (&["prune"], 0),
        (&["store"], 64),
        (&["store", "init", "more"], 64),
        (&["store", "init", "--grant"], 64),
    ];
    for (arguments, code) in cases {
        site.world.run(arguments).assert_code(*code);
    }
}
