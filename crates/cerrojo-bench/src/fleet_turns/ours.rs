//! Our own locks, of either kind.

use std::time::Duration;

use cerrojo::{AnyLocker, ApproximateGuard, Erased, Locker, NoToken, Options, Ttl, Wait};

use super::{Job, redis};
use crate::{Result, store::AnyFenced};

#[derive(Clone)]
pub(super) enum Ours {
    Fenced(AnyFenced),
    Approximate(Locker<Erased<NoToken>>),
}

impl Ours {
    pub(super) async fn connect(job: &Job) -> Result<Self> {
        let url = job.url.clone().unwrap_or_else(|| redis_url(job));
        match cerrojo::connect(&url, Options::default()).await? {
            AnyLocker::Fenced(locks) => Ok(Self::Fenced(locks)),
            AnyLocker::Approximate(locks) => Ok(Self::Approximate(locks)),
            _ => Err("a store of a third kind".into()),
        }
    }

    /// Without what a fenced lock promises beyond, which no turn has a use for.
    pub(super) async fn acquire(
        &self,
        name: &str,
        ttl_ms: u64,
        wait: Wait,
    ) -> cerrojo::Result<ApproximateGuard> {
        let ttl = Ttl::try_from(Duration::from_millis(ttl_ms))?;
        match self {
            Self::Fenced(locks) => {
                Ok(locks.acquire(name).ttl(ttl).wait(wait).await?.into_approximate())
            }
            Self::Approximate(locks) => locks.acquire(name).ttl(ttl).wait(wait).await,
        }
    }
}

/// Nodes that have just been started for this job have forgotten nothing: they vote at once.
fn redis_url(job: &Job) -> String {
    let format = job.format.as_ref().map(|format| format!("format={format}")).unwrap_or_default();
    match job.nodes.as_slice() {
        [one] => format!("{}?{format}", redis::url(*one)),
        nodes => {
            let hosts: Vec<_> = nodes.iter().map(|port| format!("127.0.0.1:{port}")).collect();
            format!("redlock://{}?restart_grace_ms=0&{format}", hosts.join(","))
        }
    }
}
