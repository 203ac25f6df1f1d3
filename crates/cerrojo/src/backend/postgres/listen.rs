//! Hears on one connection that waiters of this process have been made owners.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;
use tokio_postgres::{AsyncMessage, types::Type};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    config::{Config, Listen},
    dial::{Ear, Wire},
    error::PgError,
    queue::Value,
    worker::Workers,
};
use crate::{
    OwnerId,
    clock::{self, Instant},
    line::Waiters,
    rng,
};

/// How often the connection is tried.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// How long it rests after a failure, at first and at most.
const REST: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(10));
/// How long it rests where nothing is heard, in the end: a server that was busy is heard when it is asked again.
const REST_UNHEARD: Duration = Duration::from_secs(60);
/// How long a waiter that hears nothing leaves between its requests: at least, at most, and for each that waits in this process.
const POLL: (Duration, Duration, Duration) =
    (Duration::from_millis(100), Duration::from_secs(1), Duration::from_millis(1));
/// What we say to ourselves to learn whether it is heard.
const HELLO: &str = "hello";

/// The ears of a store's waiters.
#[derive(Debug)]
pub(super) struct Ears {
    shared: Arc<Shared>,
    _ends: DropGuard,
}

#[derive(Debug)]
struct Shared {
    config: Config,
    channel: String,
    waiters: Arc<Waiters>,
    workers: Weak<Workers>,
    hears: AtomicBool,
    is_running: AtomicBool,
    has_warned: AtomicBool,
    ended: CancellationToken,
}

impl Ears {
    /// Does no I/O.
    pub(super) fn new(config: &Config, waiters: Arc<Waiters>, workers: &Arc<Workers>) -> Self {
        let ended = CancellationToken::new();
        let shared = Shared {
            config: config.clone(),
            channel: format!("cerrojo_{}", OwnerId::random().to_hex()),
            waiters,
            workers: Arc::downgrade(workers),
            hears: AtomicBool::new(false),
            is_running: AtomicBool::new(false),
            has_warned: AtomicBool::new(false),
            ended: ended.clone(),
        };
        Self { shared: Arc::new(shared), _ends: ended.drop_guard() }
    }

    /// Where a waiter is told; empty where it cannot be. Begins to listen with the first who asks.
    pub(super) fn channel(&self) -> String {
        if self.shared.config.listen != Listen::No
            && let Some(running) = Running::start(&self.shared)
        {
            tokio::spawn(listen(running));
        }
        if self.hears() { self.shared.channel.clone() } else { String::new() }
    }

    pub(super) fn hears(&self) -> bool {
        self.shared.hears.load(Ordering::Relaxed)
    }

    /// When a waiter asks again that the store has told to do so in `after`.
    pub(super) fn ask_again_in(&self, after: Duration) -> Duration {
        if self.hears() {
            return after;
        }
        let waiting = u32::try_from(self.shared.waiters.count()).unwrap_or(u32::MAX);
        let poll = POLL.2.saturating_mul(waiting).clamp(POLL.0, POLL.1);
        after.min(rng::jitter(poll))
    }
}

/// Held by the task for as long as it runs; one of a runtime that has ended is gone.
struct Running(Arc<Shared>);

impl Running {
    fn start(shared: &Arc<Shared>) -> Option<Self> {
        let is_running = shared.is_running.swap(true, Ordering::AcqRel);
        (!is_running).then(|| Self(Arc::clone(shared)))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.set(false);
        self.0.is_running.store(false, Ordering::Release);
    }
}

impl Shared {
    /// Nobody knows what was missed until now: everybody asks once, and is told where to be told from now on.
    fn set(&self, hears: bool) {
        if self.hears.swap(hears, Ordering::Relaxed) != hears {
            self.waiters.wake_all();
        }
    }

    fn warn_once(&self, why: &PgError) {
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(%why, "LISTEN is not heard: waiters ask again and again instead");
        }
    }
}

