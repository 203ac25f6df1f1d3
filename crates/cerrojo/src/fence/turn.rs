//! Who may look at a fence and change what it guards: one at a time, among all processes.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{FileError, replace};
use crate::{
    clock::{self, Deadline},
    rng,
};

/// The first pause of a waiter, which doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// How late a waiter can be to see that the lock is free.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// An exclusive lock on a side file. The kernel gives it back when the process ends, however that comes about.
#[derive(Debug)]
pub(super) struct Turn(File);

impl Turn {
    /// Waits for the lock on the file at `path`, for no longer than `wait`. Cancel safe.
    ///
    /// A blocking lock could neither be cancelled nor end at a deadline, so the lock is tried again and again: that
    /// waits for nobody, and needs no thread of its own.
    pub(super) async fn take(path: PathBuf, wait: Duration) -> Result<Self, FileError> {
        let (deadline, mut pause) = (Deadline::after(wait), FIRST_PAUSE);
        let lock = path.clone();
        let file = blocking(move || open(&lock)).await?;
        loop {
            let is_last = deadline.has_passed();
            match file.try_lock() {
                Ok(()) => return Ok(Self(file)),
                Err(TryLockError::Error(error)) => return Err(FileError::io("lock", path)(error)),
                Err(TryLockError::WouldBlock) if is_last => {
                    return Err(FileError::Busy { path, waited: wait });
                }
                Err(TryLockError::WouldBlock) => pause_until(deadline, pause).await,
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// Not left to the closing of the file: a child that is being started may have a copy of it for a moment.
impl Drop for Turn {
    fn drop(&mut self) {
        if let Err(error) = self.0.unlock() {
            tracing::warn!(%error, "the lock of a fence is given back by closing it only");
        }
    }
}

/// To lock is enough to read, so that who may only read the fenced file can wait for its turn too.
fn open(path: &Path) -> Result<File, FileError> {
    replace::regular(path)?;
    match File::open(path) {
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => make(path),
        opened => opened.map_err(FileError::io("open", path)),
    }
}

fn make(path: &Path) -> Result<File, FileError> {
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.map_err(FileError::io("make", path))
}

async fn pause_until(deadline: Deadline, pause: Duration) {
    let pause = rng::jitter(pause).min(deadline.instant().remaining());
    clock::sleep(pause).await;
}

/// Runs what blocks on a thread of its own. Once begun it goes on to its end, also when nobody waits for it any more.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FileError> + Send + 'static,
) -> Result<T, FileError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(ended) => match ended.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(ended) => Err(FileError::io("work on", "a file")(io::Error::other(ended))),
        },
    }
}
