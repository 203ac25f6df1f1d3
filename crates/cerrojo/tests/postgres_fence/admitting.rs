//! Who passes.

use cerrojo::{Locker, backend::memory::Memory, fence::postgres::TableError, spi::Break};

use crate::site::{LONG, Outcome, RESOURCE, Site, stale, stores, token};

pub(crate) async fn a_smaller_token_is_refused_with_both_numbers_in_the_table(
    site: Site,
) -> Outcome {
    let mut client = site.client().await?;
    for number in [7, 7, 34, 34] {
        site.pass(&mut client, number).await?;
    }
    let refused = site.pass(&mut client, 33).await;
    assert!(
        matches!(refused, Err(TableError::Stale(both)) if both == stale(33, 34)),
        "{refused:?}"
    );
    let max = i64::MAX.unsigned_abs();
    site.pass(&mut client, max).await?;
    let refused = site.pass(&mut client, max - 1).await;
    assert!(matches!(refused, Err(TableError::Stale(both)) if both == stale(max - 1, max)));
    Ok(())
}

/// 33 reads, 34 reads, 33 writes late.
pub(crate) async fn a_read_in_a_transaction_raises_the_fence(site: Site) -> Outcome {
    let (mut old, mut new) = (site.client().await?, site.client().await?);
    let mut read = Vec::new();
    for (client, number) in [(&mut old, 33), (&mut new, 34)] {
        let transaction = client.transaction().await?;
        site.admit(&transaction, number).await?;
        read.push(site.read(&transaction).await?);
        transaction.commit().await?;
    }
    let late = old.transaction().await?;
    assert!(matches!(site.admit(&late, 33).await, Err(TableError::Stale(_))));
    assert!(site.write(&late, read[0] + 1).await.is_err(), "the transaction went on");
    drop(late);
    let transaction = new.transaction().await?;
    site.admit(&transaction, 34).await?;
    site.write(&transaction, read[1] + 1).await?;
    transaction.commit().await?;
    let transaction = new.transaction().await?;
    assert_eq!(site.read(&transaction).await?, 1);
    Ok(())
}

pub(crate) async fn a_token_of_another_store_is_refused_by_the_table_until_the_store_is_adopted(
    site: Site,
) -> Outcome {
    let [a, b] = stores();
    let mut client = site.client().await?;
    let owner = site.client_of("postgres").await?;
    site.pass(&mut client, 34).await?;
    let transaction = client.transaction().await?;
    let refused = site.fence.admit(&transaction, b, RESOURCE, token(35)).await;
    let Err(TableError::OtherStore { resource, expected, presented }) = refused else {
        return Err(format!("{refused:?}").into());
    };
    assert_eq!((resource.as_str(), expected, presented), (RESOURCE, a, b));
    transaction.rollback().await?;

    site.fence.adopt(&owner, a, RESOURCE).await?;
    assert!(matches!(site.pass(&mut client, 33).await, Err(TableError::Stale(_))));
    site.fence.adopt(&owner, b, RESOURCE).await?;
    assert!(matches!(site.pass(&mut client, 35).await, Err(TableError::OtherStore { .. })));
    let transaction = client.transaction().await?;
    site.fence.admit(&transaction, b, RESOURCE, token(1)).await?;
    transaction.commit().await?;
    site.fence.adopt(&owner, b, "never touched").await?;
    let transaction = client.transaction().await?;
    assert!(site.fence.admit(&transaction, a, "never touched", token(1)).await.is_err());
    Ok(())
}

pub(crate) async fn an_admission_that_is_rolled_back_raises_nothing(site: Site) -> Outcome {
    let mut client = site.client().await?;
    site.pass(&mut client, 33).await?;
    let transaction = client.transaction().await?;
    site.admit(&transaction, 34).await?;
    transaction.rollback().await?;
    site.pass(&mut client, 33).await?;
    Ok(())
}

/// The fence knows nothing of where the lock is.
pub(crate) async fn locks_of_any_store_are_fenced(site: Site) -> Outcome {
    let memory = Memory::new();
    let locks = [Locker::new(memory.clone()), Locker::new(memory)];
    let mut client = site.client().await?;
    let old = locks[0].acquire(RESOURCE).await?;
    locks[1].break_lock(old.name(), Break::Now).await?;
    let new = locks[1].acquire(RESOURCE).wait(LONG).await?;
    let transaction = client.transaction().await?;
    site.fence.admit(&transaction, new.store_id(), RESOURCE, new.token()).await?;
    transaction.commit().await?;
    let transaction = client.transaction().await?;
    let refused = site.fence.admit(&transaction, old.store_id(), RESOURCE, old.token()).await;
    assert!(matches!(refused, Err(TableError::Stale(_))), "{refused:?}");
    Ok(())
}
