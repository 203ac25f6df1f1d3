//! Servers that do not answer, or too late: every call ends in time, and all works again afterwards on the same value.

use std::time::Duration;

use cerrojo::{ErrorKind, Instant, LeaseState, clock, spi::Break};
use cerrojo_testbed::{Direction, Proxy};
use libtest_mimic::{Failed, Trial};

use crate::site::{
    LONG, Locks, Outcome, Shared, Site, connect, goes_on, is_lost, kind, millis, trial, ttl, until,
    waiter, works,
};

/// The limit of a call in these trials.
const LIMIT: Duration = Duration::from_millis(400);
/// A call and what is to be given back after it may each have to connect and to ask. Shorter than the core's own limit,
/// which is the last resort.
const IN_TIME: Duration = Duration::from_millis(4_500);
/// Two for requests and one to listen.
const CONNECTIONS: u64 = 3;

pub(crate) fn trials(shared: &Shared) -> Vec<Trial> {
    vec![
        trial("a_stopped_server_ends_every_call_in_time", stopped),
        shared.trial("a_half_open_connection_ends_every_call_in_time", half_open),
        shared.trial("a_refusing_server_ends_every_call_in_time", refusing),
        shared.trial("a_server_slower_than_the_limit_ends_every_call_in_time", too_slow),
        shared.trial("a_server_a_little_faster_than_the_limit_serves_all", just_in_time),
        shared.trial("connections_stay_three_over_many_cycles_and_faults", constant_connections),
        shared.trial(
            "a_connection_that_went_silent_is_replaced_before_the_lock_is_lost",
            silent_holder,
        ),
        shared.trial("a_waiter_whose_connections_went_silent_enters_by_others", silent_waiter),
    ]
}

async fn locks_of(site: &Site) -> cerrojo::Result<Locks> {
    connect(&site.url(&format!("call_limit_ms={}", LIMIT.as_millis()))).await
}

async fn stopped() -> Outcome {
    let site = Site::start()?;
    all_end(&site, || site.server.freeze(), || site.server.thaw()).await
}

async fn half_open(site: Site) -> Outcome {
    let hold = || {
        site.proxy.hold(Direction::ToServer)?;
        site.proxy.hold(Direction::ToClient)
    };
    all_end(&site, hold, || site.proxy.heal()).await
}

async fn refusing(site: Site) -> Outcome {
    let refuse = || {
        site.proxy.refuse()?;
        site.proxy.reset()
    };
    all_end(&site, refuse, || site.proxy.accept()).await
}

async fn too_slow(site: Site) -> Outcome {
    let delay = || site.proxy.delay(Direction::ToClient, LIMIT * 2);
    all_end(&site, delay, || site.proxy.heal()).await
}

async fn all_end(
    site: &Site,
    breaks: impl FnOnce() -> std::io::Result<()>,
    mends: impl FnOnce() -> std::io::Result<()>,
) -> Outcome {
    let locks = locks_of(site).await?;
    let held = locks.acquire("held").ttl(ttl(60_000)).wait(LONG).await?;
    let given_up = locks.acquire("given-up").ttl(ttl(60_000)).wait(LONG).await?;
    let renewed = locks.acquire("renewed").ttl(ttl(3_000)).wait(LONG).await?;
    breaks()?;
    let (name, owner) = (held.name().clone(), held.owner());
    fails_in_time("acquire", millis(0), locks.try_acquire("new")).await?;
    fails_in_time("acquire", millis(1_000), locks.acquire("new").wait(millis(1_000))).await?;
    fails_in_time("renew", millis(0), locks.resume(&name, owner, ttl(60_000))).await?;
    fails_in_time("holder", millis(0), locks.holder(&name)).await?;
    fails_in_time("list", millis(0), locks.list(None, 10)).await?;
    fails_in_time("prune", millis(0), locks.prune()).await?;
    fails_in_time("break", millis(0), locks.break_lock(&"other".parse()?, Break::Now)).await?;
    let released = fails_in_time("release", millis(0), given_up.release()).await?;
    assert_eq!(released, ErrorKind::Indeterminate);
    is_lost(&renewed).await?;
    assert_eq!(held.state(), LeaseState::Held);
    mends()?;
    for name in ["new", "given-up", "renewed"] {
        works(&locks, name).await?;
    }
    Ok(held.release().await?)
}

/// Fails, and not later than a call takes at most after `wait`; the kind says that nothing, or nobody knows what, was done.
async fn fails_in_time<T>(
    what: &str,
    wait: Duration,
    call: impl IntoFuture<Output = cerrojo::Result<T>>,
) -> Result<ErrorKind, Failed> {
    let start = Instant::now();
    let answer = clock::within(wait + IN_TIME, call.into_future()).await;
    let answer = answer.map_err(|_| format!("{what}: still asking after {:?}", wait + IN_TIME))?;
    let error = answer.err().ok_or_else(|| format!("{what} worked"))?;
    assert!(Instant::now().since(start) >= wait, "{what} gave up early: {error}");
    match error.kind() {
        kind @ (ErrorKind::Unavailable | ErrorKind::Indeterminate) => Ok(kind),
        kind => Err(format!("{what}: {kind:?}: {error}").into()),
    }
}

