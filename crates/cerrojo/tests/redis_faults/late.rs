//! Answers that come when nobody can use them any more.

use cerrojo::{ErrorKind, LeaseState, clock};
use cerrojo_testbed::{Direction, Process};
use libtest_mimic::{Failed, Trial};

use crate::{
    child,
    site::{LONG, Locks, Outcome, Site, eventually, kind, millis, trial, ttl},
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_grant_whose_answer_is_late_is_given_back", late_answer),
        trial("a_request_that_arrives_late_leaves_nothing", late_request),
        trial("a_client_stopped_before_it_reads_is_never_handed_what_has_expired", stopped_client),
        trial("a_stopped_client_that_waits_enters_in_its_turn", stopped_waiter),
    ]
}

/// A server that knows the script of acquire: that it does not know another one must not matter.
async fn warm() -> Result<(Site, Locks, Locks), Failed> {
    let site = Site::start()?;
    let (locks, others) = (site.locks().await?, site.locks().await?);
    drop(others.acquire("other").await?.detach().await);
    Ok((site, locks, others))
}

async fn late_answer() -> Outcome {
    let (site, locks, others) = warm().await?;
    site.proxy.delay(Direction::ToClient, millis(1_200))?;
    let answer = kind(locks.try_acquire("a").ttl(ttl(60_000)).await);
    assert!(matches!(answer, Some(ErrorKind::Indeterminate)), "{answer:?}");
    eventually("no key", || site.has_key("cerrojo:{a}").map(|is_there| !is_there)).await?;
    site.proxy.heal()?;
    let guard = others.acquire("a").ttl(ttl(60_000)).wait(LONG).await?;
    Ok(guard.release().await?)
}

/// Request and giving back arrive in order.
async fn late_request() -> Outcome {
    let (site, locks, others) = warm().await?;
    site.proxy.hold(Direction::ToServer)?;
    let answer = kind(locks.try_acquire("a").ttl(ttl(60_000)).await);
    assert!(matches!(answer, Some(ErrorKind::Indeterminate)), "{answer:?}");
    site.proxy.heal()?;
    let guard = others.acquire("a").ttl(ttl(60_000)).wait(LONG).await?;
    Ok(guard.release().await?)
}

/// A child that is stopped after its request has been granted, and before the answer reaches it.
async fn stopped_with_a_grant(site: &Site, request: &str) -> Result<Process, Failed> {
    let mut child = child::talker(&site.url("call_limit_ms=20000"))?;
    // The server knows the script then: that it does not would be an answer too.
    assert_eq!(child.ask("acquire other 1500 0", LONG)?, "granted");
    site.proxy.hold(Direction::ToClient)?;
    child.say(request)?;
    eventually("the grant", || site.has_key("cerrojo:{a}")).await?;
    child.freeze()?;
    site.proxy.heal()?;
    Ok(child)
}

async fn stopped_client() -> Outcome {
    let site = Site::start()?;
    let mut child = stopped_with_a_grant(&site, "acquire a 1500 0").await?;
    let locks = site.locks().await?;
    let guard = locks.acquire("a").ttl(ttl(60_000)).wait(LONG).await?;
    child.thaw()?;
    let said = child.line(LONG)?;
    assert!(said.starts_with("error contended") || said.starts_with("error unavailable"), "{said}");
    assert_eq!(guard.state(), LeaseState::Held);
    guard.release().await?;
    assert_eq!(child.ask("acquire a 1500 20000", LONG)?, "granted");
    Ok(())
}

/// Also when nobody else has it by then.
async fn stopped_waiter() -> Outcome {
    let site = Site::start()?;
    let mut child = stopped_with_a_grant(&site, "acquire a 1500 60000").await?;
    eventually("the end", || site.has_key("cerrojo:{a}").map(|is_there| !is_there)).await?;
    let locks = site.locks().await?;
    let guard = locks.acquire("a").ttl(ttl(60_000)).wait(LONG).await?;
    child.thaw()?;
    eventually("a place in the line", || site.has_key("cerrojo:{a}:line")).await?;
    clock::sleep(millis(200)).await;
    assert_eq!(guard.state(), LeaseState::Held);
    guard.release().await?;
    assert_eq!(child.line(LONG)?, "granted");
    let left: u64 = child.ask("left a", LONG)?.parse()?;
    assert!(left > 0, "handed out with nothing left");
    Ok(())
}
