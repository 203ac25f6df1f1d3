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

use crate::{
    child::Child,
    site::{Locks, NAME, Outcome, Site, Waiter, kind_of, soon, ttl},
};

pub(crate) async fn processes_enter_in_order_with_rising_tokens(site: Site) -> Outcome {
    let guard = site.locks().await?.acquire(NAME).await?;
    let (mut children, mut token) = (Vec::new(), guard.token().get());
    for before in 1..=6 {
        let mut child = Child::open(&site.url(""))?;
        child.wait_for_lock(30_000)?;
        site.until_waiting(before).await?;
        children.push(child);
    }
    let mut left = cerrojo::Instant::now();
    guard.release().await?;
    for child in &mut children {
        let entered = child.granted()?;
        assert!(entered.at >= left, "two at once");
        assert!(entered.token > token, "{entered:?} after {token}");
        (left, token) = (cerrojo::Instant::now(), entered.token);
        child.release()?;
    }
    site.until_waiting(0).await
}

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

pub(crate) async fn ten_stores_enter_in_order_and_no_newcomer_overtakes(site: Site) -> Outcome {
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

/// The lock is free though somebody waits: its row was changed by hand, and nobody was told.
pub(crate) async fn a_newcomer_leaves_a_free_lock_to_the_line(site: Site) -> Outcome {
    site.hold_silently(60_000).await?;
    let (first, newcomer) = (site.locks().await?, site.locks().await?);
    let waiter = Waiter::start(&first, ttl(30_000));
    site.until_waiting(1).await?;
    site.until_at_rest().await?;
    site.look("UPDATE LOCK SET owner = NULL WHERE name = 'a'").await?;
    let answer = newcomer.try_acquire(NAME).await;
    assert_eq!(kind_of(&answer), Some(ErrorKind::Contended), "{answer:?}");
    // Its try was what told the waiter.
    Ok(waiter.entered().await?.0.release().await?)
}
