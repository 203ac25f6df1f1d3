//! What an answer is with a token, and what is only here.

use serde_json::Value;

use crate::{
    served::Trials,
    servers::Servers,
    world::{World, answer, eventually},
};

pub(crate) const TRIALS: Trials = &[
    ("a_command_gets_a_growing_token_and_the_store_id", a_command_gets_token_and_store_id),
    ("a_fenced_file_refuses_the_older_of_two_commands", a_fenced_file_refuses_the_older),
    ("holding_without_a_command_tells_the_token", holding_without_a_command_tells_the_token),
    ("keywords_and_values_name_the_same_store", keywords_and_values_name_the_same_store),
    ("prune_removes_free_rows_and_no_held_ones", prune_removes_free_rows_and_no_held_ones),
];

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

/// The first command is broken out of its lock, and writes late.
fn a_fenced_file_refuses_the_older(servers: &Servers) {
    let site = servers.store();
    let world = &site.world;
    let older = answer(&world.run(&["acquire", "x", "--fenced"]));
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
    let shown = answer(&site.world.run(&["show", "x", "--json"]));
    assert_eq!((&told["held"], &told["token"]), (&Value::Bool(true), &shown["token"]));
    holder.signal(rustix::process::Signal::TERM);
    holder.finish().assert_code(0);
    site.world.run(&["show", "x"]).assert_code(1);
}

fn keywords_and_values_name_the_same_store(servers: &Servers) {
    let site = servers.store();
    let (port, password) = (site.server.port(), site.server.password());
    let words = format!(
        "postgres:host=127.0.0.1 port={port} user=client password={password} dbname=app schema={}",
        site.schema
    );
    let by_words = World::on(words);
    answer(&by_words.run(&["acquire", "x"]));
    site.world.run(&["acquire", "x", "-n"]).assert_code(75);
    let same = format!("postgresql{}", site.world.store().strip_prefix("postgres").unwrap());
    World::on(same).run(&["show", "x"]).assert_code(0);
}

fn prune_removes_free_rows_and_no_held_ones(servers: &Servers) {
    let site = servers.store();
    for name in ["a", "b", "c"] {
        site.world.run_script(&[name], "true").assert_code(0);
    }
    answer(&site.world.run(&["acquire", "held"]));
    assert_eq!(answer(&site.world.run(&["prune", "--json"]))["pruned"], 3);
    assert_eq!(answer(&site.world.run(&["prune", "--json"]))["pruned"], 0);
    assert_eq!(site.sql("SELECT name FROM SCHEMA.lock"), "held");
}
