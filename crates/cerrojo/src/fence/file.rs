//! A file that only the newest holder changes.
//!
//! Beside `FILE` stand `FILE.fence`, the [state](super::state) of its fence, and `FILE.fence.lock`, by whose lock accesses take turns; it is
//! never removed. A crash may leave `FILE.cerrojo-draft` or `FILE.fence.cerrojo-draft`, which the next writer removes. All
//! of them belong with the file: who moves or restores it takes `FILE.fence` along. A file without one has admitted
//! no token yet.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use cerrojo::fence::file::FencedFile;
//! # let folder = tempfile::tempdir()?;
//! # let locks = cerrojo::Locker::new(cerrojo::backend::memory::Memory::new());
//! let file = FencedFile::at(folder.path().join("count"));
//! let guard = locks.acquire("count").await?;
//! let add_one = |old: Option<&[u8]>| match old {
//!     Some(old) => [old, b"I"].concat(),
//!     None => b"I".to_vec(),
//! };
//! file.update(guard.token(), guard.store_id(), add_one).await?;
//! # assert_eq!(file.read(guard.token(), guard.store_id()).await?.as_deref(), Some(b"I".as_slice()));
//! # Ok(())
//! # }
//! ```
//!
//! What is not kept when a file is replaced: extended attributes and access control lists, and its other hard links, which go on to
//! name the old file. A symbolic link is refused: name the file that it leads to.

use std::{path::PathBuf, time::Duration};

use super::{
    FileError, PresentedToken, replace,
    state::{Claim, State, StateFile},
};
use crate::StoreId;

/// A file that is replaced whole, under a fence.
///
/// Check and change are one step: nobody passes the fence in between, however long the change takes. Who is frozen there holds
/// the others off until their own time limits ([`FileError::Busy`]) and corrupts nothing; when its process ends, the
/// others go on. A crash or a power loss at any point leaves the old contents or the new, and a fence that is never lower than
/// before, since what the fence admits is durable before the file changes.
///
/// Needs a Tokio runtime, on whose blocking threads it works.
#[derive(Clone, Debug)]
pub struct FencedFile {
    path: PathBuf,
    fence: StateFile,
}

impl FencedFile {
    /// The file at `path`, which need not exist yet. Does no I/O.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self { fence: StateFile::of(&path), path }
    }

    /// How long each access waits for others at this file; [`DEFAULT_WAIT`](super::state::DEFAULT_WAIT) unless said.
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        Self { fence: self.fence.wait(wait), ..self }
    }

    /// Replaces the contents by what `change` makes of them, if the token is admitted.
    ///
    /// `change` gets `None` when there is no file yet. It runs while all others wait. Where it could fail, [`read`](FencedFile::read) first: nobody
    /// older comes in between.
    ///
    /// # Errors
    ///
    /// [`FileError::Stale`] and [`FileError::OtherStore`]: stop, this holder was overtaken. [`FileError::Busy`]: nothing was done, try again.
    /// [`FileError::Io`]: the file has its old contents, or, when only the last sync failed, the new.
    ///
    /// # Panics
    ///
    /// When `change` does; nothing is changed then.
    ///
    /// # Cancel safety
    ///
    /// Dropped while it waits for others, it has done nothing. Once begun it goes on to its end, and the file may
    /// change after it was dropped.
    pub async fn update<B: Into<Vec<u8>>>(
        &self,
        token: impl Into<PresentedToken>,
        store: StoreId,
        change: impl FnOnce(Option<&[u8]>) -> B + Send + 'static,
    ) -> Result<(), FileError> {
        let path = self.path.clone();
        self.access(Claim::new(token, store), move |old| {
            replace::replace(&path, &change(old.as_deref()).into())
        })
        .await
    }

    /// The contents, if the token is admitted; `None` when there is no file yet.
    ///
    /// The read raises the fence as a write would: from here on no older holder writes, so what is made of the contents may be
    /// written by [`update`](FencedFile::update) under the same token without losing anything.
    ///
    /// # Errors
    ///
    /// As [`FencedFile::update`].
    ///
    /// # Cancel safety
    ///
    /// As [`FencedFile::update`]; it is the fence that may be raised after it was dropped.
    pub async fn read(
        &self,
        token: impl Into<PresentedToken>,
        store: StoreId,
    ) -> Result<Option<Vec<u8>>, FileError> {
        self.access(Claim::new(token, store), Ok).await
    }

    /// From now on the fence counts tokens of `store`: see [`StateFile::adopt`].
    ///
    /// # Errors
    ///
    /// As [`StateFile::adopt`].
    ///
    /// # Cancel safety
    ///
    /// As [`StateFile::adopt`].
    pub async fn adopt(&self, store: StoreId) -> Result<State, FileError> {
        self.fence.adopt(store).await
    }

    /// What the fence remembers at this moment; waits for nobody and changes nothing.
    ///
    /// # Errors
    ///
    /// As [`StateFile::state`].
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time.
    pub async fn state(&self) -> Result<State, FileError> {
        self.fence.state().await
    }

    /// A path that cannot be fenced is refused before its fence is raised.
    async fn access<T: Send + 'static>(
        &self,
        claim: Claim,
        work: impl FnOnce(Option<Vec<u8>>) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, FileError> {
        let path = self.path.clone();
        self.fence
            .in_turn(move |fence| {
                let old = replace::contents(&path)?;
                fence.pass(claim, State::default())?;
                work(old)
            })
            .await
    }
}
