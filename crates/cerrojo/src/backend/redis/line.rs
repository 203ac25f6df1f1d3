//! Those of this process who stand in the store's line, and how they are told.

use std::{
    collections::{HashMap, VecDeque},
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

/// How many early words are remembered.
const EARLY_MAX: usize = 1_024;

/// When each waiter of this process asks the server again: earlier when it is told to.
#[derive(Debug, Default)]
pub(in crate::backend) struct Waiters(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    /// By the owner as the store writes it.
    due: HashMap<Vec<u8>, Arc<watch::Sender<Instant>>>,
    /// Told to ask now, before they had taken their place here: the answer that sends them here came just before.
    early: VecDeque<Vec<u8>>,
}

/// One waiter's place, until it is dropped.
#[derive(Debug)]
pub(in crate::backend) struct Place {
    waiters: Arc<Waiters>,
    owner: Vec<u8>,
    set: Arc<watch::Sender<Instant>>,
    due: watch::Receiver<Instant>,
}

impl Waiters {
    /// What hears the server for them.
    pub(in crate::backend) fn ear(self: &Arc<Self>) -> Ear {
        let waiters = Arc::downgrade(self);
        Arc::new(move |info| hear(&waiters, &info))
    }

    /// A place for one whom the server has sent into the line. What it was told since then is not lost.
    pub(in crate::backend) fn enter(self: &Arc<Self>, owner: Vec<u8>) -> Place {
        let (set, due) = watch::channel(NEVER);
        let set = Arc::new(set);
        let mut told = self.told();
        if let Some(at) = told.early.iter().position(|early| *early == owner) {
            told.early.remove(at);
            bring_forward(&set, Duration::ZERO);
        }
        told.due.insert(owner.clone(), Arc::clone(&set));
        Place { waiters: Arc::clone(self), owner, set, due }
    }

    fn wake(&self, owner: &[u8], after: Duration) {
        let mut told = self.told();
        if let Some(due) = told.due.get(owner) {
            bring_forward(due, after);
        } else if after.is_zero() {
            told.early.truncate(EARLY_MAX - 1);
            told.early.push_front(owner.to_vec());
        }
    }

    /// After a cut nobody knows what was missed. Many are spread a little.
    fn wake_all(&self) {
        let told = self.told();
        let spread = Duration::from_micros(50) * u32::try_from(told.due.len()).unwrap_or(u32::MAX);
        told.due.values().for_each(|due| bring_forward(due, rng::jitter(spread)));
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
    pub(in crate::backend) fn listen(&self) {
        self.set.send_modify(|due| *due = NEVER);
    }

    /// Asks again by itself after so long, unless it is told to ask earlier.
    pub(in crate::backend) fn ask_again_in(&self, after: Duration) {
        bring_forward(&self.set, after);
    }

    /// Ready when it is time to ask. May be dropped at any time.
    pub(in crate::backend) async fn due(&mut self) {
        loop {
            let due = *self.due.borrow_and_update();
            tokio::select! {
                () = clock::sleep_until(due) => return,
                // The sender is in here, so it is there.
                changed = self.due.changed() => drop(changed),
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.waiters.told().due.remove(&self.owner);
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
    async fn what_came_before_the_place_was_taken_is_not_lost() {
        let waiters = Arc::new(Waiters::default());
        for _ in 0..3 * EARLY_MAX {
            push(&waiters, b"yours 2000 nobody");
        }
        push(&waiters, b"yours 2000 me");
        assert!(waiters.told().early.len() <= EARLY_MAX);
        let mut place = waiters.enter(b"me".to_vec());
        place.ask_again_in(Duration::from_secs(5));
        assert_eq!(waited(&mut place).await, 0);
        drop(place);
        let mut again = waiters.enter(b"me".to_vec());
        again.ask_again_in(Duration::from_secs(5));
        assert!(waited(&mut again).await >= 5_000);
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
        assert!(waiters.told().due.is_empty());
    }
}
