//! Others who write to our keys.

use cerrojo::{ErrorKind, Instant, LeaseState, clock, spi::Break};
use cerrojo_testbed::Process;
use libtest_mimic::{Failed, Trial};

use crate::{
    child,
    site::{LONG, Outcome, Site, check_error, goes_on, is_lost, kind, millis, trial, ttl},
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_key_deleted_by_hand_ends_an_overlap_at_the_first_holders_next_renewal", deleted),
        trial("a_key_overwritten_by_a_stranger_is_lost_and_left_alone", overwritten),
        trial("a_key_of_another_type_is_told_and_left_alone", wrong_type),
    ]
}

/// The short form, or the long one with `CERROJO_TEST_LONG`: the TTL, the time between two deletions in ms, their number.
fn form() -> (u64, u64, u32) {
    match std::env::var_os("CERROJO_TEST_LONG") {
        None => (2_000, 1_200, 9),
        Some(_) => (5_000, 3_000, 20),
    }
}

/// One stay of a process at the lock, on the machine's clock.
#[derive(Clone, Copy, Debug)]
struct Stay {
    from: Instant,
    to: Instant,
    /// The end of validity that was known of before it read lost.
    lost_before: Option<Instant>,
}

async fn deleted() -> Outcome {
    let site = Site::start()?;
    let (ttl_ms, pause_ms, deletions) = form();
    let members = (0..5).map(|number| child::member(&site.url(""), number, ttl_ms));
    let mut members: Vec<_> = members.collect::<Result<_, _>>()?;
    for _ in 0..deletions {
        clock::sleep(millis(pause_ms)).await;
        site.server.command(&["DEL", "cerrojo:{job}"])?;
    }
    members.iter_mut().for_each(Process::hang_up);
    let mut stays = Vec::new();
    for member in &members {
        stays.extend(read(&member.rest(LONG)?)?);
    }
    stays.sort_by_key(|stay| stay.from);
    check_overlaps(&stays, millis(ttl_ms));
    Ok(())
}

/// A member's stays; its own lock was held and renewed all the time.
fn read(said: &[String]) -> Result<Vec<Stay>, Failed> {
    let (mut stays, mut from) = (Vec::new(), None);
    for line in said {
        let words: Vec<&str> = line.split(' ').collect();
        let at = |index: usize| words[index].parse().map(Instant::from_nanos);
        match words[0] {
            "in" => from = Some(at(1)?),
            "out" => stays.push(Stay { from: from.ok_or("in?")?, to: at(1)?, lost_before: None }),
            "lost" => {
                let (to, until) = (at(1)?, at(2)?);
                stays.push(Stay { from: from.ok_or("in?")?, to, lost_before: Some(until) });
            }
            "own" => {
                assert_eq!(words[1], "Held", "its own lock: {said:?}");
                assert!(words[2].parse::<u32>()? >= 8, "{} renewals of its own lock", words[2]);
                return Ok(stays);
            }
            _ => return Err(line.as_str().into()),
        }
    }
    Err(format!("a member ended early: {said:?}").into())
}

fn check_overlaps(stays: &[Stay], ttl: std::time::Duration) {
    let (mut overlaps, mut by_renewal) = (0, 0);
    for (at, first) in stays.iter().enumerate() {
        let Some(next) = stays[at + 1..].iter().find(|next| next.from < first.to) else { continue };
        overlaps += 1;
        let until =
            first.lost_before.unwrap_or_else(|| panic!("{first:?} was not told of {next:?}"));
        let end = first.to.min(until);
        assert!(end.since(next.from) < ttl, "{first:?} and {next:?}");
        by_renewal += u32::from(first.to < until);
    }
    assert!(overlaps > 0, "nobody entered beside a holder: {stays:?}");
    // The end of validity is there for those who cannot ask.
    assert!(by_renewal * 2 > overlaps, "{by_renewal} of {overlaps} were told by a renewal");
}

async fn overwritten() -> Outcome {
    let site = Site::start()?;
    let locks = site.locks().await?;
    let key = "cerrojo:{a}";
    let is_theirs = || Ok::<_, Failed>(site.server.command(&["GET", key])? == "stranger");
    let released = locks.acquire("a").await?;
    site.server.command(&["SET", key, "stranger", "EX", "60"])?;
    assert_eq!(kind(released.release().await), Some(ErrorKind::Lost));
    assert!(is_theirs()?);
    site.server.command(&["DEL", key])?;
    let renewed = locks.acquire("a").ttl(ttl(30_000)).await?;
    let (name, owner) = (renewed.name().clone(), renewed.owner());
    site.server.command(&["SET", key, "stranger", "EX", "60"])?;
    assert_eq!(kind(locks.resume(&name, owner, ttl(30_000)).await), Some(ErrorKind::Lost));
    let held = locks.acquire("b").ttl(ttl(2_000)).await?;
    let until = held.valid_until().ok_or("lost at once")?;
    site.server.command(&["SET", "cerrojo:{b}", "stranger", "EX", "60"])?;
    is_lost(&held).await?;
    assert!(Instant::now() < until + ttl(2_000).get());
    drop(renewed);
    assert_eq!(kind(locks.acquire("a").wait(millis(500)).await), Some(ErrorKind::Contended));
    assert!(is_theirs()?);
    Ok(())
}

async fn wrong_type() -> Outcome {
    let site = Site::start()?;
    let locks = site.locks().await?;
    let other = locks.acquire("other").ttl(ttl(3_000)).await?;
    site.server.command(&["RPUSH", "cerrojo:{a}", "mine"])?;
    let name = "a".parse()?;
    let (invalid, words) = ([ErrorKind::Invalid], ["WRONGTYPE", "choose another name or prefix"]);
    let errors = [
        locks.try_acquire("a").await.unwrap_err(),
        locks.acquire("a").wait(LONG).await.unwrap_err(),
        locks.holder(&name).await.unwrap_err(),
        locks.break_lock(&name, Break::Now).await.unwrap_err(),
        locks.resume(&name, other.owner(), ttl(1_000)).await.unwrap_err(),
    ];
    for error in &errors {
        check_error(error, &invalid, &words)?;
    }
    assert_eq!(site.server.command(&["LRANGE", "cerrojo:{a}", "0", "-1"])?, "mine");
    assert_eq!(locks.list(None, 10).await?.len(), 1);
    goes_on(&other).await?;
    assert_eq!(other.state(), LeaseState::Held);
    Ok(other.release().await?)
}
