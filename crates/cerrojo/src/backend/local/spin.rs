//! A short look before blocking: an answer usually comes within microseconds, and being woken costs more.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use crate::clock::Instant;

/// The longest look.
const LOOK: Duration = Duration::from_micros(100);
/// How many looks are left out after one that was in vain: on a busy machine looking is a waste.
const PAUSE: u32 = 7;

/// Looks for an answer, and learns whether that is worth it.
#[derive(Debug, Default)]
pub(super) struct Spin {
    left_out: AtomicU32,
}

impl Spin {
    /// What `look` finds within [`LOOK`], if it is worth looking.
    pub(super) fn find<T>(&self, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        // A race on the counter costs a look more or less.
        let left_out = self.left_out.load(Ordering::Relaxed);
        if left_out > 0 {
            self.left_out.store(left_out - 1, Ordering::Relaxed);
            return None;
        }
        let until = Instant::now() + LOOK;
        while Instant::now() < until {
            if let Some(found) = look() {
                return Some(found);
            }
            std::hint::spin_loop();
        }
        self.left_out.store(PAUSE, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_in_vain_is_followed_by_a_pause() {
        let spin = Spin::default();
        assert_eq!(spin.find(|| Some(7)), Some(7));
        assert_eq!(spin.find(|| None::<u32>), None);
        for _ in 0..PAUSE {
            assert_eq!(spin.find(|| Some(7)), None, "left out");
        }
        assert_eq!(spin.find(|| Some(7)), Some(7));
    }
}
