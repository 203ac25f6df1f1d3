//! A TTL begins with the grant: not with the transaction, which may have waited, or be somebody's long one.

use std::{collections::HashSet, sync::Arc};

use crate::{
    session::{Ask, Session, acquire, break_now, key_share, release, renew},
    site::{OnServer, Outcome, Site},
};

const TTL_MS: i64 = 60_000;
const HOLDER: Ask = Ask { name: "a", owner: 1, ttl_ms: 60_000, waits: false };
const WAITER: Ask = Ask { owner: 2, waits: true, ..HOLDER };
/// Of a lock that has been handed over.
const PROVISIONAL_MS: i64 = 2_000;

pub(crate) async fn a_grant_that_had_to_wait_has_its_whole_ttl(site: Site) -> Outcome {
    let (somebody, asker) = (site.session().await?, site.client().await?);
    let mut tries = 0;
    let time = loop {
        somebody.ask("BEGIN; LOCK TABLE \"cerrojo\".\"lock\" IN ACCESS EXCLUSIVE MODE").await?;
        let call = asker.call(&acquire(&[HOLDER]));
        call.settle(&site.session().await?).await?;
        let time = clock(&somebody).await?;
        somebody.ask("COMMIT").await?;
        match call.answer().await {
            Ok(answer) => break (answer == "granted").then_some(time).ok_or(answer)?,
            // The store gives up after a second; a machine may be as slow.
            Err(late) if tries == 5 => return Err(late),
            Err(_) => tries += 1,
        }
    };
    lasts(&somebody, &time, TTL_MS).await
}

/// A lease that ends while it is being asked for: whoever has judged it held by one look at the clock, and free by the next, has not locked
/// the row as a grant must, and walks past a guarded transaction.
pub(crate) async fn a_lease_that_ends_while_it_is_asked_for_is_not_granted_past_a_guard(
    site: Site,
) -> Outcome {
    let (somebody, asker) = (site.session().await?, site.session().await?);
    asker.ask(&acquire(&[HOLDER])).await?;
    somebody.ask(&key_share(HOLDER.name)).await?;
    let ends = "UPDATE \"cerrojo\".\"lock\" SET expires_at = clock_timestamp() + random() * interval '500 us'";
    let mut seen = HashSet::new();
    for _ in 0..3_000 {
        seen.insert(asker.ask(&format!("{ends}; {}", acquire(&[WAITER]))).await?);
    }
    // Both sides of the end were met, and nothing between them.
    assert_eq!(seen, HashSet::from(["busy".to_owned(), "held".to_owned()]));
    somebody.ask("COMMIT").await.map(drop)
}

pub(crate) async fn a_grant_in_a_long_transaction_has_its_whole_ttl(site: Site) -> Outcome {
    long(&site, &acquire(&[HOLDER]), ("granted", TTL_MS)).await?;
    // A free row now.
    site.client().await?.ask(&release(&[HOLDER])).await?;
    long(&site, &acquire(&[WAITER]), ("granted", TTL_MS)).await
}

pub(crate) async fn a_renewal_in_a_long_transaction_sets_the_whole_ttl(site: Site) -> Outcome {
    site.client().await?.ask(&acquire(&[HOLDER])).await?;
    long(&site, &renew(&[HOLDER]), ("granted", TTL_MS)).await?;
    long(&site, &acquire(&[HOLDER]), ("granted", TTL_MS)).await
}

pub(crate) async fn a_hand_over_in_a_long_transaction_lasts_two_seconds_from_then(
    site: Site,
) -> Outcome {
    for (freeing, said) in [(release(&[HOLDER]), "released"), (break_now("a"), "held")] {
        let site = Site::on(Arc::clone(&site.server)).await?;
        let client = site.client().await?;
        client.ask(&acquire(&[HOLDER])).await?;
        assert_eq!(client.ask(&acquire(&[WAITER])).await?, "held");
        long(&site, &freeing, (said, PROVISIONAL_MS)).await?;
        let session = site.session().await?;
        let owner = session.ask("SELECT right(owner::text, 1) FROM \"cerrojo\".\"lock\"").await?;
        assert_eq!(owner, WAITER.owner.to_string());
    }
    Ok(())
}

/// Asks in a transaction that has begun before, and looks from when the TTL counts.
async fn long(site: &Site, asked: &str, (said, ttl_ms): (&str, i64)) -> Outcome {
    let session = site.session().await?;
    session.ask("BEGIN").await?;
    let time = clock(&session).await?;
    assert_eq!(session.ask(asked).await?, said);
    session.ask("COMMIT").await?;
    lasts(&session, &time, ttl_ms).await
}

async fn clock(session: &Session) -> Outcome<String> {
    session.ask("SELECT clock_timestamp()").await
}

/// The lock was granted for this long at `time` or later.
async fn lasts(session: &Session, time: &str, ttl_ms: i64) -> Outcome {
    let look = format!(
        "SELECT expires_at - {ttl_ms} * interval '1 ms' >= timestamptz '{time}' FROM \"cerrojo\".\"lock\""
    );
    assert_eq!(session.ask(&look).await?, "t");
    Ok(())
}
