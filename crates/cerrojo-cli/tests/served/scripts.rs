//! Every command, as scripts call it.

use serde_json::Value;

use super::{Trials, as_owner};
use crate::{
    servers::{Servers, check_token},
    world::{answer, eventually},
};

pub(crate) const TRIALS: Trials = &[
    ("a_script_acquires_renews_and_releases", a_script_acquires_renews_and_releases),
    ("a_lock_is_listed_shown_and_broken", a_lock_is_listed_shown_and_broken),
    ("a_lock_is_kept_for_a_process", a_lock_is_kept_for_a_process),
    ("every_command_works", every_command_works),
];

fn a_script_acquires_renews_and_releases(servers: &Servers) {
    let site = servers.store();
    let world = &site.world;
    let first = answer(&world.run(&["acquire", "x", "--ttl", "1m"]));
    check_token(&first);
    assert_eq!(first["ttl_ms"], 60_000);
    assert!(first["valid_for_ms"].as_u64().is_some_and(|valid| valid < 60_000), "{first}");
    world.run(&["acquire", "x", "-n"]).assert_code(75);
    let renewed = answer(&as_owner(world, &first, &["renew", "x", "--ttl", "2m"]));
    for key in ["owner", "token", "store_id"] {
        assert_eq!(renewed[key], first[key]);
    }
    assert_eq!(renewed["ttl_ms"], 120_000);
    as_owner(world, &first, &["release", "x"]).assert_code(0);
    as_owner(world, &first, &["release", "x"]).assert_code(79);
    as_owner(world, &first, &["renew", "x"]).assert_code(79);
}

fn a_lock_is_listed_shown_and_broken(servers: &Servers) {
    let site = servers.store();
    let world = &site.world;
    let names = ["a {b} 'c' \"d\"", "x", "x/1"];
    let holders = names.map(|name| answer(&world.run(&["acquire", name])));
    let listed = world.run(&["ls", "--json"]).stdout;
    let listed: Vec<Value> =
        listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(listed.iter().map(|lock| &lock["name"]).collect::<Vec<_>>(), names);
    let shown = answer(&world.run(&["show", "x", "--json"]));
    check_token(&shown);
    assert_eq!(shown["token"], holders[1]["token"]);
    assert_eq!(shown["pid"], std::process::id());
    assert_eq!(shown["owner"].as_str().unwrap(), &holders[1]["owner"].as_str().unwrap()[..8]);
    assert!(shown["ends_in_ms"].as_u64().unwrap() <= 30_000, "{shown}");
    assert_eq!(world.run(&["ls", "x/"]).stdout.lines().count(), 1);
    assert_eq!(answer(&world.run(&["break", "x", "--yes", "--json"]))["free"], "at_expiry");
    assert_eq!(answer(&world.run(&["show", "x", "--json"]))["broken"], true);
    as_owner(world, &holders[1], &["renew", "x"]).assert_code(79);
    world.run(&["break", "x/1", "--yes", "--now"]).assert_code(0);
    world.run(&["show", "x/1"]).assert_code(1);
}

fn a_lock_is_kept_for_a_process(servers: &Servers) {
    let site = servers.store();
    let world = &site.world;
    let own = std::process::id().to_string();
    let kept = answer(&world.run(&["acquire", "x", "--pid", &own, "--ttl", "1s"]));
    // It is renewed: nobody else enters for as long as two TTLs.
    world.run(&["acquire", "x", "-w", "2s"]).assert_code(75);
    as_owner(world, &kept, &["release", "x"]).assert_code(0);
    let keeper = format!("/proc/{}", kept["keeper_pid"]);
    eventually("the keeper ends", || !std::path::Path::new(&keeper).exists());
}

fn every_command_works(servers: &Servers) {
    let site = servers.store();
    let world = &site.world;
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
        (&["store", "init", "--print"], 0),
    ];
    for (arguments, code) in cases {
        world.run(arguments).assert_code(*code);
    }
}
