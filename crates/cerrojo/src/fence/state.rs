//! A fence whose state is a file: what guards a resource that is no file, or several of them.
//!
//! The file is one line of text: the store, the greatest token, and a checksum.
//!
//! ```text
//! cerrojo-fence 1 store 0a1b2c3d4e5f60718293a4b5c6d7e8f9 highest 34 crc32 0d4a1f6e
//! ```
//!
//! It is replaced whole, by a file that is synced before and a folder that is synced after. Beside it stands `STATE.lock`, which is
//! empty: whoever looks at the fence in order to pass it has an exclusive lock on it (`flock` on Unix). It is never removed; who
//! removes it lets two pass at once. What a crash leaves of a replacement is `STATE.cerrojo-draft`, which the next one removes.
//!
//! This needs a filesystem of one machine, or one whose locks no server takes away from a client that is still at work.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    Fence, FileError, PresentedToken, replace,
    turn::{self, Turn},
};
use crate::StoreId;

/// How long an access waits for others at the same fence, unless told otherwise: 10 s.
pub const DEFAULT_WAIT: Duration = Duration::from_secs(10);

/// How the state of a fence begins; what follows is the version of its form.
const MAGIC: &str = "cerrojo-fence ";

/// What a fence remembers: the greatest token that it has admitted, and the store that this came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    store: Option<StoreId>,
    highest: u64,
}

/// A token, and the store that is said to have granted it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    token: PresentedToken,
    store: Option<StoreId>,
}

/// A fence in a file of its own.
///
/// It protects what is done after [`admit`](StateFile::admit) only as far as nobody passes in between: check and access are one step
/// only with a [file](super::file) or a [log](super::log), or when the resource's own lock is around both.
#[derive(Clone, Debug)]
pub struct StateFile {
    path: PathBuf,
    wait: Duration,
}

impl State {
    /// The store whose tokens are counted; `None` as long as no token was admitted, or when they came without.
    #[must_use]
    pub fn store(&self) -> Option<StoreId> {
        self.store
    }

    /// The greatest token that was admitted, 0 for none.
    #[must_use]
    pub fn highest(&self) -> u64 {
        self.highest
    }

    fn admit(self, claim: Claim, path: &Path) -> Result<Self, FileError> {
        if self != Self::default() && self.store != claim.store {
            let (expected, presented) = (self.store, claim.store);
            return Err(FileError::OtherStore { path: path.to_owned(), expected, presented });
        }
        let mut fence = Fence::resume(self.highest);
        fence.admit(claim.token)?;
        Ok(Self { store: claim.store, highest: fence.highest() })
    }

    /// Never lowers: to adopt the store that is known already changes nothing.
    fn adopt(self, store: StoreId) -> Self {
        if self.store == Some(store) { self } else { Self { store: Some(store), highest: 0 } }
    }

    /// This state, or what is seen elsewhere to have been admitted of the same store, whichever is greater.
    pub(super) fn at_least(self, seen: Self) -> Self {
        match self.store {
            _ if self == Self::default() => seen,
            store if store == seen.store => Self { store, highest: self.highest.max(seen.highest) },
            _ => self,
        }
    }

    fn to_line(self) -> String {
        let store = self.store.map_or_else(|| "none".to_owned(), |store| store.to_string());
        let line = format!("{MAGIC}1 store {store} highest {}", self.highest);
        format!("{line} crc32 {:08x}\n", crc32fast::hash(line.as_bytes()))
    }

    /// Only what [`State::to_line`] writes is a state: that is what checks the checksum.
    fn from_line(line: &[u8]) -> Option<Self> {
        let line = str::from_utf8(line).ok()?;
        let mut words = line.split(' ').skip(3).step_by(2);
        let store = match words.next()? {
            "none" => None,
            id => Some(id.parse().ok()?),
        };
        let state = Self { store, highest: words.next()?.parse().ok()? };
        (state.to_line() == line).then_some(state)
    }
}

impl From<Claim> for State {
    fn from(claim: Claim) -> Self {
        Self { store: claim.store, highest: claim.token.get() }
    }
}

impl Claim {
    pub(super) fn new(token: impl Into<PresentedToken>, store: impl Into<Option<StoreId>>) -> Self {
        Self { token: token.into(), store: store.into() }
    }
}

