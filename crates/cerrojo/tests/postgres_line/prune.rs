//! Rows that nobody uses any more go by themselves.

use std::time::Duration;

use cerrojo::{Instant, clock};

use crate::{
    line::{NAME, child::job, queued},
    site::{Locks, Outcome, Site, ttl},
};

/// Names that were used, so many of them, whose rows are free since long ago.
async fn idle_rows(site: &Site, locks: &Locks, count: usize) -> Outcome {
    let mut cycles = tokio::task::JoinSet::new();
    for number in 0..count {
        let locks = locks.clone();
        cycles.spawn(async move { locks.acquire(job(number).as_str()).await?.release().await });
    }
    while let Some(cycle) = cycles.join_next().await {
        cycle??;
    }
    let long_ago =
        "UPDATE LOCK SET granted_at = granted_at - interval '1 hour' WHERE name LIKE 'job/%'";
    site.look(long_ago).await.map(drop)
}

/// One step, as the library makes it.
async fn step(site: &Site, after: &str, idle_ms: i64) -> Outcome<(i64, i64, String)> {
    let step = "SELECT concat_ws(' ', removed, seen, coalesce(last, '')) FROM LOCK_prune";
    let said = site.look(&format!("{step}('{after}', 500, {idle_ms})")).await?;
    let words: Vec<&str> = said.first().ok_or("nothing")?.split(' ').collect();
    Ok((words[0].parse()?, words[1].parse()?, words[2].to_owned()))
}

pub(crate) async fn pruning_goes_in_steps_and_leaves_locks_lines_and_tokens_alone(
    site: Site,
) -> Outcome {
    let (locks, lockers) = (site.locks().await?, site.lockers(3).await?);
    idle_rows(&site, &locks, 1_200).await?;
    let latest = locks.acquire(job(7).as_str()).await?;
    let token = latest.token();
    latest.release().await?;
    let held = locks.acquire("held").await?;
    // A line whose holder has ended, though nobody has noticed yet.
    site.hold_silently(60_000).await?;
    let waiters = queued(&site, &lockers, 30_000).await?;
    site.until_at_rest().await?;
    site.look("UPDATE LOCK SET owner = NULL WHERE name = 'a'").await?;
    let (mut removed, mut after) = (0, String::new());
    loop {
        let (now, seen, last) = step(&site, &after, 60_000).await?;
        assert!(seen <= 500 && now <= seen, "{now} of {seen}");
        (removed, after) = (removed + now, last);
        if seen == 0 {
            break;
        }
    }
    // The one that was used just now stays.
    assert_eq!(removed, 1_199);
    assert_eq!(step(&site, "", 0).await?.0, 1);
    assert_eq!(site.waiting().await?, 3);
    for waiter in waiters {
        let (guard, _) = waiter.entered().await?;
        assert!(guard.token() > token, "{:?} after {token:?}", guard.token());
        guard.release().await?;
    }
    let again = locks.acquire(job(7).as_str()).await?;
    assert!(again.token() > token, "{:?} after {token:?}", again.token());
    again.release().await?;
    Ok(held.release().await?)
}

/// Several stores share the work: the first of them begins half a minute after it came, or a little later.
pub(crate) async fn a_store_in_use_removes_rows_that_nobody_has_used_for_a_minute(
    site: Site,
) -> Outcome {
    let lockers = site.lockers(12).await?;
    idle_rows(&site, &lockers[0], 700).await?;
    let held = lockers[0].acquire("held").ttl(ttl(300_000)).await?;
    let waited = lockers[1].acquire(NAME).ttl(ttl(300_000)).await?;
    let waiters = queued(&site, &lockers[2..4], 30_000).await?;
    let end = Instant::now() + Duration::from_secs(90);
    while site.number("SELECT count(*) FROM LOCK WHERE name LIKE 'job/%'").await? > 0 {
        assert!(Instant::now() < end, "rows are left");
        for locks in &lockers {
            locks.acquire("cycle").await?.release().await?;
        }
        clock::sleep(Duration::from_millis(250)).await;
    }
    assert_eq!(site.look("SELECT name FROM LOCK ORDER BY name").await?, ["a", "cycle", "held"]);
    held.release().await?;
    waited.release().await?;
    for waiter in waiters {
        waiter.entered().await?.0.release().await?;
    }
    Ok(())
}
