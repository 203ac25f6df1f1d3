//! A grant waits until the transaction ends, whatever the clocks say.

use cerrojo::{ErrorKind, LeaseState, clock, spi::Break};
use tokio::task::JoinHandle;

use crate::site::{LONG, NAME, Outcome, Site, soon, ttl, until};

/// Stays inside, at work, and sees that nobody comes in meanwhile.
async fn stay<T>(client: &tokio_postgres::Client, entering: &JoinHandle<T>) -> Outcome {
    for _ in 0..12 {
        client.batch_execute("SELECT pg_sleep(0.25)").await?;
        assert!(!entering.is_finished(), "a grant came before the transaction had ended");
    }
    Ok(())
}

pub(crate) async fn an_acquire_after_the_expiry_waits_for_the_transaction(site: Site) -> Outcome {
    let ((store, locks), mut client) = (site.locks().await?, site.client().await?);
    let other = site.locks().await?.1;
    let guard = locks.acquire(NAME).ttl(ttl(2_500)).await?;
    let transaction = store.transaction(&guard, &mut client).await?;
    transaction.execute(&site.add_one(), &[]).await?;
    let name = guard.name().clone();
    // It may have ended already.
    drop(guard.detach().await);
    let entering = tokio::spawn(async move { other.acquire(NAME).wait(LONG).await });
    stay(&transaction, &entering).await?;
    assert!(locks.holder(&name).await?.is_none(), "the lease has not ended");
    transaction.commit().await?;
    let guard = soon("a grant", entering).await???;
    assert_eq!(site.balance()?, 1);
    Ok(guard.release().await?)
}

pub(crate) async fn a_hand_over_waits_for_the_transaction(site: Site) -> Outcome {
    let ((store, locks), mut client) = (site.locks().await?, site.client().await?);
    let guard = locks.acquire(NAME).ttl(ttl(60_000)).await?;
    let transaction = store.transaction(&guard, &mut client).await?;
    transaction.execute(&site.add_one(), &[]).await?;
    let other = site.locks().await?.1;
    let entering = tokio::spawn(async move { other.acquire(NAME).wait(LONG).await });
    let waiting = format!("SELECT count(*) FROM cerrojo.{}_waiter", site.table);
    until("a waiter", async || Ok(site.server.superuser_sql(&waiting)? == "1")).await?;
    let releasing = tokio::spawn(guard.release());
    stay(&transaction, &entering).await?;
    transaction.commit().await?;
    // It is asked for longer than a call may take.
    if let Err(error) = soon("a release", releasing).await?? {
        assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
    }
    let guard = soon("a grant", entering).await???;
    assert_eq!(site.balance()?, 1);
    Ok(guard.release().await?)
}

pub(crate) async fn a_break_waits_for_the_transaction(site: Site) -> Outcome {
    let ((store, locks), mut client) = (site.locks().await?, site.client().await?);
    let guard = locks.acquire(NAME).ttl(ttl(60_000)).await?;
    let transaction = store.transaction(&guard, &mut client).await?;
    transaction.execute(&site.add_one(), &[]).await?;
    let breaking = site.locks().await?.1;
    let breaking = tokio::spawn(async move {
        // Each try has a time limit, and says so.
        while breaking.break_lock(&NAME.parse().unwrap(), Break::Now).await.is_err() {}
        breaking.acquire(NAME).wait(LONG).await
    });
    stay(&transaction, &breaking).await?;
    transaction.commit().await?;
    let other = soon("a grant", breaking).await???;
    assert!(other.token() > guard.token());
    assert_eq!(site.balance()?, 1);
    Ok(())
}

pub(crate) async fn a_transaction_of_three_ttls_keeps_its_lease(site: Site) -> Outcome {
    let ((store, locks), mut client) = (site.locks().await?, site.client().await?);
    let guard = locks.acquire(NAME).ttl(ttl(1_500)).await?;
    let transaction = store.transaction(&guard, &mut client).await?;
    let before = guard.renewals();
    for _ in 0..9 {
        transaction.batch_execute("SELECT pg_sleep(0.5)").await?;
    }
    transaction.execute(&site.add_one(), &[]).await?;
    assert!(guard.renewals() >= before + 3, "{} renewals", guard.renewals() - before);
    assert_eq!(guard.state(), LeaseState::Held);
    transaction.commit().await?;
    clock::within(LONG, guard.release()).await??;
    assert_eq!(site.balance()?, 1);
    Ok(())
}