async fn listen(running: Running) {
    let shared = &running.0;
    let mut rest = REST.0;
    loop {
        let heard = tokio::select! {
            () = shared.ended.cancelled() => return,
            heard = listen_once(shared) => heard,
        };
        shared.set(false);
        match heard {
            Heard::Until(why) => {
                tracing::debug!(%why, "listening anew");
                rest = REST.0;
            }
            Heard::Nothing(why) => {
                shared.warn_once(&why);
                rest = (rest * 2).clamp(REST.1, REST_UNHEARD);
            }
            Heard::NotConnected(why) => {
                shared.warn_once(&why);
                rest = (rest * 2).clamp(REST.0, REST.1);
            }
        }
        tokio::select! {
            () = shared.ended.cancelled() => return,
            () = clock::sleep(rng::jitter(rest)) => {}
        }
    }
}

/// How listening ended.
enum Heard {
    Until(PgError),
    /// Connected, but deaf: a pooler in transaction mode says OK to LISTEN.
    Nothing(PgError),
    /// Or there was nobody to say something to ourselves.
    NotConnected(PgError),
}

async fn listen_once(shared: &Arc<Shared>) -> Heard {
    let greeted = Arc::new(Notify::new());
    let mut wire = match Wire::dial(&shared.config.for_listening()).await {
        Ok(wire) => wire,
        Err(why) => return Heard::NotConnected(why),
    };
    wire.hear_with(ear(shared, &greeted));
    let end = Instant::now() + shared.config.call_limit;
    if let Err(why) = wire.run(end, &format!("LISTEN \"{}\"", shared.channel)).await {
        return Heard::NotConnected(why);
    }
    match hello(shared, &mut wire, &greeted).await {
        Ok(()) => shared.set(true),
        Err(why @ PgError::Deaf(_)) => {
            unlisten(shared, &mut wire).await;
            return Heard::Nothing(why);
        }
        Err(why) => return Heard::NotConnected(why),
    }
    loop {
        if let Ok(why) = clock::within(HEARTBEAT, wire.hear()).await {
            return Heard::Until(why);
        }
        let end = Instant::now() + shared.config.call_limit;
        if let Err(why) = wire.query(end, "SELECT 1", &[] as &[(_, Type)]).await {
            return Heard::Until(why);
        }
    }
}

/// A pooler lends the connection that listens to others from now on: most likely once more to us, who asked it last.
async fn unlisten(shared: &Shared, wire: &mut Wire) {
    let end = Instant::now() + shared.config.call_limit;
    drop(wire.run(end, &format!("UNLISTEN \"{}\"", shared.channel)).await);
}

/// Says something to ourselves by one of the other connections.
async fn hello(shared: &Shared, wire: &mut Wire, greeted: &Notify) -> Result<(), PgError> {
    let Some(workers) = shared.workers.upgrade() else {
        return Err(PgError::Closed);
    };
    let text = |text: &str| Value::Text(text.to_owned());
    let parameters = vec![text(&shared.channel), text(HELLO)];
    workers.query("SELECT pg_catalog.pg_notify($1, $2)".to_owned(), parameters).await?;
    drop(workers);
    let limit = shared.config.call_limit;
    tokio::select! {
        () = greeted.notified() => Ok(()),
        why = wire.hear() => Err(why),
        () = clock::sleep(limit) => Err(PgError::Deaf(limit)),
    }
}

fn ear(shared: &Arc<Shared>, greeted: &Arc<Notify>) -> Ear {
    let (waiters, greeted) = (Arc::clone(&shared.waiters), Arc::clone(greeted));
    Box::new(move |message| {
        if let AsyncMessage::Notification(said) = message {
            match said.payload() {
                HELLO => greeted.notify_one(),
                payload => waiters.hear(payload.as_bytes()),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_wait_the_less_often_each_of_them_polls() {
        let config = super::super::config::parse("postgres://h?listen=no&user=u").unwrap();
        let waiters = Arc::new(Waiters::default());
        let workers = Arc::new(Workers::new(config.clone()));
        let ears = Ears::new(&config, Arc::clone(&waiters), &workers);
        let mut places = Vec::new();
        for (waiting, at_most_ms) in
            [(1, 100), (100, 100), (500, 500), (1_000, 1_000), (3_000, 1_000)]
        {
            places.extend((places.len()..waiting).map(|n| waiters.enter(n.to_be_bytes().to_vec())));
            let poll = ears.ask_again_in(Duration::from_secs(10));
            let at_most = Duration::from_millis(at_most_ms);
            assert!((at_most / 2..=at_most).contains(&poll), "{poll:?} with {waiting}");
        }
        assert_eq!(ears.ask_again_in(Duration::ZERO), Duration::ZERO);
    }
}
