//! The line in which tasks of one process wait for one name, so that the store sees one waiter of each process.
//!
//! This is also where a lease could be passed from one task to the next without asking the store:
//! docs/decisions/0003-local-hand-over.md says how.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::LockName;

/// The lines of one locker. A line exists while somebody stands in it.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    lines: Mutex<HashMap<LockName, Arc<Semaphore>>>,
}

/// The head of one line; the next in line comes when it is dropped.
///
/// The permit stands first, and so is dropped first: it refers to the line that the place counts.
#[derive(Debug)]
pub(crate) struct Turn {
    _permit: Option<OwnedSemaphorePermit>,
    _place: Place,
}

/// Standing in a line; whoever leaves last takes the line away.
#[derive(Debug)]
struct Place {
    queue: Arc<Queue>,
    name: LockName,
    line: Arc<Semaphore>,
}

impl Queue {
    /// Waits in first-come order until it is our turn.
    ///
    /// # Cancel safety
    ///
    /// Dropping leaves the line.
    pub(crate) async fn turn(self: &Arc<Self>, name: &LockName) -> Turn {
        let place = self.enter(name);
        // Lines are never closed, so an error cannot be; were it one, the store still excludes.
        let permit = Arc::clone(&place.line).acquire_owned().await.ok();
        Turn { _permit: permit, _place: place }
    }

    fn enter(self: &Arc<Self>, name: &LockName) -> Place {
        let line = Arc::clone(
            self.lines().entry(name.clone()).or_insert_with(|| Arc::new(Semaphore::new(1))),
        );
        Place { queue: Arc::clone(self), name: name.clone(), line }
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<LockName, Arc<Semaphore>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut lines = self.queue.lines();
        // Ours and the map's: nobody else stands here, and nobody can enter while the map is locked.
        if Arc::strong_count(&self.line) == 2 {
            lines.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_at_a_time_in_order_and_nothing_stays() {
        let queue = Arc::new(Queue::default());
        let name: LockName = "x".parse().unwrap();
        let first = queue.turn(&name).await;
        let mut second = Box::pin(queue.turn(&name));
        let mut third = Box::pin(queue.turn(&name));
        assert!(futures_poll(second.as_mut()).is_none());
        assert!(futures_poll(third.as_mut()).is_none());
        drop(first);
        assert!(futures_poll(third.as_mut()).is_none());
        let second = second.await;
        drop(third);
        drop(second);
        assert!(queue.lines().is_empty());
    }

    fn futures_poll<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match future.poll(&mut context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        }
    }
}
