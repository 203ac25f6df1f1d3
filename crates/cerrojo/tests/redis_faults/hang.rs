//! Servers that do not answer, or too late: every call ends in time, and all works again afterwards on the same value.

use std::time::Duration;

use cerrojo::{ErrorKind, Instant, LeaseState, clock, spi::Break};
use cerrojo_testbed::{Direction, Proxy};
use libtest_mimic::Trial;

use crate::site::{
    LONG, Locks, Outcome, Site, bounded, connect, eventually, goes_on, is_lost, kind, millis,
    runtime, trial, ttl, works,
};

/// The limit of a call in these trials.
const LIMIT: Duration = Duration::from_millis(400);
/// A call and what is to be given back after it may each have to connect and to ask. Shorter than the core's own limit,
/// which is the last resort.
const IN_TIME: Duration = Duration::from_millis(4_500);

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_stopped_server_ends_every_call_in_time", stopped),
        trial("a_half_open_connection_ends_every_call_in_time", half_open),
        trial("a_refusing_server_ends_every_call_in_time", refusing),
        trial("a_server_slower_than_the_limit_ends_every_call_in_time", too_slow),
        trial("a_server_a_little_faster_than_the_limit_serves_all", just_in_time),
        trial("connections_stay_one_over_many_cycles_and_faults", constant_connections),
        trial("waiters_outlive_a_server_that_hangs", hung_waiters),
        Trial::test("a_store_outlives_the_runtime_that_was_dialing", dead_runtime),
        trial("a_connection_that_went_silent_is_replaced_before_the_lock_is_lost", silent_holder),
        trial("a_waiter_whose_connection_went_silent_enters_by_another", silent_waiter),
    ]
}

async fn locks_of(site: &Site) -> cerrojo::Result<Locks> {
    connect(&site.url(&format!("call_limit_ms={}", LIMIT.as_millis()))).await
}

async fn stopped() -> Outcome {
    all_end(|site| site.server.freeze(), |site| site.server.thaw()).await
}

async fn half_open() -> Outcome {
    let hold = |site: &Site| {
        site.proxy.hold(Direction::ToServer)?;
        site.proxy.hold(Direction::ToClient)
    };
    all_end(hold, |site| site.proxy.heal()).await
}

async fn refusing() -> Outcome {
    let refuse = |site: &Site| {
        site.proxy.refuse()?;
        site.proxy.reset()
    };
    all_end(refuse, |site| site.proxy.accept()).await
}

async fn too_slow() -> Outcome {
    all_end(|site| site.proxy.delay(Direction::ToClient, LIMIT * 2), |site| site.proxy.heal()).await
}

type Step = fn(&Site) -> std::io::Result<()>;

