//! What an answer is without a token.

use serde_json::Value;

use crate::{
    served::Trials,
    servers::{Servers, check_token},
    world::eventually,
};

pub(crate) const TRIALS: Trials = &[
    ("a_command_gets_no_token_and_no_store_id", a_command_gets_no_token_and_no_store_id),
    ("holding_without_a_command_tells_no_token", holding_without_a_command_tells_no_token),
    ("fenced_refuses_it", fenced_refuses_it),
    ("there_is_nothing_to_make", there_is_nothing_to_make),
];

fn a_command_gets_no_token_and_no_store_id(servers: &Servers) {
    let site = servers.store();
    let script = "echo $CERROJO_LOCK ${CERROJO_TOKEN-none} ${CERROJO_STORE_ID-none}; exit 7";
    let run = site.world.run_script(&["x"], script);
    run.assert_code(7);
    assert_eq!(run.stdout, "x none none\n");
    site.world.run(&["show", "x"]).assert_code(1);
}

fn holding_without_a_command_tells_no_token(servers: &Servers) {
    let site = servers.store();
    let holder = site.world.start(&["run", "x", "--json"]);
    eventually("it says that it holds", || holder.told().ends_with('\n'));
    let held: Value = serde_json::from_str(&holder.told()).unwrap();
    check_token(&held);
    holder.signal(rustix::process::Signal::TERM);
    holder.finish().assert_code(0);
}

fn fenced_refuses_it(servers: &Servers) {
    let site = servers.store();
    let own = std::process::id().to_string();
    let cases: &[&[&str]] = &[
        &["run", "x", "--fenced", "--", "touch", "ran"],
        &["acquire", "x", "--fenced"],
        &["acquire", "x", "--fenced", "--pid", &own],
    ];
    for arguments in cases {
        let run = site.world.run(arguments);
        run.assert_code(69);
        assert!(run.stderr.contains("no fencing token"), "{run:?}");
    }
    assert!(!site.world.path("ran").exists());
    site.world.run(&["show", "x"]).assert_code(1);
}

fn there_is_nothing_to_make(servers: &Servers) {
    let site = servers.store();
    site.world.run(&["store", "init"]).assert_code(0);
    site.world.run(&["store", "init", "--grant", "somebody"]).assert_code(69);
}
