//! Many processes, many transactions: no update is lost.

use std::collections::BTreeSet;

use cerrojo::{Locker, clock};
use cerrojo_testbed::{PgBouncer, Process};

use crate::{
    child,
    site::{LONG, NAME, Outcome, ROLE, Site, client, connect, millis, rounds, soon, ttl, until},
};

const PROCESSES: usize = 4;

/// What was committed, as the database tells.
fn entries(site: &Site) -> Outcome<BTreeSet<String>> {
    let all = format!("SELECT entry FROM {}_log", site.account());
    Ok(site.server.superuser_sql(&all)?.lines().map(str::to_owned).collect())
}

/// Stopped inside and outside, for shorter and for longer than the TTL.
pub(crate) async fn processes_stopped_at_random_lose_no_update(site: Site) -> Outcome {
    let children: Outcome<Vec<Process>> =
        (0..PROCESSES).map(|number| child::counter(&site, number)).collect();
    let mut children = children?;
    for round in 0..rounds(12, 400) {
        clock::sleep(millis(round * 617 % 100)).await;
        let child = &children[usize::try_from(round)? * 7 % PROCESSES];
        child.freeze()?;
        clock::sleep(millis(round * 431 % 1_200)).await;
        child.thaw()?;
    }
    let before = entries(&site)?.len();
    until("progress of those that are left", async || Ok(entries(&site)?.len() > before + 8))
        .await?;
    let mut said = Vec::new();
    for child in &mut children {
        child.hang_up();
        said.extend(child.rest(LONG)?);
    }
    check(&site, &said)
}

fn check(site: &Site, said: &[String]) -> Outcome {
    let entries = entries(site)?;
    assert_eq!(site.balance()?, i64::try_from(entries.len())?, "an update was lost");
    for line in said {
        match line.split_once(' ').ok_or("no line of a counter")? {
            ("done", entry) => assert!(entries.contains(entry), "{entry} was not committed"),
            ("undone", entry) => assert!(!entries.contains(entry), "{entry} was committed"),
            ("unsure", _) => {}
            _ => return Err(line.as_str().into()),
        }
    }
    let done = said.iter().filter(|line| line.starts_with("done")).count();
    let unsure = said.iter().filter(|line| line.starts_with("unsure")).count();
    assert!((done..=done + unsure).contains(&entries.len()), "{done} done, {unsure} unsure");
    Ok(())
}

const TASKS: usize = 8;

/// All that is asked of the server goes through the pooler, which has fewer connections than there are clients.
pub(crate) async fn through_pgbouncer(site: Site) -> Outcome {
    let bouncer = PgBouncer::builder(&site.server).user(ROLE).pool_size(4).start()?;
    let store = connect(&format!("{}&listen=no", site.url_at(bouncer.port()))).await?;
    let guard = Locker::new(store.clone()).acquire(NAME).ttl(ttl(20_000)).await?;
    let mut adding = tokio::task::JoinSet::new();
    for _ in 0..TASKS {
        let (store, claim, add_one) = (store.clone(), guard.claim(), site.add_one());
        let url = site.client_url_at(bouncer.port());
        adding.spawn(async move {
            let mut client = client(&url).await?;
            for _ in 0..20 {
                let transaction = store.transaction(claim.clone(), &mut client).await?;
                transaction.batch_execute(&add_one).await?;
                transaction.commit().await?;
            }
            Outcome::Ok(())
        });
    }
    while let Some(added) = soon("all", adding.join_next()).await? {
        added??;
    }
    assert_eq!(site.balance()?, 160);
    let mut client = client(&site.client_url_at(bouncer.port())).await?;
    let other = store.clone();
    soon("a release", guard.release()).await??;
    let guard = Locker::new(other).acquire(NAME).ttl(ttl(1_500)).await?;
    let transaction = store.transaction(&guard, &mut client).await?;
    transaction.batch_execute(&site.add_one()).await?;
    until("the end of an idle transaction", async || Ok(transaction.is_closed())).await?;
    assert!(transaction.commit().await.is_err());
    assert_eq!(site.balance()?, 160);
    Ok(())
}
