//! `cerrojo store init`: who may make the tables, how often, and what is said where they are missing.

use cerrojo_testbed::PostgresServer;
use serde_json::Value;

use crate::{
    served::Trials,
    servers::{CLIENT, STRANGER, Servers, builder},
    world::{Running, World, answer},
};

pub(crate) const TRIALS: Trials = &[
    ("missing_tables_are_told_and_made_by_init", missing_tables_are_told_and_made_by_init),
    ("init_again_changes_nothing_and_stops_nobody", init_again_changes_nothing_and_stops_nobody),
    ("inits_that_start_at_once_all_succeed", inits_that_start_at_once_all_succeed),
    ("init_without_the_right_says_which_it_takes", init_without_the_right_says_which_it_takes),
    ("a_role_without_a_grant_is_told_how_it_gets_one", a_role_without_a_grant),
    ("a_role_that_does_not_exist_makes_nothing", a_role_that_does_not_exist_makes_nothing),
    ("printed_sql_is_all_that_an_administrator_needs", printed_sql),
    ("a_newer_store_is_left_alone", a_newer_store_is_left_alone),
    ("a_store_from_another_cluster_is_refused_until_init_makes_it_another", a_store_from_elsewhere),
    ("init_on_a_standby_names_the_primary", init_on_a_standby_names_the_primary),
];

fn missing_tables_are_told_and_made_by_init(servers: &Servers) {
    let site = servers.bare();
    for arguments in [&["ls"][..], &["run", "x", "-n", "--", "true"], &["acquire", "x"]] {
        let run = site.world.run(arguments);
        run.assert_code(69);
        assert!(run.stderr.contains("`cerrojo store init`"), "{run:?}");
        assert_eq!(run.stderr.matches("does not exist").count(), 1, "said once: {run:?}");
        assert_eq!(run.stderr.lines().count(), 1, "{run:?}");
    }
    let made = answer(&site.owner().run(&["store", "init", "--grant", CLIENT, "--json"]));
    assert_eq!(made["tables"], true);
    site.world.run_script(&["x", "-n"], "true").assert_code(0);
}

fn init_again_changes_nothing_and_stops_nobody(servers: &Servers) {
    let site = servers.store();
    let holder = site.world.hold("held");
    let before = answer(&site.world.run(&["acquire", "x", "--ttl", "1m"]));
    for _ in 0..2 {
        let run = site.owner().run(&["store", "init"]);
        run.assert_code(0);
        assert_eq!(run.stdout, "the tables are there and up to date\n");
    }
    site.world.run(&["run", "x", "-n", "--", "true"]).assert_code(75);
    let after = answer(&site.world.run(&["acquire", "y"]));
    assert_eq!(after["store_id"], before["store_id"]);
    assert!(token(&after) > token(&before), "{before} {after}");
    site.world.let_go();
    holder.finish().assert_code(0);
}

fn token(answer: &Value) -> u64 {
    answer["token"].as_str().unwrap().parse().unwrap()
}

fn inits_that_start_at_once_all_succeed(servers: &Servers) {
    let site = servers.bare();
    let owner = site.owner();
    let start = |_| owner.start(&["store", "init", "--grant", CLIENT]);
    let runs: Vec<Running> = (0..8).map(start).collect();
    runs.into_iter().for_each(|run| run.finish().assert_code(0));
    site.world.run_script(&["x"], "true").assert_code(0);
}

