//! Transactions that are at the fence at the same time.

use std::sync::Arc;

use cerrojo::{clock, fence::postgres::TableError};

use tokio_postgres::IsolationLevel;

use crate::site::{LEVELS, LONG, Outcome, RESOURCE, Site, stores, token};

/// Whether the older holder's token is new to the fence or known: in both cases the newer one waits, and begins anew where its
/// snapshot is from before.
pub(crate) async fn a_newer_holder_waits_for_an_older_one_at_work_and_sees_its_write(
    site: Site,
) -> Outcome {
    let site = Arc::new(site);
    let mut old = site.client().await?;
    let mut number = 10;
    for level in LEVELS {
        for is_known in [false, true] {
            number += 10;
            if is_known {
                site.pass(&mut old, number).await?;
            }
            let at_work = old.transaction().await?;
            site.admit(&at_work, number).await?;
            let there = Arc::clone(&site);
            let newer = tokio::spawn(async move {
                let mut new = there.client().await?;
                let mut is_first = true;
                loop {
                    let transaction =
                        new.build_transaction().isolation_level(level).start().await?;
                    match there.admit(&transaction, number + 1).await {
                        Ok(()) => return Outcome::Ok((there.read(&transaction).await?, is_first)),
                        Err(TableError::Busy { .. }) if is_first => is_first = false,
                        Err(error) => return Err(error.into()),
                    }
                }
            });
            site.until_somebody_waits().await?;
            site.write(&at_work, i64::try_from(number)?).await?;
            at_work.commit().await?;
            let (read, at_once) = clock::within(LONG, newer).await???;
            assert_eq!(read, i64::try_from(number)?, "{level:?}, known: {is_known}");
            let is_fresh = matches!(level, IsolationLevel::ReadCommitted);
            assert_eq!(at_once, is_fresh, "{level:?}, known: {is_known}");
        }
    }
    Ok(())
}

/// The newer one's snapshot is from before the older one's commit, its look at the fence from after it, and nobody waits.
pub(crate) async fn a_newer_snapshot_never_misses_what_an_older_holder_wrote(
    site: Site,
) -> Outcome {
    let (mut old, mut new) = (site.client().await?, site.client().await?);
    site.pass(&mut old, 33).await?;
    for level in LEVELS.into_iter().skip(1) {
        let snapshot = new.build_transaction().isolation_level(level).start().await?;
        assert_eq!(site.read(&snapshot).await?, 0);
        let at_work = old.transaction().await?;
        site.admit(&at_work, 33).await?;
        site.write(&at_work, 0).await?;
        at_work.commit().await?;
        let refused = site.admit(&snapshot, 34).await;
        assert!(matches!(refused, Err(TableError::Busy { .. })), "{level:?}: {refused:?}");
    }
    Ok(())
}

pub(crate) async fn a_crossing_of_two_resources_is_told_and_undone(site: Site) -> Outcome {
    let (mut one, mut two) = (site.client().await?, site.client().await?);
    let (one, two) = (one.transaction().await?, two.transaction().await?);
    let [store, _] = stores();
    site.fence.admit(&one, store, RESOURCE, token(1)).await?;
    site.fence.admit(&two, store, "other", token(1)).await?;
    let (first, second) = tokio::join!(site.fence.admit(&one, store, "other", token(1)), async {
        site.until_somebody_waits().await.unwrap();
        let second = site.fence.admit(&two, store, RESOURCE, token(1)).await;
        if second.is_err() {
            two.rollback().await.unwrap();
        }
        second
    });
    let told = [first, second].into_iter().filter(Result::is_err).collect::<Vec<_>>();
    assert!(matches!(told[..], [Err(TableError::Busy { .. })]), "{told:?}");
    Ok(())
}
