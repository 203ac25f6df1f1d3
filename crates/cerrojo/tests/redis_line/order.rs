//! Who enters next.

use std::time::Duration;

use cerrojo::{ErrorKind, Instant, clock};

use crate::{
    line::{NAME, Waiter},
    site::{Outcome, Site, kind_of, ttl},
};

pub(crate) use crate::line::order::ten_enter_in_order_and_no_newcomer_overtakes as ten_connections_enter_in_order_and_no_newcomer_overtakes;

/// A lock that is free though somebody waits: its holder's key was deleted by hand.
async fn free_but_waited_for(site: &Site) -> Outcome<Waiter> {
    site.hold_silently(60_000).await?;
    let waiter = Waiter::start(&site.locks().await?, ttl(30_000));
    site.until_waiting(1).await?;
    site.until_at_rest().await?;
    site.free_by_hand().await?;
    assert!(waiter.is_waiting());
    Ok(waiter)
}

pub(crate) async fn a_newcomer_overtakes_only_if_it_may(site: Site) -> Outcome {
    let waiter = free_but_waited_for(&site).await?;
    let answer = site.locks().await?.try_acquire(NAME).await;
    assert_eq!(kind_of(&answer), Some(ErrorKind::Contended), "{answer:?}");
    // Its try was what told the waiter.
    waiter.entered().await?.0.release().await?;

    let waiter = free_but_waited_for(&site).await?;
    let guard = site.locks_with("overtake=yes").await?.try_acquire(NAME).await?;
    clock::sleep(Duration::from_millis(200)).await;
    assert!(waiter.is_waiting(), "two at once");
    guard.release().await?;
    Ok(waiter.entered().await?.0.release().await?)
}

pub(crate) async fn after_an_overtaker_crashed_the_line_goes_on_at_its_ttl(site: Site) -> Outcome {
    let waiter = free_but_waited_for(&site).await?;
    let overtaker = site.locks_with("overtake=yes").await?;
    let guard = overtaker.try_acquire(NAME).ttl(ttl(500)).await?;
    let start = Instant::now();
    guard.detach().await?;
    let (_, waited) = waiter.entered_after(start).await?;
    assert!(waited < Duration::from_secs(3), "entered {waited:?} later");
    Ok(())
}