fn init_without_the_right_says_which_it_takes(servers: &Servers) {
    let site = servers.bare();
    let refused = site.world.run(&["store", "init"]);
    refused.assert_code(69);
    assert!(refused.stderr.contains("CREATE on the database"), "{refused:?}");
    assert_eq!(site.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'SCHEMA'"), "0");
    // Nor may who only uses a store replace it.
    let site = servers.store();
    let refused = site.world.run(&["store", "init", "--json"]);
    refused.assert_code(69);
    assert!(refused.stderr.contains("\"kind\":\"invalid\""), "{refused:?}");
    assert!(refused.stderr.contains("owns the schema"), "{refused:?}");
}

fn a_role_without_a_grant(servers: &Servers) {
    let site = servers.store();
    let stranger = World::on(site.url(STRANGER));
    let refused = stranger.run(&["run", "x", "--", "true"]);
    refused.assert_code(69);
    assert!(refused.stderr.contains("`cerrojo store init --grant ROLE`"), "{refused:?}");
    site.owner().run(&["store", "init", "--grant", STRANGER, "--grant", CLIENT]).assert_code(0);
    stranger.run_script(&["x"], "true").assert_code(0);
    site.world.run_script(&["x"], "true").assert_code(0);
}

fn a_role_that_does_not_exist_makes_nothing(servers: &Servers) {
    let site = servers.bare();
    let refused = site.owner().run(&["store", "init", "--grant", "nobody-at-all"]);
    refused.assert_code(69);
    assert!(refused.stderr.contains("nobody-at-all"), "{refused:?}");
    assert_eq!(site.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'SCHEMA'"), "0");
}

/// It is printed by somebody who reaches no server.
fn printed_sql(servers: &Servers) {
    let site = servers.bare();
    let nowhere = format!("postgres://u:hush-hush@127.0.0.1:1/app?schema={}", site.schema);
    let print = ["store", "init", "--print", "--grant", CLIENT];
    let printed = World::on(nowhere).run(&print);
    printed.assert_code(0);
    assert!(!printed.stdout.contains("hush-hush"), "{printed:?}");
    site.server.superuser_sql(&printed.stdout).unwrap();
    site.world.run_script(&["x"], "true").assert_code(0);
    site.server.superuser_sql(&printed.stdout).unwrap();
    let as_json = answer(&site.world.run(&[&print[..], &["--json"]].concat()));
    assert_eq!(as_json["sql"].as_str().unwrap().trim_end(), printed.stdout.trim_end());
}

fn a_newer_store_is_left_alone(servers: &Servers) {
    let site = servers.store();
    site.sql("UPDATE SCHEMA.lock_store SET version = 99");
    for arguments in [&["store", "init"][..], &["ls"], &["run", "x", "--", "true"]] {
        let refused = site.owner().run(arguments);
        refused.assert_code(69);
        assert!(refused.stderr.contains("99"), "{refused:?}");
    }
    assert_eq!(site.sql("SELECT version FROM SCHEMA.lock_store"), "99");
}

/// As pg_upgrade or a dump leave it: another cluster has another identifier, and its timelines begin anew.
fn a_store_from_elsewhere(servers: &Servers) {
    let site = servers.store();
    let before = answer(&site.world.run(&["acquire", "x"]));
    site.sql("UPDATE SCHEMA.lock_store SET cluster = cluster + 1");
    for arguments in [&["ls", "--json"][..], &["run", "x", "--json", "--", "true"]] {
        let refused = site.world.run(arguments);
        refused.assert_code(69);
        assert!(refused.stderr.contains("\"kind\":\"corrupt\""), "{refused:?}");
        assert!(refused.stderr.contains("`cerrojo store init`"), "{refused:?}");
    }
    for name in ["y", "z"] {
        site.owner().run(&["store", "init"]).assert_code(0);
        let stored = site.sql("SELECT replace(store_id::text, '-', '') FROM SCHEMA.lock_store");
        let after = answer(&site.world.run(&["acquire", name]));
        assert_eq!(after["store_id"], stored);
        assert_ne!(after["store_id"], before["store_id"]);
    }
}

fn init_on_a_standby_names_the_primary(_: &Servers) {
    let primary = builder().start().unwrap();
    let standby: PostgresServer = builder().standby_of(&primary).start().unwrap();
    let world = World::on(standby.url("postgres", "app"));
    let refused = world.run(&["store", "init", "--json"]);
    refused.assert_code(69);
    assert!(refused.stderr.contains("name the primary"), "{refused:?}");
    assert!(refused.stderr.contains("\"kind\":\"invalid\""), "{refused:?}");
}