async fn all_end(breaks: Step, mends: Step) -> Outcome {
    let site = Site::start()?;
    let locks = locks_of(&site).await?;
    let held = locks.acquire("held").ttl(ttl(60_000)).await?;
    let given_up = locks.acquire("given-up").ttl(ttl(60_000)).await?;
    let renewed = locks.acquire("renewed").ttl(ttl(3_000)).await?;
    breaks(&site)?;
    let (name, owner) = (held.name().clone(), held.owner());
    fails_in_time("acquire", millis(0), locks.try_acquire("new")).await?;
    fails_in_time("acquire", millis(1_000), locks.acquire("new").wait(millis(1_000))).await?;
    fails_in_time("renew", millis(0), locks.resume(&name, owner, ttl(60_000))).await?;
    fails_in_time("holder", millis(0), locks.holder(&name)).await?;
    fails_in_time("list", millis(0), locks.list(None, 10)).await?;
    fails_in_time("break", millis(0), locks.break_lock(&"other".parse()?, Break::Now)).await?;
    let released = fails_in_time("release", millis(0), given_up.release()).await?;
    assert_eq!(released, ErrorKind::Indeterminate);
    is_lost(&renewed).await?;
    assert_eq!(held.state(), LeaseState::Held);
    mends(&site)?;
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
) -> Result<ErrorKind, libtest_mimic::Failed> {
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

async fn just_in_time() -> Outcome {
    let site = Site::start()?;
    let locks = connect(&site.url("call_limit_ms=1000")).await?;
    site.proxy.delay(Direction::ToClient, millis(400))?;
    let guard = locks.acquire("a").ttl(ttl(6_000)).await?;
    assert_eq!(kind(locks.try_acquire("a").await), Some(ErrorKind::Contended));
    goes_on(&guard).await?;
    guard.release().await?;
    assert_eq!(site.proxy.counts()?.connections_seen, 1);
    site.proxy.heal()?;
    works(&locks, "a").await
}

const CYCLES: usize = 200;

/// Sixteen tasks at a time, a fault at every tenth cycle.
async fn constant_connections() -> Outcome {
    let site = Site::start()?;
    let locks = locks_of(&site).await?;
    let mut faults = 0;
    for cycle in 0..CYCLES {
        if cycle % 10 == 0 {
            break_briefly(&site, &locks, faults).await?;
            faults += 1;
        }
        together(&locks, cycle).await;
        site.proxy.await_counts(LONG, |counts| counts.connections_open <= 1)?;
    }
    works(&locks, "a").await?;
    let counts = site.proxy.counts()?;
    assert_eq!(counts.connections_open, 1);
    // One that hangs is given up, and so is one that was made while the next fault began.
    assert!(counts.connections_seen <= 3 * faults + 1, "{counts:?} after {faults} faults");
    drop(locks);
    site.proxy.await_counts(LONG, |counts| counts.connections_open == 0)?;
    Ok(())
}

/// The last of them lasts until the client has given the connection up by itself.
async fn break_briefly(site: &Site, locks: &Locks, round: u64) -> std::io::Result<()> {
    match round % 5 {
        0 => site.proxy.cut()?,
        1 => site.proxy.reset()?,
        2 => {
            site.proxy.refuse()?;
            site.proxy.cut()?;
        }
        3 => site.proxy.cut_after(Direction::ToClient, 100)?,
        _ => {
            site.proxy.hold(Direction::ToClient)?;
            together(locks, CYCLES).await;
        }
    }
    clock::sleep(millis(20)).await;
    site.proxy.heal()
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

/// The server hangs for several limits while ten wait; each gets its turn.
async fn hung_waiters() -> Outcome {
    let site = Site::start()?;
    let locks = locks_of(&site).await?;
    let holder = locks.acquire("a").ttl(ttl(60_000)).await?;
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let locks = locks_of(&site).await?;
        waiting.spawn(async move {
            let guard = locks.acquire("a").ttl(ttl(60_000)).wait(LONG).await?;
            guard.release().await
        });
    }
    eventually("ten in line", || Ok(site.server.command(&["ZCARD", "cerrojo:{a}:line"])? == "10"))
        .await?;
    site.server.freeze()?;
    clock::sleep(LIMIT * 4).await;
    site.server.thaw()?;
    holder.release().await?;
    while let Some(entered) = waiting.join_next().await {
        entered??;
    }
    Ok(())
}

/// A way to the server on which the connections of now will be silent, while new ones work.
struct Way {
    site: Site,
    silent: Proxy,
}

impl Way {
    fn start() -> std::io::Result<Self> {
        let site = Site::start()?;
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
async fn silent_holder() -> Outcome {
    let way = Way::start()?;
    let locks = connect(&way.site.url("call_limit_ms=10000")).await?;
    let guard = locks.acquire("a").ttl(ttl(5_000)).await?;
    way.go_silent()?;
    goes_on(&guard).await?;
    Ok(guard.release().await?)
}

async fn silent_waiter() -> Outcome {
    let way = Way::start()?;
    let waiter = locks_of(&way.site).await?;
    let locks = connect(&format!("redis://{}", way.site.server.address())).await?;
    let holder = locks.acquire("a").ttl(ttl(60_000)).await?;
    let waiting = tokio::spawn(async move { waiter.acquire("a").wait(LONG).await });
    eventually("a waiter", || way.site.has_key("cerrojo:{a}:line")).await?;
    way.go_silent()?;
    holder.release().await?;
    Ok(waiting.await??.release().await?)
}

/// What dials belongs to a runtime, and may go with it.
fn dead_runtime() -> Outcome {
    let site = Site::start()?;
    let first = runtime();
    let locks = first.block_on(locks_of(&site))?;
    site.proxy.cut()?;
    site.proxy.hold(Direction::ToClient)?;
    let before = site.proxy.counts()?.connections_seen;
    let asking = locks.clone();
    let asking = first.spawn(async move { asking.acquire("a").wait(LONG).await });
    site.proxy.await_counts(LONG, move |counts| counts.connections_seen > before)?;
    first.shutdown_background();
    drop(asking);
    site.proxy.heal()?;
    runtime().block_on(bounded(works(&locks, "b")))
}
