//! Those of this process who stand in the store's line, and how they are told.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use redis::{PushInfo, PushKind, Value};
use tokio::sync::watch;

use super::dial::Ear;
use crate::{
    clock::{self, Instant},
    rng,
};

/// When each waiter of this process asks the server again: earlier when it is told to.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    /// By the owner as the store writes it.
    due: Mutex<HashMap<Vec<u8>, watch::Sender<Instant>>>,
}

/// One waiter's place, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    waiters: Arc<Waiters>,
    owner: Vec<u8>,
    due: watch::Receiver<Instant>,
}

impl Waiters {
    /// What hears the server for them.
    pub(super) fn ear(self: &Arc<Self>) -> Ear {
        let waiters = Arc::downgrade(self);
        Arc::new(move |info| hear(&waiters, &info))
    }

    pub(super) fn enter(self: &Arc<Self>, owner: Vec<u8>) -> Place {
        let (sender, due) = watch::channel(NEVER);
        self.due().insert(owner.clone(), sender);
        Place { waiters: Arc::clone(self), owner, due }
    }

    fn wake(&self, owner: &[u8], after: Duration) {
        if let Some(due) = self.due().get(owner) {
            bring_forward(due, after);
        }
    }

    /// After a cut nobody knows what was missed. Many are spread a little.
    fn wake_all(&self) {
        let due = self.due();
        let spread = Duration::from_micros(50) * u32::try_from(due.len()).unwrap_or(u32::MAX);
        due.values().for_each(|due| bring_forward(due, rng::jitter(spread)));
    }

    fn due(&self) -> MutexGuard<'_, HashMap<Vec<u8>, watch::Sender<Instant>>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Later than anything.
const NEVER: Instant = Instant::from_nanos(u64::MAX);

fn bring_forward(due: &watch::Sender<Instant>, after: Duration) {
    let at = Instant::now() + after;
    due.send_if_modified(|due| {
        let is_earlier = at < *due;
        *due = at.min(*due);
        is_earlier
    });
}

impl Place {
    /// Forgets what it was told: what comes from now on is news.
    pub(super) fn listen(&self) {
        self.set(|due| *due = NEVER);
    }

    /// Asks again by itself after so long, unless it is told to ask earlier.
    pub(super) fn ask_again_in(&self, after: Duration) {
        let at = Instant::now() + after;
        self.set(|due| *due = at.min(*due));
    }

    /// Ready when it is time to ask. May be dropped at any time.
    pub(super) async fn due(&mut self) {
        loop {
            let due = *self.due.borrow_and_update();
            tokio::select! {
                () = clock::sleep_until(due) => return,
                changed = self.due.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
            }
        }
    }

    fn set(&self, change: impl FnOnce(&mut Instant)) {
        if let Some(due) = self.waiters.due().get(&self.owner) {
            due.send_modify(change);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.waiters.due().remove(&self.owner);
    }
}

fn hear(waiters: &Weak<Waiters>, info: &PushInfo) {
    let Some(waiters) = waiters.upgrade() else {
        return;
    };
    match (&info.kind, info.data.as_slice()) {
        (PushKind::Disconnection, _) => waiters.wake_all(),
        (PushKind::Message, [_channel, Value::BulkString(message)]) => {
            if let Some((after, owner)) = read(message) {
                waiters.wake(owner, after);
            }
        }
        _ => {}
    }
}

/// `yours MS OWNER`, `free 0 OWNER`: ask now. `wake MS OWNER`: ask in so many ms.
fn read(message: &[u8]) -> Option<(Duration, &[u8])> {
    let mut words = message.splitn(3, |byte| *byte == b' ');
    let (what, ms, owner) = (words.next()?, words.next()?, words.next()?);
    let ms: u64 = std::str::from_utf8(ms).ok()?.parse().ok()?;
    match what {
        b"wake" => Some((Duration::from_millis(ms), owner)),
        b"yours" | b"free" => Some((Duration::ZERO, owner)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(waiters: &Arc<Waiters>, text: &[u8]) {
        let data = vec![Value::BulkString(b"c".to_vec()), Value::BulkString(text.to_vec())];
        waiters.ear()(PushInfo { kind: PushKind::Message, data });
    }

    async fn waited(place: &mut Place) -> u128 {
        let start = Instant::now();
        place.due().await;
        Instant::now().since(start).as_millis()
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_asks_when_it_is_told_to_or_by_itself() {
        let waiters = Arc::new(Waiters::default());
        let mut place = waiters.enter(b"o w n e r".to_vec());
        place.ask_again_in(Duration::from_secs(10));
        assert!((10_000..10_010).contains(&waited(&mut place).await));
        place.listen();
        push(&waiters, b"wake 2000 o w n e r");
        place.ask_again_in(Duration::from_secs(10));
        assert!((2_000..2_010).contains(&waited(&mut place).await));
        place.listen();
        push(&waiters, b"yours 2000 o w n e r");
        place.ask_again_in(Duration::from_secs(10));
        assert_eq!(waited(&mut place).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_for_it_or_not_understood_wakes_nobody() {
        let waiters = Arc::new(Waiters::default());
        let mut place = waiters.enter(b"me".to_vec());
        place.ask_again_in(Duration::from_secs(5));
        for text in ["yours 2000 you", "yours me", "yours x me", "sing 0 me", ""] {
            push(&waiters, text.as_bytes());
        }
        assert!(waited(&mut place).await >= 5_000);
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_cut_everybody_asks() {
        let waiters = Arc::new(Waiters::default());
        let mut places: Vec<_> = (0..100_u8).map(|n| waiters.enter(vec![n])).collect();
        waiters.ear()(PushInfo { kind: PushKind::Disconnection, data: vec![] });
        for place in &mut places {
            assert!(waited(place).await < 10);
        }
        drop(places);
        assert!(waiters.due().is_empty());
    }
}