async fn just_in_time(site: Site) -> Outcome {
    let locks = connect(&site.url("call_limit_ms=2000")).await?;
    site.proxy.delay(Direction::ToClient, millis(300))?;
    let guard = locks.acquire("a").ttl(ttl(9_000)).wait(LONG).await?;
    assert_eq!(kind(locks.try_acquire("a").await), Some(ErrorKind::Contended));
    goes_on(&guard).await?;
    guard.release().await?;
    site.proxy.heal()?;
    assert!(site.proxy.counts()?.connections_open <= CONNECTIONS);
    works(&locks, "a").await
}

const CYCLES: usize = 100;

/// Sixteen tasks at a time, a fault at every tenth cycle, and one that stands in the line all the time.
async fn constant_connections(site: Site) -> Outcome {
    let (locks, others) = (locks_of(&site).await?, site.direct().await?);
    let held = others.acquire("held").ttl(ttl(60_000)).await?;
    let waiting = waiter(locks.clone(), "held", 60_000);
    site.until_waiting("held", 1).await?;
    let mut faults = 0;
    for cycle in 0..CYCLES {
        if cycle % 10 == 0 {
            break_briefly(&site, &locks, faults).await?;
            faults += 1;
        }
        together(&locks, cycle).await;
        site.proxy.await_counts(LONG, |counts| counts.connections_open <= CONNECTIONS)?;
    }
    works(&locks, "a").await?;
    held.release().await?;
    waiting.await??.release().await?;
    drop(others);
    until("three connections", async || Ok(site.connections().await? <= 3)).await?;
    let counts = site.proxy.counts()?;
    // One that hangs is given up, and so is one that was made while the next fault began.
    assert!(counts.connections_seen <= 3 * CONNECTIONS * (faults + 1), "{counts:?}");
    drop(locks);
    site.proxy.await_counts(LONG, |counts| counts.connections_open == 0)?;
    until("no connection", async || Ok(site.connections().await? == 0)).await
}

/// The last of them lasts until the client has given the connections up by itself.
async fn break_briefly(site: &Site, locks: &Locks, round: u64) -> Outcome {
    match round % 6 {
        0 => site.proxy.cut()?,
        1 => site.proxy.reset()?,
        2 => {
            site.proxy.refuse()?;
            site.proxy.cut()?;
        }
        3 => site.proxy.cut_after(Direction::ToClient, 100)?,
        4 => drop(site.cut_by_server()?),
        _ => {
            site.proxy.hold(Direction::ToClient)?;
            together(locks, CYCLES).await;
        }
    }
    clock::sleep(millis(20)).await;
    Ok(site.proxy.heal()?)
}

/// A cycle of each of sixteen tasks. What fails is the fault's doing.
async fn together(locks: &Locks, cycle: usize) {
    let cycles = (0..16).map(|task| {
        let locks = locks.clone();
        tokio::spawn(async move {
            let name = format!("{cycle}-{task}");
            if let Ok(guard) = locks.acquire(name.as_str()).wait(millis(2_000)).await {
                drop(guard.release().await);
            }
        })
    });
    for cycle in cycles.collect::<Vec<_>>() {
        cycle.await.unwrap();
    }
}

/// A way to the server on which the connections of now will be silent, while new ones work.
struct Way {
    site: Site,
    silent: Proxy,
}

impl Way {
    fn start(site: Site) -> std::io::Result<Self> {
        let silent = Proxy::start(site.server.port())?;
        site.proxy.lead_to(silent.port())?;
        Ok(Self { site, silent })
    }

    fn go_silent(&self) -> std::io::Result<()> {
        self.silent.hold(Direction::ToServer)?;
        self.silent.hold(Direction::ToClient)?;
        self.site.proxy.lead_to(self.site.server.port())
    }
}

/// With a limit for calls that alone would be too long for this TTL.
async fn silent_holder(site: Site) -> Outcome {
    let way = Way::start(site)?;
    let locks = connect(&way.site.url("call_limit_ms=20000")).await?;
    let guard = locks.acquire("a").ttl(ttl(12_000)).wait(LONG).await?;
    way.go_silent()?;
    goes_on(&guard).await?;
    Ok(guard.release().await?)
}

async fn silent_waiter(site: Site) -> Outcome {
    let way = Way::start(site)?;
    let (waits, locks) = (locks_of(&way.site).await?, way.site.direct().await?);
    let holder = locks.acquire("a").ttl(ttl(60_000)).await?;
    let waiting = waiter(waits, "a", 60_000);
    way.site.until_waiting("a", 1).await?;
    way.go_silent()?;
    holder.release().await?;
    Ok(waiting.await??.release().await?)
}
