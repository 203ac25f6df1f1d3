//! What locks and waiting cost the server, and the process that waits.

use std::{fs, time::Duration};

use cerrojo::{FencedGuard, Instant, clock};
use tokio::task::JoinSet;

use crate::{
    line::{
        NAME, TICK, Waiter,
        child::{Child, job},
        queued,
    },
    site::{Locks, Outcome, Site, connect, locker, soon, ttl, until},
};

/// How long waiters are watched.
const WATCHED: Duration = Duration::from_secs(6);
/// Whoever has come asks once more soon, once more when it begins to hear, and then after half of the tick at the earliest.
const FIRST_ASKS: u64 = 3;
/// Those at the front, who look after the holder.
const OTHERS_MAX: u64 = 10;

/// Lets so many waiters stand for a while; how often they may have asked in all by then.
async fn watch(start: Instant, waiters: u64) -> Outcome<i64> {
    clock::sleep(WATCHED).await;
    let ticks = Instant::now().since(start).as_secs() / (TICK.as_secs() / 2);
    Ok(i64::try_from(waiters * (FIRST_ASKS + ticks) + OTHERS_MAX)?)
}

/// All has been counted when all connections have ended.
async fn until_counted(site: &Site) -> Outcome {
    until("no connection", async || Ok(site.connections().await? == 0)).await
}

pub(crate) async fn two_hundred_waiters_ask_seldom(site: Site) -> Outcome {
    let holder = site.locks().await?;
    let guard = holder.acquire(NAME).ttl(ttl(3_600_000)).await?;
    let (start, mut waiters) = (Instant::now(), Vec::new());
    for _ in 0..10 {
        let store = connect(&site.url("")).await?;
        waiters.extend((0..20).map(|_| Waiter::start(&locker(store.clone()), ttl(30_000))));
    }
    site.until_waiting(200).await?;
    let asked_max = watch(start, 200).await?;
    assert!(waiters.iter().all(Waiter::is_waiting));
    assert!(site.connections().await? <= 11 * 3);
    waiters.into_iter().for_each(Waiter::abort);
    site.until_waiting(0).await?;
    guard.release().await?;
    drop(holder);
    until_counted(&site).await?;
    let asked = site.calls("join").await?;
    assert!((200..=asked_max).contains(&asked), "{asked} of {asked_max}");
    Ok(())
}

/// Holds so many locks.
async fn hold(locks: &Locks, count: usize) -> Outcome<Vec<FencedGuard>> {
    let mut holding = JoinSet::new();
    for number in 0..count {
        let locks = locks.clone();
        let ttl = ttl(3_600_000);
        holding.spawn(async move { locks.acquire(job(number).as_str()).ttl(ttl).await });
    }
    Ok(holding.join_all().await.into_iter().collect::<Result<_, _>>()?)
}

pub(crate) async fn a_thousand_locks_and_a_thousand_waiters_share_three_connections(
    site: Site,
) -> Outcome {
    let store = connect(&site.url("")).await?;
    let (holder, waiting) = (locker(store.clone()), locker(store));
    let guards = hold(&holder, 1_000).await?;
    let (start, mut waiters) = (Instant::now(), JoinSet::new());
    for number in 0..1_000 {
        let waiting = waiting.clone();
        waiters.spawn(async move { waiting.acquire(job(number).as_str()).await?.release().await });
    }
    let line = "SELECT count(*) FROM LOCK_waiter";
    until("all in a line", async || Ok(site.number(line).await? == 1_000)).await?;
    let asked_max = watch(start, 1_000).await?;
    assert_eq!(site.connections().await?, 3);
    assert!(waiters.try_join_next().is_none(), "a waiter ended");
    drop(guards);
    while let Some(waiter) = soon("a waiter", waiters.join_next()).await? {
        waiter??;
    }
    assert_eq!(site.connections().await?, 3);
    drop((holder, waiting));
    until_counted(&site).await?;
    let (asked, statements) = (site.calls("join").await?, site.calls("acquire").await?);
    assert!((1_000..=asked_max).contains(&asked), "{asked} of {asked_max}");
    assert!(statements < asked, "{statements} statements for {asked} requests");
    Ok(())
}

/// The CPU time that a process has used, in ticks of 10 ms.
fn cpu_ticks(pid: u32) -> Outcome<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').ok_or("no stat")?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    Ok(fields[11].parse::<u64>()? + fields[12].parse::<u64>()?)
}

