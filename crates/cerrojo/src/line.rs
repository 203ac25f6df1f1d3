//! Those of this process who stand in a store's line, and how they are told: for stores that keep the line themselves and can
//! push a word to whoever stands in it.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::watch;

use crate::{
    clock::{self, Instant},
    rng,
};

/// How many early words are remembered.
const EARLY_MAX: usize = 1_024;

/// When each waiter of this process asks the server again, or what it was given: it is told by pushes.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    /// By the owner as the store writes it.
    waiting: HashMap<Vec<u8>, Arc<watch::Sender<News>>>,
    /// What was said to those who had not taken their place here yet: the answer that sends them here came just before.
    early: VecDeque<(Vec<u8>, News)>,
}

/// What a waiter knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct News {
    /// When it asks again.
    due: Instant,
    yours: Option<Yours>,
}

/// A lock that another's release has handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Yours {
    /// For so long, to begin with.
    pub(crate) ttl: Duration,
    /// When the request left to which this is the answer.
    pub(crate) asked: Instant,
    /// The number by which the store ordered the grant, where it is told.
    pub(crate) number: Option<u64>,
}

/// One waiter's place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    waiters: Arc<Waiters>,
    owner: Vec<u8>,
    tell: Arc<watch::Sender<News>>,
    news: watch::Receiver<News>,
}

impl Waiters {
    /// What the store says to one of them: `yours MS ASKED OWNER`, it is handed over for so long; `granted MS ASKED NUMBER OWNER`, the same
    /// with the grant's number; `free 0 ASKED OWNER`, ask now; `wake MS ASKED OWNER`, ask in so many ms. What is not understood is nobody's.
    pub(crate) fn hear(&self, message: &[u8]) {
        if let Some((news, owner)) = read(message) {
            self.tell(owner, news);
        }
    }

    /// A place for one whom the server has sent into the line. What it was told since then is not lost.
    pub(crate) fn enter(self: &Arc<Self>, owner: Vec<u8>) -> Place {
        let mut told = self.told();
        let at = told.early.iter().position(|(early, _)| *early == owner);
        let early = at.and_then(|at| told.early.remove(at));
        let (tell, news) = watch::channel(early.map_or(NOTHING, |(_, news)| news));
        let tell = Arc::new(tell);
        told.waiting.insert(owner.clone(), Arc::clone(&tell));
        Place { waiters: Arc::clone(self), owner, tell, news }
    }

    fn tell(&self, owner: &[u8], news: News) {
        let mut told = self.told();
        if let Some(waiter) = told.waiting.get(owner) {
            waiter.send_if_modified(|known| known.add(news));
        } else {
            told.early.truncate(EARLY_MAX - 1);
            told.early.push_front((owner.to_vec(), news));
        }
    }

    /// After a cut nobody knows what was missed. Many are spread a little.
    pub(crate) fn wake_all(&self) {
        let told = self.told();
        let count = u32::try_from(told.waiting.len()).unwrap_or(u32::MAX);
        let spread = Duration::from_micros(50) * count;
        for waiter in told.waiting.values() {
            waiter.send_if_modified(|known| known.add(News::due_in(rng::jitter(spread))));
        }
    }

