//! Who enters next.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use cerrojo::{ErrorKind, clock};
use tokio::task::JoinSet;

use super::NAME;
use crate::site::{Locks, Outcome, Site, kind_of, soon};

/// Where only one may be, and who was there in which order.
#[derive(Default)]
struct Room {
    inside: AtomicUsize,
    entries: Mutex<Vec<usize>>,
}

impl Room {
    /// Waits for the lock, stays a moment, and goes.
    async fn visit(self: Arc<Self>, locks: Locks, who: usize) -> Outcome {
        let guard = soon("a turn", locks.acquire(NAME).into_future()).await??;
        assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
        self.entries.lock().unwrap().push(who);
        clock::sleep(Duration::from_millis(5)).await;
        self.inside.fetch_sub(1, Ordering::SeqCst);
        Ok(guard.release().await?)
    }
}

/// Tries again and again until all ten have entered; how often it tried.
async fn press(locks: Locks, room: Arc<Room>) -> Outcome<usize> {
    let mut tries = 0;
    loop {
        let answer = locks.try_acquire(NAME).await;
        // While somebody else is in, nobody of them can enter.
        if room.entries.lock().unwrap().len() >= 10 {
            return Ok(tries);
        }
        tries += 1;
        assert_eq!(kind_of(&answer), Some(ErrorKind::Contended), "{answer:?}");
    }
}

pub(crate) async fn ten_enter_in_order_and_no_newcomer_overtakes(site: Site) -> Outcome {
    let room = Arc::new(Room::default());
    let guard = site.locks().await?.acquire(NAME).await?;
    let mut visits = JoinSet::new();
    for who in 0..10 {
        visits.spawn(Arc::clone(&room).visit(site.locks().await?, who));
        site.until_waiting(i64::try_from(who)? + 1).await?;
    }
    let mut newcomers = JoinSet::new();
    for _ in 0..2 {
        newcomers.spawn(press(site.locks().await?, Arc::clone(&room)));
    }
    let late = site.lockers(2).await?;
    clock::sleep(Duration::from_millis(200)).await;
    guard.release().await?;
    // They come while the line moves.
    for (who, locks) in (10..).zip(late) {
        visits.spawn(Arc::clone(&room).visit(locks, who));
    }
    while let Some(visit) = soon("a visit", visits.join_next()).await? {
        visit??;
    }
    while let Some(newcomer) = soon("a newcomer", newcomers.join_next()).await? {
        let tries = newcomer??;
        assert!(tries > 10, "only {tries} tries");
    }
    let entries = room.entries.lock().unwrap().clone();
    assert_eq!(entries[..10], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], "{entries:?}");
    assert_eq!(entries.len(), 12, "{entries:?}");
    Ok(())
}
