//! Waiters that are stopped or cut off when their turn comes.

use std::time::Duration;

use cerrojo::Instant;
use cerrojo_testbed::{Direction, Proxy};

use super::{NAME, PROVISIONAL, SLACK, child::Child};
use crate::site::{Held, Outcome, Site, token_of, ttl};

/// The TTL of all who take part: far longer than any delay that is allowed.
const TTL_MS: u64 = 30_000;

/// A holder, and processes that wait behind it in this order; none of them asks by itself for a while.
pub(crate) async fn queued(site: &Site, urls: &[String]) -> Outcome<(Held, Vec<Child>)> {
    let guard = site.locks().await?.acquire(NAME).ttl(ttl(TTL_MS)).await?;
    let mut children = Vec::new();
    for (before, url) in (1..).zip(urls) {
        let mut child = Child::open(url)?;
        child.wait_for_lock(TTL_MS)?;
        site.until_waiting(before).await?;
        children.push(child);
    }
    site.until_at_rest().await?;
    Ok((guard, children))
}

/// Releases, and says how much later the child entered.
pub(crate) async fn hand_over(guard: Held, next: &Child) -> Outcome<Duration> {
    let (released, token) = (Instant::now(), token_of(&guard));
    guard.release().await?;
    let entered = next.granted()?;
    assert!(entered.at >= released, "entered before the release");
    assert!(entered.remaining > PROVISIONAL / 10, "{entered:?}");
    assert!(entered.token > token || token == 0, "{entered:?} after {token}");
    Ok(entered.at.since(released))
}

/// The first child, which was passed over, enters behind the others, and not together with them.
pub(crate) async fn enters_in_its_turn(site: &Site, children: &mut [Child]) -> Outcome {
    site.until_waiting(2).await?;
    children[1].release()?;
    children[2].granted()?;
    let before = Instant::now();
    children[2].release()?;
    let entered = children[0].granted()?;
    assert!(entered.at >= before, "two at once");
    assert!(entered.remaining > PROVISIONAL / 10, "{entered:?}");
    children[0].release()
}

pub(crate) fn same(site: &Site, count: usize) -> Vec<String> {
    vec![site.url(""); count]
}

pub(crate) async fn a_stopped_head_delays_the_rest_by_two_seconds_and_enters_in_its_turn(
    site: Site,
) -> Outcome {
    let (guard, mut children) = queued(&site, &same(&site, 3)).await?;
    children[0].0.freeze()?;
    let delay = hand_over(guard, &children[1]).await?;
    assert!(delay < PROVISIONAL + SLACK, "{delay:?}");
    // It finds the news that it was the holder, which it is not any more.
    children[0].0.thaw()?;
    enters_in_its_turn(&site, &mut children).await
}

pub(crate) async fn a_head_that_is_cut_off_delays_the_rest_by_two_seconds(site: Site) -> Outcome {
    let proxy = Proxy::start(site.server.port())?;
    let mut urls = same(&site, 3);
    urls[0] = site.url_at(proxy.port(), "");
    let (guard, mut children) = queued(&site, &urls).await?;
    proxy.hold(Direction::ToClient)?;
    proxy.hold(Direction::ToServer)?;
    let delay = hand_over(guard, &children[1]).await?;
    assert!(delay < PROVISIONAL + SLACK, "{delay:?}");
    proxy.heal()?;
    enters_in_its_turn(&site, &mut children).await
}

pub(crate) async fn two_stopped_heads_delay_the_rest_by_four_seconds(site: Site) -> Outcome {
    let (guard, mut children) = queued(&site, &same(&site, 3)).await?;
    children[0].0.freeze()?;
    children[1].0.freeze()?;
    let delay = hand_over(guard, &children[2]).await?;
    assert!(delay < PROVISIONAL * 2 + SLACK, "{delay:?}");
    children[2].release()
}
