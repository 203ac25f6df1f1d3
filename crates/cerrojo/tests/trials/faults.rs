//! What goes wrong with a server or on the way to it, and what must come of that whichever store it serves.

use std::{
    error::Error,
    io::{self, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    time::Duration,
};

use cerrojo::{
    ErrorKind, Guard, Instant, LeaseState, Locker, Token, clock,
    spi::{Backend, Break},
};
use cerrojo_testbed::{Direction, Proxy};

use crate::site::{LONG, Outcome, goes_on, is_lost, millis, ttl, works};

/// The limit of a call in trials of servers that hang.
pub(crate) const LIMIT: Duration = Duration::from_millis(400);
/// A call and what is to be given back after it may each have to connect and to ask. Shorter than the core's own limit,
/// which is the last resort.
const IN_TIME: Duration = Duration::from_millis(4_500);
/// What must never be shown.
pub(crate) const SECRET: &str = "hunter2hunter2";

/// Lets nothing pass, until it heals.
pub(crate) fn hold(proxy: &Proxy) -> io::Result<()> {
    proxy.hold(Direction::ToServer)?;
    proxy.hold(Direction::ToClient)
}

/// Ends all connections, and lets nobody in until it accepts again.
pub(crate) fn refuse(proxy: &Proxy) -> io::Result<()> {
    proxy.refuse()?;
    proxy.reset()
}

/// Every call ends in time while the server is broken, and all works again once it is mended.
pub(crate) async fn all_end<B: Backend>(
    locks: &Locker<B>,
    breaks: impl FnOnce() -> io::Result<()>,
    mends: impl AsyncFnOnce() -> Outcome,
) -> Outcome {
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
    fails_in_time("break", millis(0), locks.break_lock(&"other".parse()?, Break::Now)).await?;
    let released = fails_in_time("release", millis(0), given_up.release()).await?;
    assert_eq!(released, ErrorKind::Indeterminate);
    is_lost(&renewed).await?;
    assert_eq!(held.state(), LeaseState::Held);
    mends().await?;
    for name in ["new", "given-up", "renewed"] {
        works(locks, name).await?;
    }
    Ok(held.release().await?)
}

/// Fails, and not later than a call takes at most after `wait`; the kind says that nothing, or nobody knows what, was done.
pub(crate) async fn fails_in_time<T>(
    what: &str,
    wait: Duration,
    call: impl IntoFuture<Output = cerrojo::Result<T>>,
) -> Outcome<ErrorKind> {
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

/// How many faults [`break_briefly`] knows.
pub(crate) const FAULTS: u64 = 5;

/// The last of them lasts until the client has given its connections up by itself.
pub(crate) async fn break_briefly<B: Backend>(
    proxy: &Proxy,
    locks: &Locker<B>,
    fault: u64,
) -> Outcome {
    match fault {
        0 => proxy.cut()?,
        1 => proxy.reset()?,
        2 => {
            proxy.refuse()?;
            proxy.cut()?;
        }
        3 => proxy.cut_after(Direction::ToClient, 100)?,
        _ => {
            proxy.hold(Direction::ToClient)?;
            together(locks, "hung").await;
        }
    }
    clock::sleep(millis(20)).await;
    Ok(proxy.heal()?)
}

/// A cycle of each of sixteen tasks, with names of their own. What fails is the fault's doing.
pub(crate) async fn together<B: Backend>(locks: &Locker<B>, cycle: &str) {
    let cycles = (0..16).map(|task| {
        let (locks, name) = (locks.clone(), format!("{cycle}-{task}"));
        tokio::spawn(async move {
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
pub(crate) struct Way<'a> {
    front: &'a Proxy,
    silent: Proxy,
    server_port: u16,
}

impl<'a> Way<'a> {
    pub(crate) fn start(front: &'a Proxy, server_port: u16) -> io::Result<Self> {
        let silent = Proxy::start(server_port)?;
        front.lead_to(silent.port())?;
        Ok(Self { front, silent, server_port })
    }

    pub(crate) fn go_silent(&self) -> io::Result<()> {
        hold(&self.silent)?;
        self.front.lead_to(self.server_port)
    }
}

/// The end of a validity that nothing extends any more: the guard reads lost then, though nobody can be asked.
pub(crate) async fn lost_on_time<T: Token>(guard: &Guard<T>) -> Outcome<Instant> {
    let mut until = guard.valid_until().ok_or("lost at once")?;
    while let Some(later) = guard.signal().valid_until_changes(Some(until)).await {
        until = later;
    }
    is_lost(guard).await?;
    let late = Instant::now().since(until);
    assert!(late < millis(1_000), "{late:?} after the end of validity");
    Ok(until)
}

/// Each way to fail loses one request or its answer; the lock is still held some TTLs later.
pub(crate) async fn one_failed_renewal<B: Backend>(
    locks: &Locker<B>,
    proxy: &Proxy,
    ttl_ms: u64,
) -> Outcome {
    let guard = locks.acquire("a").ttl(ttl(ttl_ms)).wait(LONG).await?;
    for direction in [Direction::ToServer, Direction::ToClient] {
        let before = proxy.counts()?;
        proxy.hold(direction)?;
        proxy.await_counts(LONG, move |now| match direction {
            Direction::ToServer => now.to_server.arrived > before.to_server.arrived,
            Direction::ToClient => now.to_client.arrived > before.to_client.arrived,
        })?;
        // What was held is lost with the connection.
        proxy.cut()?;
        proxy.heal()?;
        goes_on(&guard).await?;
    }
    let end = Instant::now() + millis(15_000);
    clock::until(end, guard.lost()).await.unwrap_err();
    goes_on(&guard).await?;
    Ok(guard.release().await?)
}

/// Serves every connection with `answer` to whatever comes, until the process ends; its address.
pub(crate) fn serve(answer: &'static [u8]) -> io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    std::thread::spawn(move || {
        for connection in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || drop(serve_one(connection, answer)));
        }
    });
    Ok(address)
}

/// Reads on to the client's end: with something unread the connection would be reset, and the answer lost.
fn serve_one(mut connection: TcpStream, answer: &[u8]) -> io::Result<()> {
    connection.read(&mut [0; 1_024]).map(drop)?;
    connection.write_all(answer)?;
    connection.shutdown(Shutdown::Write)?;
    io::copy(&mut connection, &mut io::sink()).map(drop)
}

/// No secret, also in none of its sources.
pub(crate) fn never_shown(error: &cerrojo::Error) {
    let mut next: Option<&dyn Error> = Some(error);
    while let Some(error) = next {
        assert!(!format!("{error} {error:?}").contains(SECRET), "a password is shown");
        next = error.source();
    }
}
