//! Many processes, one room: nobody meets anybody. Linux only.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod local_child;

use std::{fs, process::ExitCode, time::Duration};

use cerrojo_testbed::Process;
use libtest_mimic::Failed;
use local_child::{LONG, Rising, child, rounds};

fn main() -> ExitCode {
    local_child::main(&[("processes_never_meet_and_tokens_rise_in_the_order_of_entry", race)])
}

fn race() -> Result<(), Failed> {
    let (processes, tries) = (rounds(8, 50), rounds(100, 2_000));
    // Bounds a race that hangs: far more than a slow machine needs.
    let limit =
        Duration::from_secs(60) + Duration::from_millis(5) * u32::try_from(processes * tries)?;
    let place = tempfile::tempdir()?;
    let start = || Process::spawn(&mut child("race", place.path(), &[&tries.to_string()]));
    let mut racers = (0..processes).map(|_| start()).collect::<Result<Vec<_>, _>>()?;
    for racer in &racers {
        assert_eq!(racer.line(LONG)?, "open");
    }
    for racer in &mut racers {
        racer.say("go")?;
    }
    let mut entered = 0;
    for racer in &racers {
        let said = racer.line(limit)?;
        let count = said.strip_prefix("entered ").and_then(|count| count.parse::<usize>().ok());
        entered += count.ok_or(format!("a racer says {said}"))?;
    }
    let entries = fs::read_to_string(place.path().join("entries"))?;
    let mut tokens = Rising::default();
    entries.lines().for_each(|token| tokens.take(token.parse().unwrap()));
    assert_eq!(entries.lines().count(), entered);
    assert!(entered >= processes * tries / 8, "only {entered} entries");
    Ok(())
}
