//! Rows that somebody's transaction holds: the lock is busy for as long, which is neither contended nor free, and no other name is delayed.

use std::time::Duration;

use cerrojo::{Error, ErrorKind, FencedGuard, Locker};
use cerrojo_testbed::{Direction, Proxy};
use tokio::task::JoinHandle;

use crate::{
    session::{Ask, Session, acquire, break_now, key_share, prune, release, renew},
    site::{LONG, Locks, Outcome, Site, connect, soon, until},
};

const FIRST: Ask = Ask { name: "a", owner: 1, ttl_ms: 60_000, waits: false };
const SECOND: Ask = Ask { owner: 2, ..FIRST };
const WAITER: Ask = Ask { waits: true, ..SECOND };
/// Of the same batch.
const OTHER: Ask = Ask { name: "b", ..FIRST };

/// A session that has [`FIRST`]'s row FOR KEY SHARE, in a transaction, and one that asks.
async fn guarded(site: &Site) -> Outcome<(Session, Session)> {
    let (holder, asker) = (site.session().await?, site.client().await?);
    holder.ask(&key_share(FIRST.name)).await?;
    Ok((holder, asker))
}

async fn ask(site: &Site, text: &str, expected: &str) -> Outcome {
    assert_eq!(site.client().await?.ask(text).await?, expected, "{text}");
    Ok(())
}

async fn expire(site: &Site) -> Outcome {
    ask(site, &acquire(&[Ask { ttl_ms: 1, ..FIRST }]), "granted").await?;
    let session = site.session().await?;
    until("an expiry", async || Ok(session.owner(FIRST.name).await?.is_none())).await
}

pub(crate) async fn a_takeover_waits_for_a_guarded_transaction_and_delays_no_other_name(
    site: Site,
) -> Outcome {
    expire(&site).await?;
    grants_wait(&site).await
}

pub(crate) async fn a_grant_of_a_free_lock_waits_for_a_guarded_transaction_and_delays_no_other_name(
    site: Site,
) -> Outcome {
    ask(&site, &acquire(&[FIRST]), "granted").await?;
    ask(&site, &release(&[FIRST]), "released").await?;
    grants_wait(&site).await
}

async fn grants_wait(site: &Site) -> Outcome {
    let (holder, asker) = guarded(site).await?;
    assert_eq!(asker.ask(&acquire(&[SECOND, OTHER])).await?, "busy\ngranted");
    assert_eq!(asker.ask(&acquire(&[WAITER, OTHER])).await?, "busy\ngranted");
    assert_eq!(asker.ask(&prune()).await?, "0");
    assert_eq!(holder.owner(SECOND.name).await?, None);
    holder.ask("COMMIT").await?;
    assert_eq!(asker.ask(&acquire(&[SECOND, OTHER])).await?, "granted\ngranted");
    Ok(())
}

pub(crate) async fn a_hand_over_waits_for_a_guarded_transaction_and_delays_no_other_name(
    site: Site,
) -> Outcome {
    ask(&site, &acquire(&[FIRST, OTHER]), "granted\ngranted").await?;
    ask(&site, &acquire(&[WAITER]), "held").await?;
    let (holder, asker) = guarded(&site).await?;
    assert_eq!(asker.ask(&release(&[FIRST, OTHER])).await?, "busy\nreleased");
    assert_eq!(holder.owner(FIRST.name).await?, Some(FIRST.owner));
    holder.ask("COMMIT").await?;
    assert_eq!(asker.ask(&release(&[FIRST])).await?, "released");
    assert_eq!(holder.owner(FIRST.name).await?, Some(WAITER.owner));
    Ok(())
}

pub(crate) async fn a_break_waits_for_a_guarded_transaction(site: Site) -> Outcome {
    ask(&site, &acquire(&[FIRST]), "granted").await?;
    ask(&site, &acquire(&[WAITER]), "held").await?;
    let (holder, asker) = guarded(&site).await?;
    assert_eq!(asker.ask(&break_now(FIRST.name)).await?, "busy");
    assert_eq!(holder.owner(FIRST.name).await?, Some(FIRST.owner));
    holder.ask("COMMIT").await?;
    assert_eq!(asker.ask(&break_now(FIRST.name)).await?, "held");
    assert_eq!(holder.owner(FIRST.name).await?, Some(WAITER.owner));
    Ok(())
}