impl StateFile {
    /// The fence whose state is, or will be, the file at `path`. Does no I/O.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), wait: DEFAULT_WAIT }
    }

    /// The fence of the [file](super::file) or [log](super::log) at `path`. Does no I/O.
    #[must_use]
    pub fn of(path: impl AsRef<Path>) -> Self {
        Self::at(replace::beside(path.as_ref(), ".fence"))
    }

    /// Where the state is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How long each access waits for others at this fence; [`DEFAULT_WAIT`] unless said.
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    /// Admits a token that is not smaller than the greatest seen, and remembers it, durably, before it answers.
    ///
    /// Call it at the first access under a grant, also when that only reads. The first token tells the fence its store; from
    /// then on tokens must name the same one. `None` stands for tokens of which nobody says the store: they are refused
    /// by a fence that knows one, and the other way round.
    ///
    /// # Errors
    ///
    /// [`FileError::Stale`] and [`FileError::OtherStore`]: do nothing for this holder. The others say that nothing is known.
    ///
    /// # Cancel safety
    ///
    /// May be dropped while it waits for others; once begun it goes on to its end.
    pub async fn admit(
        &self,
        token: impl Into<PresentedToken>,
        store: impl Into<Option<StoreId>>,
    ) -> Result<State, FileError> {
        let claim = Claim::new(token, store);
        self.in_turn(move |fence| fence.pass(claim, State::default())).await
    }

    /// From now on the fence counts tokens of `store`, from the first: the store before it was replaced.
    ///
    /// The fence forgets the greatest token of the old store, so make sure that nobody who holds one is still at work.
    /// To adopt the store that it knows changes nothing.
    ///
    /// # Errors
    ///
    /// As [`StateFile::admit`], but none of [`FileError::Stale`] and [`FileError::OtherStore`].
    ///
    /// # Cancel safety
    ///
    /// As [`StateFile::admit`].
    pub async fn adopt(&self, store: StoreId) -> Result<State, FileError> {
        self.in_turn(move |fence| {
            let old = fence.load()?;
            fence.save(old, old.adopt(store))
        })
        .await
    }

    /// What the fence remembers at this moment; waits for nobody and changes nothing.
    ///
    /// # Errors
    ///
    /// [`FileError::Damaged`], [`FileError::NotAState`], [`FileError::NotAFile`], [`FileError::Io`].
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time.
    pub async fn state(&self) -> Result<State, FileError> {
        let fence = self.clone();
        turn::blocking(move || fence.load()).await
    }

    /// Does `work`, which may block, while nobody else is at this fence.
    pub(super) async fn in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, FileError> {
        let turn = Turn::take(replace::beside(&self.path, ".lock"), self.wait).await?;
        let fence = self.clone();
        turn::blocking(move || {
            let done = work(&fence);
            drop(turn);
            done
        })
        .await
    }

    /// Admits, given that `seen` has been admitted already. Only for who has the turn.
    pub(super) fn pass(&self, claim: Claim, seen: State) -> Result<State, FileError> {
        let old = self.load()?;
        self.save(old, old.at_least(seen).admit(claim, &self.path)?)
    }

    pub(super) fn load(&self) -> Result<State, FileError> {
        let Some(line) = replace::contents(&self.path)? else { return Ok(State::default()) };
        State::from_line(&line).ok_or_else(|| self.unreadable(&line))
    }

    /// To remove a damaged state can be right; to remove what never was a state cannot.
    fn unreadable(&self, line: &[u8]) -> FileError {
        let path = self.path.clone();
        if !line.starts_with(MAGIC.as_bytes()) {
            return FileError::NotAState { path };
        }
        let why = "put it back as it was; or make sure that nobody who holds an older token is still at work, and remove it: the \
                   next token is then taken as the first";
        FileError::Damaged { path, why }
    }

    fn save(&self, old: State, new: State) -> Result<State, FileError> {
        if old == new {
            // Whoever wrote it may have died before it was durable.
            replace::sync_folder(&self.path)?;
        } else {
            replace::replace(&self.path, new.to_line().as_bytes())?;
        }
        Ok(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stores() -> [StoreId; 2] {
        [[0xA; 16], [0xB; 16]].map(StoreId::from_bytes)
    }

    fn claim(token: u64, store: impl Into<Option<StoreId>>) -> Claim {
        Claim::new(PresentedToken::try_from(token).unwrap(), store)
    }

    fn admit(state: State, claim: Claim) -> Result<State, FileError> {
        state.admit(claim, Path::new("x"))
    }

    #[test]
    fn a_state_is_read_as_it_was_written_and_nothing_else_is() {
        let [a, _] = stores();
        for state in [State::default(), claim(7, a).into(), claim(u64::MAX / 2, None).into()] {
            let line = state.to_line();
            assert_eq!(State::from_line(line.as_bytes()), Some(state));
            for at in 0..line.len() {
                assert_eq!(State::from_line(&line.as_bytes()[..at]), None, "cut off at {at}");
                for bit in 0..8 {
                    let mut flipped = line.clone().into_bytes();
                    flipped[at] ^= 1 << bit;
                    assert_eq!(State::from_line(&flipped), None, "bit {bit} of byte {at}");
                }
            }
            assert_eq!(State::from_line(format!("{line}\n").as_bytes()), None);
        }
    }

    #[test]
    fn the_first_token_names_the_store_and_others_are_refused() {
        let [a, b] = stores();
        let state = admit(State::default(), claim(5, a)).unwrap();
        assert_eq!((state.highest(), state.store()), (5, Some(a)));
        for other in [Some(b), None] {
            let refused = admit(state, claim(9, other));
            assert!(matches!(refused, Err(FileError::OtherStore { .. })), "{other:?}");
        }
        assert!(matches!(admit(state, claim(4, a)), Err(FileError::Stale(_))));
        let unnamed = admit(State::default(), claim(5, None)).unwrap();
        assert!(matches!(admit(unnamed, claim(5, a)), Err(FileError::OtherStore { .. })));
    }

    #[test]
    fn to_adopt_a_new_store_starts_anew_and_to_adopt_the_same_lowers_nothing() {
        let [a, b] = stores();
        let state = State::from(claim(5, a));
        assert_eq!(state.adopt(a), state);
        let adopted = state.adopt(b);
        assert_eq!((adopted.highest(), adopted.store()), (0, Some(b)));
        assert!(admit(adopted, claim(1, b)).is_ok());
        assert!(matches!(admit(adopted, claim(9, a)), Err(FileError::OtherStore { .. })));
    }

    #[test]
    fn what_is_seen_raises_a_state_of_the_same_store_only() {
        let [a, b] = stores();
        let state = State::from(claim(5, a));
        assert_eq!(state.at_least(claim(7, a).into()).highest(), 7);
        assert_eq!(state.at_least(claim(3, a).into()).highest(), 5);
        assert_eq!(state.at_least(claim(7, b).into()), state);
        assert_eq!(state.at_least(State::default()), state);
        assert_eq!(State::default().at_least(state), state);
    }
}