    /// How many there are.
    #[cfg(feature = "postgres")]
    pub(crate) fn count(&self) -> usize {
        self.told().waiting.len()
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// To ask later than anything.
const NOTHING: News = News { due: Instant::from_nanos(u64::MAX), yours: None };

impl News {
    fn due_in(after: Duration) -> Self {
        Self { due: Instant::now() + after, yours: None }
    }

    /// Whether that is anything new.
    fn add(&mut self, other: Self) -> bool {
        let before = *self;
        self.due = self.due.min(other.due);
        self.yours = other.yours.or(self.yours);
        *self != before
    }
}

impl Place {
    /// Forgets when to ask: what comes from now on is news.
    pub(crate) fn listen(&self) {
        self.tell.send_modify(|news| *news = NOTHING);
    }

    /// Asks again by itself after so long, unless it is told to ask earlier.
    pub(crate) fn ask_again_in(&self, after: Duration) {
        self.tell.send_if_modified(|known| known.add(News::due_in(after)));
    }

    /// Ready when it is time to ask, or when there is no more need to. May be dropped at any time.
    pub(crate) async fn due(&mut self) -> Option<Yours> {
        loop {
            let News { due, yours } = *self.news.borrow_and_update();
            if yours.is_some() {
                return yours;
            }
            tokio::select! {
                () = clock::sleep_until(due) => return None,
                // The sender is in here, so it is there.
                changed = self.news.changed() => drop(changed),
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.waiters.told().waiting.remove(&self.owner);
    }
}

fn read(message: &[u8]) -> Option<(News, &[u8])> {
    let mut words = message.splitn(4, |byte| *byte == b' ');
    let what = words.next()?;
    let (ms, asked) = (Duration::from_millis(number(words.next()?)?), number(words.next()?)?);
    let yours = |number| Yours { ttl: ms, asked: Instant::from_nanos(asked), number };
    let rest = words.next()?;
    Some(match what {
        b"wake" => (News::due_in(ms), rest),
        b"free" => (News::due_in(Duration::ZERO), rest),
        b"yours" => (News { yours: Some(yours(None)), ..NOTHING }, rest),
        b"granted" => {
            let mut words = rest.splitn(2, |byte| *byte == b' ');
            let number = Some(number(words.next()?)?);
            (News { yours: Some(yours(number)), ..NOTHING }, words.next()?)
        }
        _ => return None,
    })
}

fn number(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn waited(place: &mut Place) -> u128 {
        let start = Instant::now();
        assert_eq!(place.due().await, None);
        Instant::now().since(start).as_millis()
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_asks_when_it_is_told_to_or_by_itself() {
        let waiters = Arc::new(Waiters::default());
        let mut place = waiters.enter(b"o w n e r".to_vec());
        place.ask_again_in(Duration::from_secs(10));
        assert!((10_000..10_010).contains(&waited(&mut place).await));
        place.listen();
        waiters.hear(b"wake 2000 7 o w n e r");
        place.ask_again_in(Duration::from_secs(10));
        assert!((2_000..2_010).contains(&waited(&mut place).await));
        place.listen();
        waiters.hear(b"free 0 7 o w n e r");
        place.ask_again_in(Duration::from_secs(10));
        assert_eq!(waited(&mut place).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_handed_over_counts_from_the_request_that_it_answers() {
        let waiters = Arc::new(Waiters::default());
        let mut place = waiters.enter(b"o w".to_vec());
        place.ask_again_in(Duration::from_secs(10));
        waiters.hear(b"yours 1500 7000 o w");
        let yours = place.due().await.unwrap();
        assert_eq!(yours.ttl, Duration::from_millis(1_500));
        assert_eq!((yours.asked, yours.number), (Instant::from_nanos(7_000), None));
        place.listen();
        waiters.hear(b"granted 1500 7000 42 o w");
        assert_eq!(place.due().await.unwrap().number, Some(42));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_for_it_or_not_understood_wakes_nobody() {
        let waiters = Arc::new(Waiters::default());
        let mut place = waiters.enter(b"me".to_vec());
        place.ask_again_in(Duration::from_secs(5));
        for text in ["yours 2000 1 you", "yours 1 me", "yours x 1 me", "sing 0 1 me", "free 0", ""]
        {
            waiters.hear(text.as_bytes());
        }
        assert!(waited(&mut place).await >= 5_000);
    }

    #[tokio::test(start_paused = true)]
    async fn what_came_before_the_place_was_taken_is_not_lost() {
        let waiters = Arc::new(Waiters::default());
        for _ in 0..3 * EARLY_MAX {
            waiters.hear(b"yours 2000 1 nobody");
        }
        waiters.hear(b"yours 2000 1 me");
        assert!(waiters.told().early.len() <= EARLY_MAX);
        let mut place = waiters.enter(b"me".to_vec());
        place.ask_again_in(Duration::from_secs(5));
        assert!(place.due().await.is_some());
        drop(place);
        let mut again = waiters.enter(b"me".to_vec());
        again.ask_again_in(Duration::from_secs(5));
        assert!(waited(&mut again).await >= 5_000);
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_cut_everybody_asks() {
        let waiters = Arc::new(Waiters::default());
        let mut places: Vec<_> = (0..100_u8).map(|n| waiters.enter(vec![n])).collect();
        waiters.wake_all();
        for place in &mut places {
            assert!(waited(place).await < 10);
        }
        drop(places);
        assert!(waiters.told().waiting.is_empty());
    }
}
