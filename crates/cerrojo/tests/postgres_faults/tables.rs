//! Tables that are missing, taken away, or another's.

use cerrojo::{ErrorKind, backend::postgres::Postgres};
use libtest_mimic::Trial;

use crate::{
    refused::refused,
    site::{
        LONG, Locks, Outcome, Shared, Site, connect, goes_on, is_lost, kind, ttl, until,
        until_told, works,
    },
};

pub(crate) fn trials(shared: &Shared) -> Vec<Trial> {
    vec![
        shared.trial("a_store_that_is_not_there_is_told_and_how_to_make_it", missing),
        shared.trial("tables_dropped_under_a_client_are_told_and_the_lock_is_lost", dropped),
        shared.trial("tables_made_anew_are_another_store", another_store),
        shared.trial("tables_made_anew_behind_a_clients_back_are_another_store", unasked),
        shared.trial("a_store_of_a_newer_version_is_told", newer),
        shared.trial("tables_may_be_made_again_and_again_while_they_are_used", made_again),
    ]
}

const ADVICE: &str = "run `cerrojo store init`, or Postgres::builder(url).init()";

async fn missing(site: Site) -> Outcome {
    let url = site.url("");
    site.drop_tables()?;
    refused(&url, ErrorKind::Invalid, &["42883", ADVICE]).await?;
    let nowhere = format!("{url}&schema=nowhere");
    refused(&nowhere, ErrorKind::Invalid, &["3F000", ADVICE]).await?;
    site.make_tables()?;
    works(&connect(&url).await?, "a").await
}

async fn dropped(site: Site) -> Outcome {
    let locks = site.locks().await?;
    let guard = locks.acquire("a").ttl(ttl(3_000)).await?;
    let kept = locks.acquire("kept").ttl(ttl(60_000)).await?;
    site.drop_tables()?;
    until_told(&locks, ErrorKind::Invalid, &[ADVICE]).await?;
    is_lost(&guard).await?;
    let released = kept.release().await;
    assert!(released.is_err());
    Ok(())
}

/// Nobody may take the tokens of the new one for greater than those of the old one.
async fn another_store(site: Site) -> Outcome {
    let locks = site.locks().await?;
    let guard = locks.acquire("a").ttl(ttl(60_000)).await?;
    let before = guard.store_id();
    by_both(&site, &locks).await?;
    site.drop_tables()?;
    until_told(&locks, ErrorKind::Invalid, &[ADVICE]).await?;
    site.make_tables()?;
    let words = ["another one than before", "counts its tokens anew"];
    let asking = (0..20).map(|_| {
        let locks = locks.clone();
        tokio::spawn(async move { until_told(&locks, ErrorKind::Corrupt, &words).await })
    });
    for asking in asking.collect::<Vec<_>>() {
        asking.await??;
    }
    assert_ne!(kind(guard.release().await), None);
    let anew = site.locks().await?;
    let guard = anew.acquire("a").wait(LONG).await?;
    assert_ne!(guard.store_id(), before);
    guard.release().await?;
    until_told(&locks, ErrorKind::Corrupt, &words).await
}

/// No request has met the gap, and the connections are still there.
async fn unasked(site: Site) -> Outcome {
    let locks = site.locks().await?;
    by_both(&site, &locks).await?;
    site.drop_tables()?;
    site.make_tables()?;
    assert_eq!(site.connections().await?, 2);
    let granted = locks.try_acquire("a").await;
    assert!(granted.is_err(), "{granted:?}");
    until_told(&locks, ErrorKind::Corrupt, &["another one than before"]).await
}

/// What many ask together goes by both connections for requests.
async fn by_both(site: &Site, locks: &Locks) -> Outcome {
    while site.connections().await? < 2 {
        let asking = (0..200).map(|number| {
            let locks = locks.clone();
            tokio::spawn(async move { locks.try_acquire(format!("n{number}").as_str()).await })
        });
        for asking in asking.collect::<Vec<_>>() {
            asking.await??.release().await?;
        }
    }
    Ok(())
}

async fn newer(site: Site) -> Outcome {
    let locks = site.locks().await?;
    let version = |version: i32| {
        let store = format!("cerrojo.{}_store", site.table);
        site.server.superuser_sql(&format!("UPDATE {store} SET version = {version}")).map(drop)
    };
    version(1_000)?;
    let words = ["the store has schema 1000", "of the newer version"];
    refused(&site.url(""), ErrorKind::Invalid, &words).await?;
    site.cut_by_server()?;
    until("no connection", async || Ok(site.connections().await? == 0)).await?;
    until_told(&locks, ErrorKind::Invalid, &words).await?;
    let sql = Postgres::builder("postgres://ignored").table(&site.table).init_sql()?;
    let init = site.server.superuser_sql(&sql).unwrap_err().to_string();
    assert!(init.contains("the store has schema 1000, which is newer"), "{init}");
    version(1)?;
    works(&locks, "a").await
}

async fn made_again(site: Site) -> Outcome {
    let locks = site.locks().await?;
    let guard = locks.acquire("a").ttl(ttl(9_000)).await?;
    for _ in 0..3 {
        site.make_tables()?;
        works(&locks, "b").await?;
    }
    goes_on(&guard).await?;
    Ok(guard.release().await?)
}
