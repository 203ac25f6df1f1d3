//! Fencing tokens only grow.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::JoinSet;

use super::{
    super::{
        Harness,
        case::{Failure, Verdict, check},
        site::{PATIENCE, Site, granted, job, soon},
    },
    owners::token_of,
};
use crate::{
    Break, FencingToken,
    spi::{Inspect, Lease, Request},
};

/// The tokens of one name, which have to rise.
#[derive(Default)]
struct Rising(Option<u64>);

impl Rising {
    fn next(&mut self, token: Option<u64>) -> Verdict {
        check!(token.is_some(), "a grant without a token");
        check!(token > self.0, "{token:?} after {:?}", self.0);
        check!(token <= Some(FencingToken::MAX), "{token:?} is too large");
        self.0 = token;
        Ok(())
    }
}

fn waiting<H: Harness>(site: &Site<H>) -> Result<Request, Failure> {
    Ok(Request::new(job()?, site.short_ttl()).with_wait(PATIENCE))
}

pub(super) async fn tokens_increase_over_releases<H: Harness>(site: Site<H>) -> Verdict {
    let (backend, mut tokens) = (site.backend().await?, Rising::default());
    for _ in 0..50 {
        let mut lease = granted(&backend, &Request::new(job()?, site.long_ttl())).await?;
        tokens.next(token_of(&lease))?;
        lease.release().await?;
    }
    Ok(())
}

pub(super) async fn tokens_increase_over_expiry<H: Harness>(site: Site<H>) -> Verdict {
    let (backend, mut tokens) = (site.backend().await?, Rising::default());
    for _ in 0..4 {
        let lease = granted(&backend, &waiting(&site)?).await?;
        tokens.next(token_of(&lease))?;
    }
    Ok(())
}

pub(super) async fn tokens_increase_over_breaks<H: Harness>(site: Site<H>) -> Verdict {
    let (backend, mut tokens) = (site.backend().await?, Rising::default());
    for when in [Break::Now, Break::AtExpiry, Break::Now, Break::AtExpiry] {
        let lease = granted(&backend, &waiting(&site)?).await?;
        tokens.next(token_of(&lease))?;
        backend.break_lock(&job()?, when).await?;
    }
    let lease = granted(&backend, &waiting(&site)?).await?;
    tokens.next(token_of(&lease))
}

pub(super) async fn tokens_increase_over_prunes<H: Harness>(site: Site<H>) -> Verdict {
    let (backend, mut tokens) = (site.backend().await?, Rising::default());
    for round in 0..6 {
        let mut lease = granted(&backend, &waiting(&site)?).await?;
        tokens.next(token_of(&lease))?;
        // One is released before the prune, the next ends by its TTL.
        if round % 2 == 0 {
            lease.release().await?;
        }
        backend.prune().await?;
    }
    Ok(())
}

pub(super) async fn tokens_increase_over_connections<H: Harness>(site: Site<H>) -> Verdict {
    let mut tokens = Rising::default();
    for _ in 0..8 {
        let backend = site.backend().await?;
        let mut lease = granted(&backend, &Request::new(job()?, site.long_ttl())).await?;
        tokens.next(token_of(&lease))?;
        lease.release().await?;
        backend.prune().await?;
    }
    Ok(())
}

pub(super) async fn tokens_increase_among_tasks<H: Harness>(site: Site<H>) -> Verdict {
    let (seen, mut tasks) = (Arc::new(Mutex::new(Vec::new())), JoinSet::new());
    for _ in 0..4 {
        let (locker, faults) = site.faulty().await?;
        let seen = Arc::clone(&seen);
        tasks.spawn(async move {
            for _ in 0..10 {
                let guard = locker.acquire(job()?).wait(PATIENCE).await?;
                seen.lock().unwrap_or_else(PoisonError::into_inner).push(faults.last_token());
                guard.release().await?;
            }
            Ok::<_, Failure>(())
        });
    }
    while let Some(task) = soon("a task", tasks.join_next()).await? {
        task??;
    }
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut tokens = Rising::default();
    seen.into_iter().try_for_each(|token| tokens.next(token))
}

pub(super) async fn tokens_increase_over_crashes<H: Harness>(site: Site<H>) -> Verdict {
    let (backend, mut tokens) = (site.backend().await?, Rising::default());
    for _ in 0..3 {
        let mut child = site.child().await?;
        tokens.next(child.acquire(site.short_ttl(), "process").await?.token)?;
        child.kill()?;
        let mut lease = granted(&backend, &waiting(&site)?).await?;
        tokens.next(token_of(&lease))?;
        lease.release().await?;
    }
    Ok(())
}
