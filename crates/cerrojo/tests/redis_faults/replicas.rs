//! Grants that count only once a replica has them.

use cerrojo::{ErrorKind, LeaseState, clock};
use cerrojo_testbed::RedisServer;
use libtest_mimic::{Failed, Trial};

use crate::site::{
    LONG, Locks, Outcome, Site, check_error, connect, eventually, goes_on, millis, trial, ttl,
    works,
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_grant_waits_for_its_replica", acknowledged),
        trial("without_its_replica_nothing_is_granted_and_nothing_stalls", unacknowledged),
        trial("a_lock_that_is_handed_over_waits_for_its_replica_too", handed_over),
    ]
}

struct Pair {
    site: Site,
    replica: RedisServer,
}

impl Pair {
    fn start() -> Result<Self, Failed> {
        let (site, replica) = (Site::start()?, RedisServer::start()?);
        replica.replica_of(&site.server)?;
        Ok(Self { site, replica })
    }

    async fn locks(&self) -> cerrojo::Result<Locks> {
        connect(&self.site.url("replicas=1&call_limit_ms=1000")).await
    }
}

async fn acknowledged() -> Outcome {
    let pair = Pair::start()?;
    let locks = pair.locks().await?;
    for round in 0..20 {
        let name = format!("n{round}");
        let guard = locks.acquire(name.as_str()).await?;
        // No waiting: it is there already.
        assert_eq!(pair.replica.command(&["EXISTS", &format!("cerrojo:{{{name}}}")])?, "1");
        guard.release().await?;
    }
    let waits = pair.site.server.info("cmdstat_wait")?;
    let calls = waits.strip_prefix("calls=").and_then(|rest| rest.split_once(','));
    assert!(calls.ok_or("no calls")?.0.parse::<u32>()? >= 20, "{waits}");
    works(&locks, "a").await
}

async fn unacknowledged() -> Outcome {
    let pair = Pair::start()?;
    let locks = pair.locks().await?;
    let held = locks.acquire("held").ttl(ttl(2_000)).await?;
    pair.replica.freeze()?;
    refuses(&pair, &locks).await?;
    let many = (0..30).map(|name| {
        let locks = locks.clone();
        tokio::spawn(async move { locks.try_acquire(format!("m{name}").as_str()).await.is_err() })
    });
    for refused in many.collect::<Vec<_>>() {
        assert!(refused.await?, "granted without a replica");
    }
    goes_on(&held).await?;
    assert_eq!(held.state(), LeaseState::Held, "others' waiting stalled a renewal");
    pair.replica.kill()?;
    refuses(&pair, &locks).await?;
    pair.replica.restart()?;
    pair.replica.await_sync(&pair.site.server)?;
    works(&locks, "a").await?;
    Ok(held.release().await?)
}

async fn refuses(pair: &Pair, locks: &Locks) -> Outcome {
    let error = locks.try_acquire("a").ttl(ttl(60_000)).await.unwrap_err();
    check_error(&error, &[ErrorKind::Unavailable], &["0 of 1 replicas have acknowledged"])?;
    let key = "cerrojo:{a}";
    eventually("nothing held", || pair.site.has_key(key).map(|is_there| !is_there)).await
}

async fn handed_over() -> Outcome {
    let pair = Pair::start()?;
    let locks = pair.locks().await?;
    let first = locks.acquire("a").ttl(ttl(60_000)).await?;
    let next = {
        let locks = pair.locks().await?;
        tokio::spawn(async move { locks.acquire("a").ttl(ttl(60_000)).wait(LONG).await })
    };
    eventually("a waiter", || pair.site.has_key("cerrojo:{a}:line")).await?;
    pair.replica.freeze()?;
    first.release().await?;
    clock::sleep(millis(1_500)).await;
    assert!(!next.is_finished(), "handed out without a replica");
    pair.replica.thaw()?;
    let guard = next.await??;
    assert_eq!(pair.replica.command(&["EXISTS", "cerrojo:{a}"])?, "1");
    Ok(guard.release().await?)
}
