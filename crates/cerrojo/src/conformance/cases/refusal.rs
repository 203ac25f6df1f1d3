//! What others are told of a holder.

use super::super::{
    Harness,
    case::{Failure, Verdict, check},
    site::{Site, granted, job},
};
use crate::{
    Error, HolderInfo, Identity, LockName, Locker, Options,
    spi::{Acquired, Backend, Inspect, Request},
};

fn holder_of(error: &Error) -> Result<HolderInfo, Failure> {
    error.holder().cloned().ok_or_else(|| Failure::new(format!("{error} names no holder")))
}

async fn refused<B: Backend>(locker: &Locker<B>) -> Result<HolderInfo, Failure> {
    match locker.try_acquire(job()?).await {
        Err(error) => holder_of(&error),
        Ok(_) => Err(Failure::new("two hold it")),
    }
}

pub(super) async fn a_refused_try_says_who_holds_it<H: Harness>(site: Site<H>) -> Verdict {
    let mut options = Options::default();
    options.identity.label = Some("first".to_owned());
    let (host, first) =
        (options.identity.host.clone(), Locker::with_options(site.backend().await?, options));
    let guard = first.acquire(job()?).await?;
    let holder = refused(&site.locker().await?).await?;
    check!(holder.name == job()?, "{holder:?}");
    let expected =
        Identity { host, pid: Some(std::process::id()), label: Some("first".to_owned()) };
    check!(holder.identity == expected, "{holder:?}");
    check!(holder.ends_in.is_none_or(|ends_in| !ends_in.is_zero()), "{holder:?}");
    check!(!holder.broken, "{holder:?}");
    guard.release().await?;
    Ok(())
}

pub(super) async fn a_refused_try_shows_the_token_of_the_grant<H: Harness>(
    site: Site<H>,
) -> Verdict {
    let (first, faults) = site.faulty().await?;
    let guard = first.acquire(job()?).await?;
    let second = site.locker().await?;
    let shown = [
        refused(&second).await?.token,
        second.holder(&job()?).await?.and_then(|holder| holder.token),
    ];
    check!(faults.last_token().is_some(), "the grant has no token");
    check!(shown == [faults.last_token(); 2], "granted {:?}, shown {shown:?}", faults.last_token());
    guard.release().await?;
    Ok(())
}

pub(super) async fn nobody_holds_what_is_free<H: Harness>(site: Site<H>) -> Verdict {
    let locker = site.locker().await?;
    check!(locker.holder(&job()?).await?.is_none(), "an empty store names a holder");
    let guard = locker.acquire(job()?).await?;
    check!(locker.holder(&job()?).await?.is_some(), "a held lock has no holder");
    check!(locker.holder(&"other".parse()?).await?.is_none(), "another name has a holder");
    guard.release().await?;
    check!(locker.holder(&job()?).await?.is_none(), "a released lock has a holder");
    check!(locker.list(None, 10).await?.is_empty(), "a released lock is listed");
    Ok(())
}

pub(super) async fn pages_of_the_list_have_no_gap_and_no_repeat<H: Harness>(
    site: Site<H>,
) -> Verdict {
    let locker = site.locker().await?;
    let mut guards = Vec::new();
    for name in ["d", "B", "a", "é", "c", "a/b", "%"] {
        guards.push(locker.acquire(name).await?);
    }
    let (mut seen, mut after) = (Vec::new(), None::<LockName>);
    loop {
        let page = locker.list(after.as_ref(), 3).await?;
        check!(page.len() <= 3, "a page of {}", page.len());
        let Some(last) = page.last() else { break };
        after = Some(last.name.clone());
        seen.extend(page.into_iter().map(|holder| holder.name.to_string()));
    }
    check!(seen == ["%", "B", "a", "a/b", "c", "d", "é"], "listed {seen:?}");
    Ok(())
}

pub(super) async fn an_owner_is_never_shown_whole<H: Harness>(site: Site<H>) -> Verdict {
    let backend = site.backend().await?;
    let request = Request::new(job()?, site.long_ttl());
    let lease = granted(&backend, &request).await?;
    let refused = backend.acquire(&Request::new(job()?, site.long_ttl())).await?;
    check!(matches!(refused, Acquired::Refused(_)), "two hold it");
    let listed = backend.list(None, 10).await?;
    let shown = format!("{refused:?} {listed:?} {lease:?} {backend:?}").to_lowercase();
    check!(!shown.contains(&request.owner().to_hex()), "the owner is shown whole: {shown}");
    check!(listed.iter().all(|holder| holder.owner == request.owner().short()), "{listed:?}");
    Ok(())
}
