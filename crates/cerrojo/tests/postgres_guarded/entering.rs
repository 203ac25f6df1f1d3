//! Who may enter.

use std::error::Error as _;

use cerrojo::{Claim, Error, ErrorKind, FencedGuard, clock, fence::Stale, spi::Break};
use tokio_postgres::IsolationLevel;

use crate::site::{LONG, Locks, NAME, Outcome, Site, millis, rounds, soon, ttl, until};

/// Takes the lock from whoever has it, as another process would.
pub(crate) async fn overtake(site: &Site) -> Outcome<FencedGuard> {
    let (_, locks) = site.locks().await?;
    locks.break_lock(&NAME.parse()?, Break::Now).await?;
    Ok(locks.acquire(NAME).wait(LONG).await?)
}

pub(crate) fn stale(error: &Error) -> Option<Stale> {
    error.source()?.downcast_ref().copied()
}

pub(crate) async fn a_holder_that_was_overtaken_is_told_both_tokens_and_changes_nothing(
    site: Site,
) -> Outcome {
    let ((store, locks), mut client) = (site.locks().await?, site.client().await?);
    let old = locks.acquire(NAME).ttl(ttl(60_000)).await?;
    let claim = old.claim();
    let new = overtake(&site).await?;
    let error = store.transaction(claim.clone(), &mut client).await.unwrap_err();
    let both = Stale { presented: claim.token.get(), highest: new.token().get() };
    assert_eq!((error.kind(), stale(&error)), (ErrorKind::Lost, Some(both)), "{error}");
    let transaction = client.transaction().await?;
    let error = store.enter(claim, &transaction).await.unwrap_err();
    assert_eq!((error.kind(), stale(&error)), (ErrorKind::Lost, Some(both)), "{error}");
    assert!(transaction.execute(&site.add_one(), &[]).await.is_err());
    transaction.rollback().await?;

    let transaction = store.transaction(&new, &mut client).await?;
    transaction.execute(&site.add_one(), &[]).await?;
    transaction.commit().await?;
    assert_eq!(site.balance()?, 1);
    Ok(())
}

/// The claim of a lease that nobody renews, and that has ended when this returns.
async fn ended(locks: &Locks) -> Outcome<Claim> {
    let guard = locks.acquire(NAME).ttl(ttl(50)).await?;
    let claim = guard.claim();
    // It may have ended already.
    drop(guard.detach().await);
    until("the end of the lease", async || Ok(locks.holder(&claim.name).await?.is_none())).await?;
    Ok(claim)
}

pub(crate) async fn a_lock_that_has_ended_is_lost_and_nothing_is_changed(site: Site) -> Outcome {
    let ((store, locks), mut client) = (site.locks().await?, site.client().await?);
    let claim = ended(&locks).await?;
    let error = store.transaction(claim, &mut client).await.unwrap_err();
    assert_eq!((error.kind(), stale(&error)), (ErrorKind::Lost, None), "{error}");
    // The connection is in no transaction any more.
    client.batch_execute(&site.add_one()).await?;
    assert_eq!(site.balance()?, 1);
    Ok(())
}

pub(crate) async fn a_claim_of_another_store_is_refused(site: Site) -> Outcome {
    let ((store, _), mut client) = (site.locks().await?, site.client().await?);
    let other = site.another().await?;
    let guard = other.locks().await?.1.acquire(NAME).await?;
    let error = store.transaction(&guard, &mut client).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    Ok(())
}

pub(crate) async fn what_is_sent_together_with_a_refused_guard_is_refused_with_it(
    site: Site,
) -> Outcome {
    let ((store, locks), mut client) = (site.locks().await?, site.client().await?);
    let claim = ended(&locks).await?;
    let transaction = client.transaction().await?;
    let add = site.add_one();
    let (entered, added) =
        tokio::join!(store.enter(claim, &transaction), transaction.batch_execute(&add));
    assert_eq!(entered.unwrap_err().kind(), ErrorKind::Lost);
    assert!(added.is_err());
    drop(transaction.commit().await);
    assert_eq!(site.balance()?, 0);
    Ok(())
}

