//! The line of a lock whose row is in its holder's transaction.

use std::time::Duration;

use cerrojo::{ErrorKind, Instant, backend::postgres::GuardedTransaction, clock};

use crate::{
    line::{NAME, Waiter, queued},
    site::{LONG, Outcome, Site, connect, kind_of, locker, ttl, until},
};

/// Works in the transaction until then: the server ends one that is idle.
async fn work(transaction: &GuardedTransaction<'_>, mut until: impl FnMut() -> bool) -> Outcome {
    let end = Instant::now() + LONG;
    while !until() {
        assert!(Instant::now() < end, "not within {LONG:?}");
        transaction.simple_query("SELECT").await?;
        clock::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

pub(crate) async fn a_release_waits_for_the_holders_transaction_and_then_hands_over(
    site: Site,
) -> Outcome {
    let store = connect(&site.url("&call_limit_ms=500")).await?;
    let (lockers, newcomer) = (site.lockers(3).await?, site.locks().await?);
    let guard = locker(store.clone()).acquire(NAME).ttl(ttl(6_000)).await?;
    let (claim, mut user) = (guard.claim(), site.user().await?);
    let transaction = store.transaction(&guard, &mut user).await?;
    // The line grows, and renewals pass.
    let mut waiters = queued(&site, &lockers, 30_000).await?;
    let renewals = guard.renewals();
    work(&transaction, || guard.renewals() > renewals).await?;
    waiters.remove(1).abort();
    site.until_waiting(2).await?;
    let answer = newcomer.try_acquire(NAME).await;
    assert_eq!(kind_of(&answer), Some(ErrorKind::Contended), "{answer:?}");
    let release = tokio::spawn(guard.release());
    // Past the limit of a call, when it is left to go on by itself.
    work(&transaction, || release.is_finished()).await?;
    let answer = release.await?;
    assert_eq!(kind_of(&answer), Some(ErrorKind::Indeterminate), "{answer:?}");
    assert!(waiters.iter().all(Waiter::is_waiting), "entered past the transaction");
    assert_eq!(site.owner().await?, Some(claim.owner.to_hex()));
    transaction.commit().await?;
    for waiter in waiters {
        let (guard, _) = waiter.entered().await?;
        assert!(guard.token() > claim.token, "{:?}", guard.token());
        guard.release().await?;
    }
    Ok(())
}

pub(crate) async fn nobody_enters_while_a_transaction_outlives_its_lease(site: Site) -> Outcome {
    let store = connect(&site.url("")).await?;
    let (lockers, newcomer) = (site.lockers(2).await?, site.locks().await?);
    let guard = locker(store.clone()).acquire(NAME).ttl(ttl(5_000)).await?;
    let (claim, mut user) = (guard.claim(), site.user().await?);
    let transaction = store.transaction(&guard, &mut user).await?;
    guard.detach().await?;
    let mut waiters = queued(&site, &lockers, 30_000).await?;
    let pressed = async {
        until("the lease's end", async || Ok(site.owner().await?.is_none())).await?;
        // Nobody has it, and nobody may have it: that is no contention.
        let answer = newcomer.try_acquire(NAME).await;
        assert_eq!(kind_of(&answer), Some(ErrorKind::Unavailable), "{answer:?}");
        Outcome::Ok(())
    };
    let (worked, pressed) = tokio::join!(transaction.simple_query("SELECT pg_sleep(7)"), pressed);
    pressed?;
    worked?;
    assert!(waiters.iter().all(Waiter::is_waiting), "entered past the transaction");
    transaction.commit().await?;
    let (guard, _) = waiters.remove(0).entered().await?;
    assert!(guard.token() > claim.token, "{:?}", guard.token());
    guard.release().await?;
    Ok(waiters.remove(0).entered().await?.0.release().await?)
}
