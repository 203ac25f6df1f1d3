//! Wall clocks that are wrong, or jump.

use std::process::Command;

use cerrojo::{ErrorKind, FencingToken, Instant, LeaseState, clock};
use cerrojo_testbed::{ClockSkew, PostgresServer, Process};
use libtest_mimic::Trial;

use crate::site::{
    LONG, Outcome, Shared, Site, Waiter, goes_on, is_lost, kind, millis, opened, trial, ttl,
    waiter, works,
};

pub(crate) fn trials(shared: &Shared) -> Vec<Trial> {
    vec![
        shared.trial("clocks_of_clients_five_minutes_apart_change_nothing", apart),
        trial("a_servers_clock_that_jumps_forward_ends_leases_and_nobody_is_stuck", forward),
        trial("a_servers_clock_that_jumps_back_keeps_holders_and_nobody_is_stuck", back),
        trial(
            "a_servers_clock_that_jumps_back_keeps_nobody_out_for_longer_than_the_ttl",
            back_without_a_line,
        ),
    ]
}

/// More than any lease and place of a waiter here.
const JUMP_NANOS: i64 = 300_000_000_000;

async fn apart(site: Site) -> Outcome {
    let (url, skew) = (site.url(""), ClockSkew::new()?);
    skew.set_nanos(JUMP_NANOS)?;
    let mut command = Command::new(std::env::current_exe()?);
    let mut ahead = Process::spawn(skew.apply(command.args(["--child", "talk", &url])))?;
    assert_eq!(ahead.line(LONG)?, "open");
    let mut right = opened(&["talk", &url])?;
    let wall = |child: &mut Process| -> Outcome<i64> { Ok(child.ask("wall", LONG)?.parse()?) };
    assert!(wall(&mut ahead)? - wall(&mut right)? > 280, "no skew");
    for _ in 0..2 {
        hand_over(&site, &mut ahead, &mut right).await?;
        hand_over(&site, &mut right, &mut ahead).await?;
    }
    Ok(())
}

/// One holds past its TTL while the other waits, and gives it over.
async fn hand_over(site: &Site, from: &mut Process, to: &mut Process) -> Outcome {
    let first: u64 = from.ask("acquire a 1500 20000", LONG)?.parse()?;
    assert!(to.ask("acquire a 1500 0", LONG)?.starts_with("error contended"));
    to.say("acquire a 1500 20000")?;
    site.until_waiting("a", 1).await?;
    let start = Instant::now();
    while Instant::now().since(start) < millis(2_000) {
        assert!(from.ask("state a", LONG)?.starts_with("Held"));
        clock::sleep(millis(100)).await;
    }
    assert_eq!(from.ask("release a", LONG)?, "released");
    let next: u64 = to.line(LONG)?.parse()?;
    assert!(next > first);
    assert_eq!(to.ask("release a", LONG)?, "released");
    Ok(())
}

async fn server() -> Outcome<Site> {
    Site::of(&PostgresServer::builder().fast().clock_skew()).await
}

/// Leases have ended by the server's clock: holders learn that from it, before their own validity ends.
async fn forward() -> Outcome {
    let site = server().await?;
    let (locks, others) = (site.direct().await?, site.direct().await?);
    let first = locks.acquire("a").ttl(ttl(9_000)).await?;
    let next = waiter(others, "a", 9_000);
    site.until_waiting("a", 1).await?;
    let until = first.valid_until().ok_or("lost at once")?;
    site.server.set_clock_nanos(JUMP_NANOS)?;
    is_lost(&first).await?;
    assert!(Instant::now() < until, "not told by a renewal");
    let next = next.await??;
    assert!(next.token() > first.token());
    goes_on(&next).await?;
    next.release().await?;
    works(&locks, "a").await
}

/// A lease that is renewed goes on from the server's new time; one whose holder has gone would last as long as the jump,
/// but for the waiter that sees it.
async fn back() -> Outcome {
    let site = server().await?;
    let (locks, others, third) = (site.direct().await?, site.direct().await?, site.direct().await?);
    let held = locks.acquire("held").ttl(ttl(9_000)).await?;
    let left = locks.acquire("left").ttl(ttl(9_000)).await?;
    let (follows_held, follows_left) =
        (waiter(others, "held", 3_000), waiter(third, "left", 3_000));
    site.until_waiting("held", 1).await?;
    site.until_waiting("left", 1).await?;
    let tokens = (held.token(), left.token());
    left.detach().await?;
    site.server.set_clock_nanos(-JUMP_NANOS)?;
    follows(follows_left, tokens.1).await?;
    goes_on(&held).await?;
    assert!(!follows_held.is_finished());
    held.release().await?;
    follows(follows_held, tokens.0).await?;
    works(&locks, "left").await
}

/// Also where nobody stands in the line.
async fn back_without_a_line() -> Outcome {
    let site = server().await?;
    let locks = site.direct().await?;
    locks.acquire("left").ttl(ttl(2_000)).await?.detach().await?;
    site.server.set_clock_nanos(-JUMP_NANOS)?;
    let end = Instant::now() + LONG;
    while kind(locks.try_acquire("left").await) == Some(ErrorKind::Contended) {
        assert!(Instant::now() < end, "held for as long as the jump");
        clock::sleep(millis(50)).await;
    }
    works(&locks, "left").await
}

async fn follows(waiting: Waiter, token: FencingToken) -> Outcome {
    let next = clock::within(LONG, waiting).await???;
    assert!(next.token() > token && next.state() != LeaseState::Lost);
    Ok(next.release().await?)
}
