//! Who enters next.

use cerrojo::ErrorKind;

use crate::{
    line::{NAME, Waiter, child::Child},
    site::{Outcome, Site, kind_of, ttl},
};

pub(crate) use crate::line::order::ten_enter_in_order_and_no_newcomer_overtakes as ten_stores_enter_in_order_and_no_newcomer_overtakes;

pub(crate) async fn processes_enter_in_order_with_rising_tokens(site: Site) -> Outcome {
    let guard = site.locks().await?.acquire(NAME).await?;
    let (mut children, mut token) = (Vec::new(), guard.token().get());
    for before in 1..=6 {
        let mut child = Child::open(&site.url(""))?;
        child.wait_for_lock(30_000)?;
        site.until_waiting(before).await?;
        children.push(child);
    }
    let mut left = cerrojo::Instant::now();
    guard.release().await?;
    for child in &mut children {
        let entered = child.granted()?;
        assert!(entered.at >= left, "two at once");
        assert!(entered.token > token, "{entered:?} after {token}");
        (left, token) = (cerrojo::Instant::now(), entered.token);
        child.release()?;
    }
    site.until_waiting(0).await
}

/// The lock is free though somebody waits: its row was changed by hand, and nobody was told.
pub(crate) async fn a_newcomer_leaves_a_free_lock_to_the_line(site: Site) -> Outcome {
    site.hold_silently(60_000).await?;
    let (first, newcomer) = (site.locks().await?, site.locks().await?);
    let waiter = Waiter::start(&first, ttl(30_000));
    site.until_waiting(1).await?;
    site.until_at_rest().await?;
    site.free_by_hand().await?;
    let answer = newcomer.try_acquire(NAME).await;
    assert_eq!(kind_of(&answer), Some(ErrorKind::Contended), "{answer:?}");
    // Its try was what told the waiter.
    Ok(waiter.entered().await?.0.release().await?)
}
