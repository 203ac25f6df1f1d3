//! What can go wrong at a fence that is kept in files.

use std::{io, path::PathBuf, time::Duration};

use super::Stale;
use crate::StoreId;

/// Why an access to a fenced file or log was not made.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The holder has been overtaken. Nothing was changed; do nothing more for it.
    #[error(transparent)]
    Stale(#[from] Stale),
    /// The token was granted by another store than those before: which of them is newer, nobody can say. Nothing was changed.
    ///
    /// When the store was replaced on purpose, tell the fence by `adopt`.
    #[error(
        "the fence of {} counts tokens of {}, and the token presented is of {}: if the store was replaced, the fence has to \
         adopt the new one first", path.display(), name(*expected), name(*presented)
    )]
    OtherStore {
        /// The file with the fence's state.
        path: PathBuf,
        /// The store that the fence knows.
        expected: Option<StoreId>,
        /// The store that was named with the token.
        presented: Option<StoreId>,
    },
    /// Somebody else had the side lock until our deadline: one who is at work just now, or is frozen there. Nothing was changed.
    #[error("somebody else has had {} locked for {waited:?}: at work there, or frozen", path.display())]
    Busy {
        /// The side file whose lock is held.
        path: PathBuf,
        /// How long we waited.
        waited: Duration,
    },
    /// The path leads to something that is not a regular file. Nothing was changed.
    #[error("{} is {what}, and only a regular file can be fenced", path.display())]
    NotAFile {
        /// Where it is.
        path: PathBuf,
        /// What is there.
        what: &'static str,
    },
    /// The file that should hold a fence's state holds something else. Nothing was changed.
    #[error("{} holds something else than the state of a fence: name another file", path.display())]
    NotAState {
        /// Where it is.
        path: PathBuf,
    },
    /// A file of the fence contradicts itself. Nothing was changed, and nothing is admitted until a person has looked.
    #[error("{} is damaged: {why}", path.display())]
    Damaged {
        /// The damaged file.
        path: PathBuf,
        /// What is wrong, and what to do.
        why: &'static str,
    },
    /// The operating system refused. A file that was to be replaced is the old or the new, whole; the fence was never lowered.
    #[error("cannot {what} {}", path.display())]
    Io {
        /// What was being done.
        what: &'static str,
        /// To which file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

impl FileError {
    /// For `map_err`.
    pub(super) fn io(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, path: path.into(), source }
    }
}

fn name(store: Option<StoreId>) -> String {
    store.map_or_else(|| "a store without a name".to_owned(), |store| format!("store {store}"))
}
