//! Three servers that know nothing of each other.

use cerrojo_testbed::RedisServer;

use crate::{
    served::{Trials, as_owner},
    servers::{PASSWORD, Servers},
    world::{World, answer},
};

pub(crate) const TRIALS: Trials = &[
    ("redlock_runs_and_excludes", redlock_runs_and_excludes),
    ("redlock_serves_every_command", redlock_serves_every_command),
    ("redlock_goes_on_without_one_of_three", redlock_goes_on_without_one_of_three),
    (
        "redlock_says_that_new_servers_have_no_vote_yet",
        redlock_says_that_new_servers_have_no_vote_yet,
    ),
    ("redlock_keeps_to_its_longest_ttl", redlock_keeps_to_its_longest_ttl),
];

/// The options of servers that were started a moment ago, on a machine that may be busy.
const AT_ONCE: &str = "restart_grace_ms=0&node_limit_ms=1000";

/// Servers whose user may do what the documentation says that it must, and no more.
fn started(options: &str) -> (Vec<RedisServer>, World) {
    let rights =
        format!("on >{PASSWORD} ~cerrojo:* &cerrojo:* {} +config|get +script|load", rights());
    let builder = RedisServer::builder().user("locker", &rights);
    let servers: Vec<_> = (0..3).map(|_| builder.start().unwrap()).collect();
    let hosts: Vec<_> = servers.iter().map(RedisServer::address).collect();
    let world = World::on(format!("redlock://locker:{PASSWORD}@{}?{options}", hosts.join(",")));
    (servers, world)
}

/// Those of a single server, but for the one that is for replicas.
fn rights() -> String {
    let page = include_str!("../../../../docs/backends/redis.md");
    let (_, rule) = page.split_once("\nuser locker ").unwrap();
    let (rule, _) = rule.split_once("```").unwrap();
    let words = rule.split_whitespace().filter(|word| word.starts_with('+') && *word != "+wait");
    words.collect::<Vec<_>>().join(" ")
}

fn redlock_runs_and_excludes(_: &Servers) {
    let (_servers, world) = started(&format!("{AT_ONCE}&ttl_max_ms=600000"));
    let script = "echo $CERROJO_LOCK ${CERROJO_TOKEN-none} ${CERROJO_STORE-none}; exit 7";
    let run = world.run_script(&["w"], script);
    run.assert_code(7);
    assert_eq!(run.stdout, "w none none\n");
    let holder = world.hold("x");
    let refused = world.run_script(&["x", "-n"], "true");
    refused.assert_code(75);
    assert!(refused.stderr.contains(&format!("pid {}", holder.id())), "{refused:?}");
    let waiter = world.start_script(&["x"], "true");
    world.let_go();
    holder.finish().assert_code(0);
    waiter.finish().assert_code(0);
}

fn redlock_serves_every_command(_: &Servers) {
    let (servers, world) = started(AT_ONCE);
    let first = answer(&world.run(&["acquire", "x"]));
    answer(&world.run(&["acquire", "y/1"]));
    let has = |server: &&RedisServer| server.command(&["EXISTS", "cerrojo:{x}"]).unwrap() == "1";
    assert!(servers.iter().filter(has).count() >= 2);
    assert_eq!(answer(&as_owner(&world, &first, &["renew", "x"]))["owner"], first["owner"]);
    let listed = world.run(&["ls"]).stdout;
    assert!(listed.contains("x is held") && listed.contains("y/1 is held"), "{listed}");
    assert_eq!(answer(&world.run(&["show", "x", "--json"]))["pid"], std::process::id());
    as_owner(&world, &first, &["release", "x"]).assert_code(0);
    as_owner(&world, &first, &["release", "x"]).assert_code(79);
    world.run(&["show", "x"]).assert_code(1);
    world.run(&["break", "y/1", "--yes", "--now"]).assert_code(0);
    world.run(&["show", "y/1"]).assert_code(1);
    world.run(&["prune"]).assert_code(0);
    world.run(&["store", "init"]).assert_code(0);
}

fn redlock_goes_on_without_one_of_three(_: &Servers) {
    let (servers, world) = started(AT_ONCE);
    let first = answer(&world.run(&["acquire", "x"]));
    // A majority has it now, and after a renewal all have.
    answer(&as_owner(&world, &first, &["renew", "x"]));
    servers[0].kill().unwrap();
    world.run(&["acquire", "x", "-n"]).assert_code(75);
    as_owner(&world, &first, &["release", "x"]).assert_code(0);
    world.run_script(&["x", "-n"], "true").assert_code(0);
    servers[1].kill().unwrap();
    let refused = world.run_script(&["x", "-n"], "true");
    refused.assert_code(69);
    for server in &servers[..2] {
        assert!(refused.stderr.contains(&server.address()), "{refused:?}");
    }
    assert!(!refused.stderr.contains(PASSWORD), "{refused:?}");
}

fn redlock_says_that_new_servers_have_no_vote_yet(_: &Servers) {
    let (_servers, world) = started("node_limit_ms=1000");
    let refused = world.run_script(&["x", "-n"], "true");
    refused.assert_code(69);
    assert!(refused.stderr.contains("no quorum"), "{refused:?}");
    assert!(refused.stderr.contains("no vote for another"), "{refused:?}");
    assert!(refused.stderr.contains("restarted"), "{refused:?}");
    // Who waits gets it when the grace has passed.
    let (_servers, world) = started("ttl_max_ms=3000&node_limit_ms=100");
    world.run_script(&["x", "--ttl", "3s"], "true").assert_code(0);
}

fn redlock_keeps_to_its_longest_ttl(_: &Servers) {
    let (_servers, world) = started(AT_ONCE);
    world.run(&["acquire", "x", "--ttl", "61s"]).assert_code(69);
    let held = answer(&world.run(&["acquire", "x", "--ttl", "1m"]));
    as_owner(&world, &held, &["renew", "x", "--ttl", "61s"]).assert_code(69);
    as_owner(&world, &held, &["renew", "x", "--ttl", "1m"]).assert_code(0);
}