pub(crate) async fn a_waiting_process_uses_no_cpu(site: Site) -> Outcome {
    let locks = site.locks().await?;
    let _guards = hold(&locks, 100).await?;
    let mut child = Child::open(&site.url(""))?;
    child.wait_for_many(100)?;
    let hearing = "SELECT count(*) FROM LOCK_waiter WHERE channel <> '' \
        AND wake_at > alive_until - interval '30 s' + interval '2 s'";
    until("all at rest", async || Ok(site.number(hearing).await? == 100)).await?;
    let before = cpu_ticks(child.0.id())?;
    clock::sleep(WATCHED / 2).await;
    let used = cpu_ticks(child.0.id())? - before;
    assert!(used <= 15, "{used} ticks in {WATCHED:?}");
    Ok(())
}

/// Connecting, notifications that are taken, and whoever cleans up.
const COMMITS_BESIDE: i64 = 100;

/// What has been committed in the database of `apart`, but for our own looks, when nobody is connected there. Seen from another one.
async fn commits(site: &Site, apart: &mut Site) -> Outcome<i64> {
    let (database, looks) = (apart.database.clone(), apart.close_eye());
    let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = ";
    let open = format!("{open}'{database}'");
    until("no connection", async || Ok(site.number(&open).await? == 0)).await?;
    let commits = "SELECT xact_commit FROM pg_stat_database WHERE datname = ";
    let commits = site.number(&format!("{commits}'{database}'")).await?;
    apart.open_eye().await?;
    Ok(commits - looks)
}

/// A column of the statistics of one of its tables.
async fn of_table(site: &Site, column: &str, table: &str) -> Outcome<i64> {
    let name = format!("{}{table}", site.table);
    let from = "FROM pg_stat_user_tables WHERE relname =";
    site.number(&format!("SELECT coalesce({column}, 0) {from} '{name}'")).await
}

pub(crate) async fn an_uncontended_cycle_is_two_commits_and_knows_no_line(site: Site) -> Outcome {
    const SCANS: &str = "seq_scan + coalesce(idx_scan, 0)";
    let mut apart = site.apart().await?;
    let (before, scans) =
        (commits(&site, &mut apart).await?, of_table(&apart, SCANS, "_waiter").await?);
    let locks = apart.locks().await?;
    for number in 0..500 {
        locks.acquire(job(number % 10).as_str()).await?.release().await?;
    }
    assert_eq!(apart.connections().await?, 3);
    drop(locks);
    let made = commits(&site, &mut apart).await? - before;
    assert!((1_000..1_000 + COMMITS_BESIDE).contains(&made), "{made} commits");
    assert_eq!(of_table(&apart, SCANS, "_waiter").await?, scans, "the line was looked at");
    let calls = [("acquire", 500), ("release", 500), ("renew", 0)];
    for (function, expected) in calls.into_iter().chain(OF_THE_LINE.map(|name| (name, 0))) {
        assert_eq!(apart.calls(function).await?, expected, "{function}");
    }
    let cold = of_table(&apart, "n_tup_upd - n_tup_hot_upd", "").await?;
    assert!(cold < 100, "{cold} of 1000 updates touched an index");
    Ok(())
}

/// The functions by which the line is kept.
const OF_THE_LINE: [&str; 3] = ["join", "hand_over", "tell"];

pub(crate) async fn a_hand_off_is_one_statement(site: Site) -> Outcome {
    let store = connect(&site.url("")).await?;
    let mut guard = locker(store.clone()).acquire(NAME).await?;
    let lockers: Vec<_> = (0..20).map(|_| locker(store.clone())).collect();
    // With a TTL for which a hand-over need not be confirmed.
    for waiter in queued(&site, &lockers, 2_000).await? {
        guard.release().await?;
        (guard, _) = waiter.entered().await?;
    }
    guard.release().await?;
    drop((store, lockers));
    until_counted(&site).await?;
    for function in OF_THE_LINE {
        assert!(site.calls(function).await? >= 20, "{function}");
    }
    let (releases, hand_overs) = (site.calls("release").await?, site.calls("hand_over").await?);
    assert_eq!(hand_overs, 20);
    assert!(releases < 25, "{releases} statements for 20 hand-offs");
    Ok(())
}
