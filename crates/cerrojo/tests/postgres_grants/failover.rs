//! Another server continues the store: a standby that is promoted, with and without the latest grants, and a backup that is restored to a point in
//! time. Tokens jump by the timeline. The old primary is stopped: two that run at once are outside of the promise.

use std::sync::Arc;

use cerrojo::{LeaseState, Locker, clock};
use cerrojo_testbed::PostgresServer;
use tokio::task::JoinHandle;

use crate::site::{LONG, Locks, OnServer, Outcome, ROLE, Site, connect, fast, soon, ttl, until};

/// The timeline is above the count.
const TIMELINE: u64 = 1 << 40;

/// A primary and its standby.
struct Pair {
    primary: Site,
    standby: PostgresServer,
}

impl Pair {
    async fn start() -> Outcome<Self> {
        let primary = Site::alone().await?;
        let standby = fast().standby_of(&primary.server).start()?;
        Ok(Self { primary, standby })
    }

    /// A locker that knows both.
    async fn locks(&self) -> Outcome<Locks> {
        let (one, other) = (self.primary.server.port(), self.standby.port());
        let words = format!(
            "host=127.0.0.1,127.0.0.1 port={one},{other} user={ROLE} dbname=app sslmode=disable table={}",
            self.primary.table
        );
        Ok(Locker::new(connect(&words).await?))
    }

    /// From now on nothing reaches the standby.
    async fn cut(&self) -> Outcome {
        self.standby.superuser_sql("ALTER SYSTEM SET primary_conninfo = ''")?;
        self.standby.superuser_sql("SELECT pg_reload_conf()")?;
        let receivers = "SELECT count(*) FROM pg_stat_wal_receiver";
        until("a standby that is cut off", async || {
            Ok(self.standby.superuser_sql(receivers)? == "0")
        })
        .await
    }

    fn fail_over(&self) -> Outcome {
        self.primary.server.stop()?;
        Ok(self.standby.promote()?)
    }
}

pub(crate) async fn holders_and_waiters_go_on_at_a_promoted_standby_and_tokens_jump(
    _: Site,
) -> Outcome {
    let pair = Pair::start().await?;
    let (locks, others) = (pair.locks().await?, pair.locks().await?);
    let guard = locks.acquire("a").ttl(ttl(30_000)).await?;
    let waiter: JoinHandle<_> =
        tokio::spawn(async move { others.acquire("a").ttl(ttl(30_000)).wait(LONG * 2).await });
    let observer = pair.primary.session().await?;
    until("a waiter", async || Ok(observer.waiting("a").await? == 1)).await?;
    let latest = locks.acquire("b").await?;
    let before = latest.token().get();
    latest.release().await?;
    pair.standby.await_caught_up(&pair.primary.server)?;
    pair.fail_over()?;
    let (renewals, token) = (guard.renewals(), guard.token());
    until("a renewal", async || Ok(guard.renewals() > renewals)).await?;
    assert_ne!(guard.state(), LeaseState::Lost);
    assert!(!waiter.is_finished());
    guard.release().await?;
    let next = soon("the waiter", waiter).await???;
    assert!(next.token() > token);
    assert_eq!(next.token().get() / TIMELINE, before / TIMELINE + 1);
    Ok(next.release().await?)
}

pub(crate) async fn tokens_jump_also_where_the_standby_lacked_the_latest_grants(
    _: Site,
) -> Outcome {
    let pair = Pair::start().await?;
    let locks = pair.locks().await?;
    locks.acquire("a").await?.release().await?;
    pair.standby.await_caught_up(&pair.primary.server)?;
    pair.cut().await?;
    // A standby is told of 32 numbers of a sequence at a time.
    for _ in 0..50 {
        locks.acquire("a").await?.release().await?;
    }
    let forgotten = locks.acquire("a").ttl(ttl(6_000)).await?;
    pair.fail_over()?;
    let next = pair.locks().await?.acquire("a").wait(LONG).await?;
    assert!(next.token() > forgotten.token());
    // Whoever was forgotten learns it, and can do no harm where tokens are checked.
    clock::within(LONG, forgotten.lost()).await?;
    next.release().await?;
    // Those who knew the old primary go on at the new one.
    Ok(locks.acquire("a").wait(LONG).await?.release().await?)
}

pub(crate) async fn tokens_jump_where_a_backup_is_restored_to_a_point_in_time(_: Site) -> Outcome {
    let site = Site::alone().await?;
    let locks = site.locks().await?;
    let early = locks.acquire("a").await?;
    let backup = site.server.back_up()?;
    early.release().await?;
    site.server.superuser_sql("SELECT pg_create_restore_point('here')")?;
    let mut tokens = Vec::new();
    for _ in 0..50 {
        let guard = locks.acquire("a").wait(LONG).await?;
        tokens.push(guard.token());
        guard.release().await?;
    }
    let gone = locks.acquire("never heard of").await?;
    site.server.stop()?;
    let server = Arc::new(fast().restored(&backup, "here").start()?);
    let there = Site { server, table: site.table.clone() };
    let restored = there.locks().await?;
    assert_eq!(restored.holder(gone.name()).await?, None);
    for name in ["a", "never heard of"] {
        let guard = restored.acquire(name).wait(LONG).await?;
        assert!(tokens.iter().chain([&gone.token()]).all(|token| guard.token() > *token));
        assert_eq!(guard.store_id(), gone.store_id());
        guard.release().await?;
    }
    Ok(())
}