pub(crate) async fn a_guarded_transaction_may_be_repeatable_read_or_serializable(
    site: Site,
) -> Outcome {
    let ((store, locks), mut client) = (site.locks().await?, site.client().await?);
    let guard = locks.acquire(NAME).ttl(ttl(60_000)).await?;
    for level in [IsolationLevel::RepeatableRead, IsolationLevel::Serializable] {
        let transaction = client.build_transaction().isolation_level(level).start().await?;
        store.enter(&guard, &transaction).await?;
        transaction.execute(&site.add_one(), &[]).await?;
        transaction.commit().await?;
    }
    client.batch_execute("SET default_transaction_isolation = 'serializable'").await?;
    let transaction = store.transaction(&guard, &mut client).await?;
    transaction.execute(&site.add_one(), &[]).await?;
    transaction.commit().await?;
    assert_eq!(site.balance()?, 3);
    Ok(())
}

/// The guard's look at the row comes while the grant to another is not committed yet: it waits, and then sees the other.
pub(crate) async fn a_guard_that_meets_a_grant_under_way_is_refused(site: Site) -> Outcome {
    let ((store, locks), mut client) = (site.locks().await?, site.client().await?);
    let guard = locks.acquire(NAME).ttl(ttl(60_000)).await?;
    let granting = crate::site::client(&site.server.url("postgres", "app")).await?;
    let table = format!("cerrojo.{}", site.table);
    granting
        .batch_execute(&format!(
            "BEGIN; SELECT FROM {table} WHERE name = '{NAME}' FOR UPDATE;
             UPDATE {table} SET owner = gen_random_uuid(), token = token + 1 WHERE name = '{NAME}'"
        ))
        .await?;
    let claim = guard.claim();
    let entering =
        tokio::spawn(async move { store.transaction(claim, &mut client).await.map(drop) });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%TABLE\\_guard%'";
    let waits = waits.replace("TABLE", &site.table);
    until("a guard that waits", async || {
        Ok(granting.query_one(&waits, &[]).await?.get::<_, i64>(0) == 1)
    })
    .await?;
    granting.batch_execute("COMMIT").await?;
    let error = soon("an answer", entering).await??.unwrap_err();
    let presented = guard.token().get();
    let both = Stale { presented, highest: presented + 1 };
    assert_eq!((error.kind(), stale(&error)), (ErrorKind::Lost, Some(both)), "{error}");
    Ok(())
}

/// Both locks are held; all others ask for both of them all the time.
pub(crate) async fn two_names_in_opposite_order_never_deadlock(site: Site) -> Outcome {
    let (store, locks) = site.locks().await?;
    let guards =
        [locks.acquire("a").ttl(ttl(6_000)).await?, locks.acquire("b").ttl(ttl(6_000)).await?];
    let others = [site.locks().await?.1, site.locks().await?.1];
    let asking = others.map(|locks| {
        tokio::spawn(async move {
            loop {
                let (a, b) = tokio::join!(
                    locks.acquire("a").wait(millis(30)),
                    locks.acquire("b").wait(millis(30))
                );
                assert!(a.is_err() && b.is_err());
            }
        })
    });
    let both = [[0, 1], [1, 0]].map(|order| {
        let (store, claims) = (store.clone(), order.map(|at| guards[at].claim()));
        let (connecting, rounds) = (site.client_url_at(site.server.port()), rounds(100, 3_000));
        async move {
            let mut client = crate::site::client(&connecting).await?;
            for _ in 0..rounds {
                let transaction = client.transaction().await?;
                for claim in &claims {
                    store.enter(claim.clone(), &transaction).await?;
                    clock::sleep(millis(1)).await;
                }
                transaction.commit().await?;
            }
            Outcome::Ok(())
        }
    });
    let [one, two] = both;
    tokio::try_join!(one, two)?;
    for task in asking {
        assert!(!task.is_finished(), "one of the others has failed or was granted a lock");
        task.abort();
    }
    Ok(())
}
