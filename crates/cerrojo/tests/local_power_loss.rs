//! A power loss costs leases, never the order of tokens. Linux only; needs `cc`.
//!
//! A child runs under a shim that keeps each file as of its last sync, and is killed; the copies are put
//! back, and the next child comes up with another boot id.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod local_child;

use std::{fs::File, path::Path, process::ExitCode, time::Duration};

use cerrojo_testbed::{PowerLoss, Process};
use libtest_mimic::Failed;
use local_child::{LONG, Rising, child, rounds, spread};
use rustix::fs::FlockOperation;

fn main() -> ExitCode {
    local_child::main(&[
        ("tokens_rise_and_leases_end_over_power_losses", losses),
        ("a_power_loss_while_a_store_is_made_leaves_one_that_opens", while_made),
        ("the_shim_can_show_a_loss", shim_bites),
    ])
}

fn start(power: &PowerLoss, store: &Path, boot: usize) -> Process {
    let boot = format!("boot-{boot}");
    Process::spawn(power.apply(&mut child("churn", store, &[&boot]))).unwrap()
}

/// What it said until it was killed. A child that fails says so in its last line.
fn rest(child: &Process) -> Vec<String> {
    let said = child.rest(LONG).unwrap();
    assert!(!said.iter().any(|line| line.starts_with("error")), "{:?}", said.last());
    said
}

/// Of the files that nobody synced, a power loss may spare any.
fn spare(round: usize, name: &Path) -> bool {
    match round % 4 {
        1 => name.ends_with("locks.db"),
        2 => name.ends_with("locks.db-wal"),
        3 => !name.ends_with("locks.db-wal"),
        _ => false,
    }
}

fn losses() -> Result<(), Failed> {
    let place = tempfile::tempdir()?;
    let (power, store) = (PowerLoss::new(place.path())?, place.path().join("store"));
    let mut tokens = Rising::default();
    for round in 0..rounds(10, 200) {
        let mut child = start(&power, &store, round);
        assert_eq!(child.line(LONG)?, "held 0", "round {round}: a reboot frees every lease");
        hear_a_grant(&child, &mut tokens)?;
        spend_reserved_tokens(&store)?;
        child.kill_after(spread(round, Duration::from_millis(300)))?;
        tokens.take_all(&rest(&child));
        power.restore_except(|name| spare(round, name))?;
    }
    Ok(())
}

/// As if another process had been granted nearly all tokens that are reserved, so that the child must reserve more.
///
/// It is no part of what the shim sees, so it must not move anything from the log into the database.
fn spend_reserved_tokens(store: &Path) -> Result<(), Failed> {
    let turn = File::options().append(true).open(store.join("turn"))?;
    rustix::fs::flock(&turn, FlockOperation::LockExclusive)?;
    let database = rusqlite::Connection::open(store.join("locks.db"))?;
    database.execute_batch("PRAGMA wal_autocheckpoint = 0; PRAGMA synchronous = OFF")?;
    database.execute("UPDATE store SET next_token = reserved_to - 20", ())?;
    Ok(())
}

fn hear_a_grant(child: &Process, tokens: &mut Rising) -> Result<(), Failed> {
    loop {
        let line = child.line(LONG)?;
        assert!(!line.starts_with("error"), "{line}");
        if let Some(token) = local_child::token_in(&line) {
            tokens.take(token);
            return Ok(());
        }
    }
}

fn while_made() -> Result<(), Failed> {
    let place = tempfile::tempdir()?;
    let power = PowerLoss::new(place.path())?;
    for round in 0..rounds(12, 200) {
        let store = place.path().join(format!("store-{round}"));
        let mut tokens = Rising::default();
        let mut child = start(&power, &store, 2 * round);
        child.kill_after(spread(round, Duration::from_millis(30)))?;
        tokens.take_all(&rest(&child));
        power.restore_except(|name| spare(round, name))?;
        let again = start(&power, &store, 2 * round + 1);
        assert_eq!(again.line(LONG)?, "held 0");
        hear_a_grant(&again, &mut tokens)?;
    }
    Ok(())
}

/// Without the new boot id the lost commits would show: tokens that were reported come again. This is what keeps
/// the other trials honest.
fn shim_bites() -> Result<(), Failed> {
    let place = tempfile::tempdir()?;
    let (power, store) = (PowerLoss::new(place.path())?, place.path().join("store"));
    let greatest = |child: &mut Process| -> Result<(u64, u64), Failed> {
        let mut tokens = Rising::default();
        hear_a_grant(child, &mut tokens)?;
        let first = tokens.greatest();
        while tokens.greatest() < first + 3 {
            hear_a_grant(child, &mut tokens)?;
        }
        child.kill()?;
        tokens.take_all(&rest(child));
        Ok((first, tokens.greatest()))
    };
    let (_, before) = greatest(&mut start(&power, &store, 0))?;
    power.restore()?;
    let (after, _) = greatest(&mut start(&power, &store, 0))?;
    assert!(after <= before, "unsynced commits survived: {before}, then {after}");
    Ok(())
}
