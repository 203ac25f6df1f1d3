//! What is known of a transaction that has ended.

use std::{future::Future as _, pin::pin, task::Poll};

use cerrojo::{ErrorKind, fence::Stale};
use cerrojo_testbed::{Direction, Proxy};

use crate::{
    entering::{overtake, stale},
    site::{LONG, NAME, Outcome, Site, client, ttl, until},
};

pub(crate) async fn a_transaction_that_is_dropped_changes_nothing_and_leaves_the_connection_fit(
    site: Site,
) -> Outcome {
    let ((store, locks), mut client) = (site.locks().await?, site.client().await?);
    let guard = locks.acquire(NAME).ttl(ttl(60_000)).await?;
    let transaction = store.transaction(&guard, &mut client).await?;
    transaction.execute(&site.add_one(), &[]).await?;
    drop(transaction);
    let transaction = store.transaction(&guard, &mut client).await?;
    transaction.execute(&site.add_one(), &[]).await?;
    transaction.rollback().await?;
    client.batch_execute(&site.add_one()).await?;
    assert_eq!(site.balance()?, 1);
    // The row is nobody's any more.
    Ok(guard.release().await?)
}

pub(crate) async fn a_transaction_dropped_while_it_begins_leaves_the_connection_fit(
    site: Site,
) -> Outcome {
    let ((store, locks), mut client) = (site.locks().await?, site.client().await?);
    let guard = locks.acquire(NAME).ttl(ttl(60_000)).await?;
    for polls in 0..4 {
        let mut beginning = pin!(store.transaction(&guard, &mut client));
        for _ in 0..polls {
            let poll = std::future::poll_fn(|cx| Poll::Ready(beginning.as_mut().poll(cx))).await;
            if poll.is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    client.batch_execute(&site.add_one()).await?;
    assert_eq!(site.balance()?, 1);
    Ok(guard.release().await?)
}

pub(crate) async fn a_transaction_with_a_failed_statement_is_not_committed(site: Site) -> Outcome {
    let ((store, locks), mut client) = (site.locks().await?, site.client().await?);
    let guard = locks.acquire(NAME).ttl(ttl(60_000)).await?;
    let transaction = store.transaction(&guard, &mut client).await?;
    transaction.execute(&site.add_one(), &[]).await?;
    assert!(transaction.batch_execute("SELECT 1 / 0").await.is_err());
    let error = transaction.commit().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    client.batch_execute(&site.add_one()).await?;
    assert_eq!(site.balance()?, 1);
    Ok(())
}

/// The holder is alive and renews, but its transaction was idle.
pub(crate) async fn a_commit_after_the_server_ended_the_session_says_that_nothing_was_done(
    site: Site,
) -> Outcome {
    let ((store, locks), mut client) = (site.locks().await?, site.client().await?);
    let guard = locks.acquire(NAME).ttl(ttl(1_500)).await?;
    let transaction = store.transaction(&guard, &mut client).await?;
    transaction.execute(&site.add_one(), &[]).await?;
    until("the end of the session", async || Ok(transaction.is_closed())).await?;
    let error = transaction.commit().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(site.balance()?, 0);
    Ok(guard.release().await?)
}

pub(crate) async fn a_commit_after_the_lock_went_to_another_says_stale(site: Site) -> Outcome {
    let ((store, locks), mut client) = (site.locks().await?, site.client().await?);
    let guard = locks.acquire(NAME).ttl(ttl(1_500)).await?;
    let transaction = store.transaction(&guard, &mut client).await?;
    transaction.execute(&site.add_one(), &[]).await?;
    until("the end of the session", async || Ok(transaction.is_closed())).await?;
    let other = overtake(&site).await?;
    let error = transaction.commit().await.unwrap_err();
    let both = Stale { presented: guard.token().get(), highest: other.token().get() };
    assert_eq!((error.kind(), stale(&error)), (ErrorKind::Lost, Some(both)), "{error}");
    assert_eq!(site.balance()?, 0);
    Ok(())
}

pub(crate) async fn a_cut_during_the_commit_says_indeterminate(site: Site) -> Outcome {
    let (store, locks) = site.locks().await?;
    let proxy = Proxy::start(site.server.port())?;
    let mut client = client(&site.client_url_at(proxy.port())).await?;
    let guard = locks.acquire(NAME).ttl(ttl(60_000)).await?;
    let transaction = store.transaction(&guard, &mut client).await?;
    // Without a statement to be closed, so that the next answer is that to the commit.
    transaction.batch_execute(&site.add_one()).await?;
    proxy.cut_after(Direction::ToClient, 0)?;
    let error = cerrojo::clock::within(LONG, transaction.commit()).await?.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
    assert_eq!(site.balance()?, 1, "the server had answered");
    Ok(())
}
