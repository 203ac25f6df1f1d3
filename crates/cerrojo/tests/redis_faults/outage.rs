//! Servers that go away and come back, with what they knew or without.

use cerrojo::{ErrorKind, Instant, LeaseState, clock};
use cerrojo_testbed::{RedisBuilder, RedisServer};
use libtest_mimic::Trial;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};

use crate::{
    faults::{self, lost_on_time},
    site::{
        LONG, Locks, Outcome, Site, bounded, check_error, eventually, goes_on, is_lost, kind,
        millis, trial, ttl, works,
    },
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("a_server_restarted_empty_loses_a_held_lock_once", restarted_empty),
        trial("a_server_down_for_two_ttls_loses_the_lock_on_time", down),
        trial("a_server_back_within_the_ttl_loses_nothing_it_has_kept", back_in_time),
        trial("one_failed_renewal_is_no_loss", one_failed_renewal),
        trial("a_held_lock_outlives_a_power_loss_when_every_write_is_synced", power_loss_synced),
        trial("a_power_loss_within_a_second_is_told_at_the_next_renewal", power_loss_unsynced),
        trial("a_clock_that_jumps_forward_and_back_ends_leases_and_nobody_is_stuck", clock_jumps),
    ]
}

/// How many leases were counted as lost while `work` ran.
fn losses<F: Future<Output = Outcome>>(work: impl FnOnce() -> F) -> Outcome<u64> {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    metrics::with_local_recorder(&recorder, || runtime.block_on(bounded(work())))?;
    let counted =
        snapshotter.snapshot().into_vec().into_iter().map(|(key, _, _, value)| match value {
            DebugValue::Counter(count) if key.key().name() == "cerrojo_lost_total" => count,
            _ => 0,
        });
    Ok(counted.sum())
}

fn restarted_empty() -> Outcome {
    let lost = losses(|| async {
        let site = Site::start()?;
        let locks = site.locks().await?;
        let guard = locks.acquire("a").ttl(ttl(2_000)).await?;
        site.server.restart_empty()?;
        is_lost(&guard).await?;
        let again = locks.acquire("a").ttl(ttl(2_000)).wait(LONG).await?;
        goes_on(&again).await?;
        assert_eq!(guard.state(), LeaseState::Lost);
        assert_eq!(kind(guard.release().await), Some(ErrorKind::Lost));
        goes_on(&again).await?;
        Ok(again.release().await?)
    });
    assert_eq!(lost?, 1);
    Ok(())
}

async fn down() -> Outcome {
    let site = Site::start()?;
    let locks = site.locks().await?;
    let guard = locks.acquire("a").ttl(ttl(1_500)).await?;
    goes_on(&guard).await?;
    site.server.kill()?;
    let until = lost_on_time(&guard).await?;
    clock::sleep_until(until + millis(1_500)).await;
    let refused = locks.try_acquire("a").await.unwrap_err();
    check_error(&refused, &[ErrorKind::Unavailable], &[&site.proxy.address()])?;
    site.server.restart()?;
    works(&locks, "a").await
}

async fn back_in_time() -> Outcome {
    let builder =
        RedisServer::builder().option("appendonly", "yes").option("appendfsync", "always");
    let site = Site::of(&builder)?;
    let locks = site.locks().await?;
    let guard = locks.acquire("a").ttl(ttl(10_000)).await?;
    site.server.kill()?;
    site.server.restart()?;
    goes_on(&guard).await?;
    Ok(guard.release().await?)
}

async fn one_failed_renewal() -> Outcome {
    let site = Site::start()?;
    faults::one_failed_renewal(&site.locks().await?, &site.proxy, 2_000).await
}

fn with_power_loss(appendfsync: &str) -> RedisBuilder {
    let builder = RedisServer::builder().option("appendonly", "yes");
    builder.option("appendfsync", appendfsync).power_loss()
}

async fn power_loss_synced() -> Outcome {
    let site = Site::of(&with_power_loss("always"))?;
    let (locks, others) = (site.locks().await?, site.locks().await?);
    let guard = locks.acquire("a").ttl(ttl(15_000)).await?;
    site.server.lose_power()?;
    site.server.restart()?;
    // The first call may still find the old connection.
    let refused = others.acquire("a").wait(millis(2_000)).await;
    assert_eq!(kind(refused), Some(ErrorKind::Contended));
    goes_on(&guard).await?;
    Ok(guard.release().await?)
}

/// Whether the lock was on the disk or not: what the holder is told at its next renewal is what the server knows.
async fn power_loss_unsynced() -> Outcome {
    let site = Site::of(&with_power_loss("everysec"))?;
    let locks = site.locks().await?;
    for round in 0..3 {
        let name = format!("a{round}");
        let guard = locks.acquire(name.as_str()).ttl(ttl(6_000)).wait(LONG).await?;
        let until = guard.valid_until().ok_or("lost at once")?;
        site.server.lose_power()?;
        site.server.restart()?;
        let is_known = site.has_key(&format!("cerrojo:{{{name}}}"))?;
        let told = clock::until(until, guard.signal().valid_until_changes(Some(until))).await?;
        assert_eq!(told.is_some(), is_known, "in round {round}");
        let released = kind(guard.release().await);
        assert_eq!(released, (!is_known).then_some(ErrorKind::Lost));
    }
    Ok(())
}

/// An hour, which is longer than any lease and place of a waiter here.
const JUMP_NANOS: i64 = 3_600_000_000_000;

async fn clock_jumps() -> Outcome {
    let site = Site::of(&RedisServer::builder().clock_skew())?;
    let locks = site.locks().await?;
    // Each with a connection of its own: those of one locker stand in a line before the server's.
    let waiter = |others: Locks| {
        tokio::spawn(async move { others.acquire("a").ttl(ttl(3_000)).wait(LONG).await })
    };
    let first = locks.acquire("a").ttl(ttl(6_000)).await?;
    let next = waiter(site.locks().await?);
    eventually("a waiter", || site.has_key("cerrojo:{a}:line")).await?;
    let until = first.valid_until().ok_or("lost at once")?;
    site.server.set_clock_nanos(JUMP_NANOS)?;
    is_lost(&first).await?;
    assert!(Instant::now() < until, "not told by a renewal");
    let next = next.await??;
    goes_on(&next).await?;
    let last = waiter(site.locks().await?);
    eventually("a waiter", || site.has_key("cerrojo:{a}:line")).await?;
    site.server.set_clock_nanos(0)?;
    goes_on(&next).await?;
    next.release().await?;
    let last = last.await??;
    goes_on(&last).await?;
    last.release().await?;
    works(&locks, "a").await
}