pub(crate) async fn renewals_waiters_and_late_breaks_pass_a_guarded_transaction(
    site: Site,
) -> Outcome {
    ask(&site, &acquire(&[FIRST]), "granted").await?;
    let (holder, asker) = guarded(&site).await?;
    assert_eq!(asker.ask(&renew(&[FIRST])).await?, "granted");
    assert_eq!(asker.ask(&acquire(&[FIRST])).await?, "granted");
    assert_eq!(asker.ask(&acquire(&[SECOND])).await?, "held");
    assert_eq!(asker.ask(&acquire(&[WAITER])).await?, "held");
    assert_eq!(asker.ask(&release(&[WAITER])).await?, "gone");
    let at_expiry = "SELECT outcome FROM \"cerrojo\".\"lock_break\"('a', false)";
    assert_eq!(asker.ask(at_expiry).await?, "held");
    assert_eq!(asker.ask(&renew(&[FIRST])).await?, "gone");
    holder.ask("COMMIT").await?;
    Ok(())
}

pub(crate) async fn a_row_that_is_being_made_delays_no_other_name(site: Site) -> Outcome {
    let (somebody, asker) = (site.session().await?, site.client().await?);
    somebody.ask("BEGIN; INSERT INTO \"cerrojo\".\"lock\" (name) VALUES ('b')").await?;
    let asks = ["a", "b", "c"].map(|name| Ask { name, ..FIRST });
    assert_eq!(asker.ask(&acquire(&asks)).await?, "granted\nbusy\ngranted");
    let asks = ["a", "b", "d"].map(|name| Ask { name, waits: true, ..FIRST });
    assert_eq!(asker.ask(&acquire(&asks)).await?, "granted\nbusy\ngranted");
    somebody.ask("ROLLBACK").await?;
    assert_eq!(asker.ask(&acquire(&asks)).await?, "granted\ngranted\ngranted");
    Ok(())
}

/// By the library: one is refused at once, one waits, and others go on.
pub(crate) async fn a_busy_lock_is_asked_again_until_the_deadline_and_never_contended(
    site: Site,
) -> Outcome {
    let locks = site.locks().await?;
    locks.acquire("a").await?.release().await?;
    let (holder, _) = guarded(&site).await?;
    is_busy(&locks.try_acquire("a").await.unwrap_err());
    let soon_over = locks.acquire("a").wait(Duration::from_millis(300)).await;
    is_busy(&soon_over.unwrap_err());
    let waiter = waits(&locks);
    site.until_asked("acquire").await?;
    for _ in 0..20 {
        locks.acquire("b").wait(LONG).await?.release().await?;
    }
    assert!(!waiter.is_finished());
    holder.ask("COMMIT").await?;
    Ok(soon("the waiter", waiter).await???.release().await?)
}

fn is_busy(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("somebody's transaction"), "{error}");
}

fn waits(locks: &Locks) -> JoinHandle<cerrojo::Result<FencedGuard>> {
    let locks = locks.clone();
    tokio::spawn(async move { locks.acquire("a").wait(LONG).await })
}

/// The last request before the limit has its time too: otherwise a connection is given up that others' requests are under way on.
pub(crate) async fn a_lock_that_is_busy_to_the_end_costs_no_connection(site: Site) -> Outcome {
    let proxy = Proxy::start(site.server.port())?;
    let url = site.url().replace(&site.server.address(), &proxy.address());
    let locks = Locker::new(connect(&format!("{url}&call_limit_ms=600")).await?);
    let guard = locks.acquire("a").await?;
    let (holder, _) = guarded(&site).await?;
    let connections =
        "SELECT string_agg(pid::text, ', ') FROM pg_stat_activity WHERE application_name =";
    let before = holder.ask(&format!("{connections} '{}'", site.table)).await?;
    // Longer than any pause between two requests.
    proxy.delay(Direction::ToServer, Duration::from_millis(60))?;
    for _ in 0..3 {
        is_busy(&locks.release(guard.name(), guard.owner()).await.unwrap_err());
    }
    let left = format!("SELECT count(*) FROM pg_stat_activity WHERE pid IN ({before})");
    assert_eq!(holder.number(&left).await?, i64::try_from(before.split(", ").count())?);
    holder.ask("COMMIT").await?;
    Ok(guard.release().await?)
}

/// As many names as travel together, each being made by somebody.
pub(crate) async fn many_rows_that_are_being_made_delay_no_other_name(site: Site) -> Outcome {
    let locks = site.locks().await?;
    let somebody = site.session().await?;
    let rows = "SELECT 'a' || n FROM generate_series(1, 100) n";
    somebody.ask(&format!("BEGIN; INSERT INTO \"cerrojo\".\"lock\" (name) {rows}")).await?;
    let waiters: Vec<_> = (1..=100)
        .map(|number| {
            let locks = locks.clone();
            tokio::spawn(async move { locks.acquire(format!("a{number}")).wait(LONG * 2).await })
        })
        .collect();
    site.until_asked("acquire").await?;
    for _ in 0..5 {
        locks.acquire("b").wait(LONG).await?.release().await?;
    }
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    somebody.ask("COMMIT").await?;
    for waiter in waiters {
        soon("a waiter", waiter).await???.release().await?;
    }
    Ok(())
}
