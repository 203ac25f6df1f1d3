//! What several tests use together.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};

/// A thing that tests share: started by the first that asks for it, and dropped with the last that has it or may yet
/// ask.
#[derive(Debug)]
pub struct Shared<T>(Mutex<Option<Arc<T>>>);

impl<T> Shared<T> {
    /// The thing itself; where there is none yet it is what `start` answers. All others who ask wait meanwhile.
    ///
    /// # Errors
    ///
    /// Those of `start`: then the next who asks starts it.
    pub fn get_or_start(&self, start: impl FnOnce() -> io::Result<T>) -> io::Result<Arc<T>> {
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thing) = &*shared {
            return Ok(Arc::clone(thing));
        }
        Ok(Arc::clone(shared.insert(Arc::new(start()?))))
    }
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_who_asks_starts_what_all_have() {
        let shared = Shared::default();
        let failed = shared.get_or_start(|| Err::<u8, _>(io::Error::other("not now")));
        assert_eq!(failed.unwrap_err().to_string(), "not now");
        let all = [1, 2].map(|number| shared.get_or_start(|| Ok(number)).unwrap());
        assert_eq!(all.map(|thing| *thing), [1, 1]);
    }

    #[test]
    fn it_is_dropped_with_the_last_who_has_it() {
        let shared = Shared::default();
        let thing = shared.get_or_start(|| Ok(())).unwrap();
        drop(shared);
        assert_eq!(Arc::strong_count(&thing), 1);
    }
}
