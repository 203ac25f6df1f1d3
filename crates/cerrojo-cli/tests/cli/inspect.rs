//! `ls`, `show` and `break`.

use cerrojo::{AnyLocker, Options};
use serde_json::Value;

use crate::world::World;

fn objects(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn names(text: &str) -> Vec<String> {
    objects(text).iter().map(|holder| holder["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn show_tells_who_holds_it() {
    let world = World::new();
    let holder = world.hold("x");
    let shown = world.run(&["show", "x", "--json"]);
    shown.assert_code(0);
    let shown = &objects(&shown.stdout)[0];
    assert_eq!(shown["held"], true);
    assert_eq!(shown["pid"], holder.id());
    assert!(shown["token"].as_str().unwrap().parse::<u64>().unwrap() > 0, "tokens are strings");
    assert_eq!(shown["owner"].as_str().unwrap().len(), 8, "an owner id is never shown whole");
    assert!(shown["ends_in_ms"].as_u64().unwrap() <= 600_000);
    assert_eq!(shown["broken"], false);
}

#[test]
fn a_listing_is_by_name_and_by_prefix() {
    let world = World::new();
    let _holders = ["b", "a/2", "a", "a/1"].map(|name| world.hold(name));
    let listed =
        |arguments: &[&str]| names(&world.run(&[&["--json", "ls"], arguments].concat()).stdout);
    assert_eq!(listed(&[]), ["a", "a/1", "a/2", "b"]);
    assert_eq!(listed(&["a"]), ["a", "a/1", "a/2"]);
    assert_eq!(listed(&["a/"]), ["a/1", "a/2"]);
    assert!(listed(&["c"]).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_goes_past_one_page() {
    let world = World::new();
    let store = cerrojo::connect(world.store(), Options::default()).await.unwrap();
    let AnyLocker::Fenced(locks) = store else { panic!("local is fenced") };
    let mut wanted = Vec::new();
    let mut guards = Vec::new();
    for number in 0..1_001 {
        let name = format!("n/{number:04}");
        guards.push(locks.acquire(name.as_str()).await.unwrap());
        wanted.push(name);
    }
    let listed = |arguments: &[&str]| names(&world.run(arguments).stdout);
    assert_eq!(listed(&["ls", "--json"]), wanted);
    assert_eq!(listed(&["ls", "n/0", "--json"]), wanted[..1_000]);
}

#[test]
fn a_broken_lock_is_shown_as_such_until_it_is_free() {
    let world = World::new();
    let _holder = world.hold("x");
    world.run(&["break", "x"]).assert_code(64);
    assert_eq!(objects(&world.run(&["show", "x", "--json"]).stdout)[0]["broken"], false);
    let broken = world.run(&["break", "x", "--yes", "--json"]);
    broken.assert_code(0);
    assert_eq!(objects(&broken.stdout)[0]["free"], "at_expiry");
    assert_eq!(objects(&world.run(&["show", "x", "--json"]).stdout)[0]["broken"], true);
    world.run_script(&["x", "-n"], "true").assert_code(75);
}
