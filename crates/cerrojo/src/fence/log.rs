//! A file to which only the newest holder appends: records, each with its token.
//!
//! A record is a line of text, its bytes, and a newline. The line says token, store, length in bytes, and a CRC-32 of
//! where the record stands, the line up to there and the bytes, in eight hexadecimal digits:
//!
//! ```text
//! cerrojo-record 34 0a1b2c3d4e5f60718293a4b5c6d7e8f9 5 9d1c2a7e
//! hello
//! ```
//!
//! Beside `LOG` stand `LOG.fence` and `LOG.fence.lock`, as with a [file](super::file).
//!
//! Each append is synced before it answers. A crash or a power loss in the middle of one leaves the records before it, and
//! perhaps a torn end, which the next append cuts off. What is wrong in the middle, with whole records after it, is damage: it is
//! never cut off, and nothing is appended to it.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use super::{
    FileError, PresentedToken, replace,
    state::{Claim, State, StateFile},
};
use crate::StoreId;

/// How each record begins.
const MAGIC: &str = "cerrojo-record ";

/// No line at the head of a record is longer.
const HEAD_MAX_BYTES: u64 = 128;

/// A file of records that only grows, under a fence.
///
/// The tokens of one store never fall from record to record. The fence is the greater of its state and the last record's
/// token, so a lost state file admits nobody who is older than what was written.
///
/// One value remembers how far it has read, so that further appends do not read the log again; the first reads all of it.
/// Only by this, or by records cut off at the end, may the file be changed.
///
/// Needs a Tokio runtime, on whose blocking threads it works.
#[derive(Clone, Debug)]
pub struct FencedLog {
    path: PathBuf,
    fence: StateFile,
    known: Arc<Mutex<Known>>,
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Under which grant it was appended.
    pub token: PresentedToken,
    /// The store of that grant.
    pub store: StoreId,
    /// What was appended.
    pub bytes: Vec<u8>,
}

/// The records of a log, in order, up to the last that was there when they were asked for.
///
/// Reads the file as it goes, and blocks while it does.
#[derive(Debug)]
pub struct Records {
    path: PathBuf,
    reader: Option<BufReader<File>>,
    at: u64,
    end: u64,
}

/// Up to where the log consists of whole records, and what its last one says of the fence.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    end: u64,
    state: State,
}

impl FencedLog {
    /// The log at `path`, which need not exist yet. Does no I/O.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let fence = StateFile::of(&path);
        Self { path, fence, known: Arc::default() }
    }

    /// How long each access waits for others at this log; [`DEFAULT_WAIT`](super::state::DEFAULT_WAIT) unless said.
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        Self { fence: self.fence.wait(wait), ..self }
    }

    /// Appends one record, if the token is admitted; durable when it answers.
    ///
    /// # Errors
    ///
    /// [`FileError::Stale`] and [`FileError::OtherStore`]: stop, this holder was overtaken. [`FileError::Busy`]: nothing was done, try again.
    /// [`FileError::Damaged`]: a person has to look. [`FileError::Io`]: the record is not there, unless what was
    /// written of it cannot be taken back either.
    ///
    /// # Cancel safety
    ///
    /// Dropped while it waits for others, it has done nothing. Once begun it goes on to its end, and the record may
    /// come after it was dropped.
    pub async fn append(
        &self,
        token: impl Into<PresentedToken>,
        store: StoreId,
        bytes: impl Into<Vec<u8>>,
    ) -> Result<(), FileError> {
        let record = Record { token: token.into(), store, bytes: bytes.into() };
        self.access(Claim::new(record.token, store), move |log, known| {
            log.write(&record, known.end)
        })
        .await
    }

    /// The records so far, if the token is admitted.
    ///
    /// The read raises the fence as an append would: from here on no older holder appends.
    ///
    /// # Errors
    ///
    /// As [`FencedLog::append`].
    ///
    /// # Cancel safety
    ///
    /// As [`FencedLog::append`]; it is the fence that may be raised after it was dropped.
    pub async fn read(
        &self,
        token: impl Into<PresentedToken>,
        store: StoreId,
    ) -> Result<Records, FileError> {
        self.access(Claim::new(token, store), |log, known| log.open_records(known.end)).await
    }

    /// The records so far, for who holds no lock and will not append because of what they say: the fence stays as it is.
    ///
    /// # Errors
    ///
    /// [`FileError::Busy`], [`FileError::Damaged`], [`FileError::NotAFile`], [`FileError::Io`].
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time.
    pub async fn records(&self) -> Result<Records, FileError> {
        self.in_turn(|log, _, known| log.open_records(known.end)).await
    }

    /// From now on the fence counts tokens of `store`: see [`StateFile::adopt`]. Records of the store before stay.
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

    /// What the fence remembers, by its state and by the last record.
    ///
    /// # Errors
    ///
    /// As [`FencedLog::records`].
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time.
    pub async fn state(&self) -> Result<State, FileError> {
        self.in_turn(|_, fence, known| Ok(fence.load()?.at_least(known.state))).await
    }

    async fn access<T: Send + 'static>(
        &self,
        claim: Claim,
        work: impl FnOnce(&Self, Known) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, FileError> {
        self.in_turn(move |log, fence, known| {
            fence.pass(claim, known.state)?;
            work(log, known)
        })
        .await
    }

    async fn in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self, &StateFile, Known) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, FileError> {
        let log = self.clone();
        self.fence
            .in_turn(move |fence| {
                let known = log.catch_up()?;
                work(&log, fence, known)
            })
            .await
    }

    /// Reads what others have appended.
    fn catch_up(&self) -> Result<Known, FileError> {
        let file_bytes = replace::regular(&self.path)?.map_or(0, |metadata| metadata.len());
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        *known = match known.advance(&self.path, file_bytes)? {
            further if further.end == file_bytes => further,
            // What does not go on where we were: all of it has to be looked at.
            _ => Known::default().advance(&self.path, file_bytes)?,
        };
        known.check_tail(&self.path, file_bytes)?;
        Ok(*known)
    }

    fn write(&self, record: &Record, end: u64) -> Result<(), FileError> {
        let mut file = self.open_to_write()?;
        // Cuts off what a crash has left of a record.
        file.set_len(end).map_err(FileError::io("cut off the torn end of", &self.path))?;
        let written = file
            .seek(SeekFrom::Start(end))
            .and_then(|_| file.write_all(&record.framed(end)))
            .and_then(|()| file.sync_all());
        if written.is_err() {
            // If this fails too, the next append does it.
            drop(file.set_len(end).and_then(|()| file.sync_all()));
        }
        written.map_err(FileError::io("append to", &self.path))
    }

    fn open_to_write(&self) -> Result<File, FileError> {
        let is_new = replace::regular(&self.path)?.is_none();
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&self.path);
        let file = file.map_err(FileError::io("open", &self.path))?;
        if is_new {
            replace::sync_folder(&self.path)?;
        }
        Ok(file)
    }

    fn open_records(&self, end: u64) -> Result<Records, FileError> {
        let reader = (end > 0).then(|| open_at(&self.path, 0)).transpose()?;
        Ok(Records { path: self.path.clone(), reader, at: 0, end })
    }
}

impl Known {
    /// As far as whole records go on from here.
    fn advance(mut self, path: &Path, file_bytes: u64) -> Result<Self, FileError> {
        if self.end >= file_bytes {
            return Ok(self);
        }
        let mut reader = open_at(path, self.end)?;
        while let Some((record, end)) =
            next_record(&mut reader, self.end, file_bytes).map_err(FileError::io("read", path))?
        {
            self = Self { end, state: State::from(Claim::new(record.token, record.store)) };
        }
        Ok(self)
    }

    /// Behind the last whole record there may be a torn one, but no whole one.
    fn check_tail(self, path: &Path, file_bytes: u64) -> Result<(), FileError> {
        if self.end >= file_bytes {
            return Ok(());
        }
        let found = find_record(path, self.end, file_bytes).map_err(FileError::io("read", path))?;
        if found { Err(damaged(path)) } else { Ok(()) }
    }
}

impl Record {
    fn head(&self) -> String {
        format!("{MAGIC}{} {} {}", self.token, self.store, self.bytes.len())
    }

    /// Where the record stands is part of the sum, so that a record within the bytes of another is none.
    fn checksum(&self, at: u64) -> u32 {
        let mut sum = crc32fast::Hasher::new();
        sum.update(&at.to_le_bytes());
        sum.update(self.head().as_bytes());
        sum.update(&self.bytes);
        sum.finalize()
    }

    fn head_line(&self, at: u64) -> String {
        format!("{} {:08x}\n", self.head(), self.checksum(at))
    }

    fn framed(&self, at: u64) -> Vec<u8> {
        [self.head_line(at).as_bytes(), &self.bytes, b"\n"].concat()
    }
}

impl Iterator for Records {
    type Item = Result<Record, FileError>;

    fn next(&mut self) -> Option<Self::Item> {
        let reader = self.reader.as_mut().filter(|_| self.at < self.end)?;
        let read =
            next_record(reader, self.at, self.end).map_err(FileError::io("read", &self.path));
        let read = read.and_then(|found| found.ok_or_else(|| damaged(&self.path)));
        // After an error nothing more can be told apart.
        self.at = read.as_ref().map_or(self.end, |(_, end)| *end);
        Some(read.map(|(record, _)| record))
    }
}

fn damaged(path: &Path) -> FileError {
    let why = "a record in the middle of it is not as it was written. Put the file back as it was";
    FileError::Damaged { path: path.to_owned(), why }
}

fn open_at(path: &Path, at: u64) -> Result<BufReader<File>, FileError> {
    let opened = File::open(path).and_then(|mut file| {
        file.seek(SeekFrom::Start(at))?;
        Ok(BufReader::new(file))
    });
    opened.map_err(FileError::io("open", path))
}

/// The record at `at`, and where it ends; nothing if there is no whole record before `end`.
fn next_record(reader: &mut impl BufRead, at: u64, end: u64) -> io::Result<Option<(Record, u64)>> {
    let mut line = Vec::new();
    let head_bytes = reader.take(HEAD_MAX_BYTES).read_until(b'\n', &mut line)?;
    let Some((token, store, length)) = parse_head(&line) else { return Ok(None) };
    let start = at.saturating_add(u64::try_from(head_bytes).unwrap_or(u64::MAX));
    let whole = start.checked_add(length).and_then(|end| end.checked_add(1));
    let Some(record_end) = whole.filter(|whole| *whole <= end) else { return Ok(None) };
    let mut bytes = Vec::new();
    reader.take(length.saturating_add(1)).read_to_end(&mut bytes)?;
    let newline = bytes.pop();
    let record = Record { token, store, bytes };
    let is_whole = newline == Some(b'\n') && record.head_line(at).as_bytes() == line;
    Ok(is_whole.then_some((record, record_end)))
}

fn parse_head(line: &[u8]) -> Option<(PresentedToken, StoreId, u64)> {
    let words = str::from_utf8(line).ok()?.strip_prefix(MAGIC)?;
    let mut words = words.split(' ');
    let (token, store, length) = (words.next()?, words.next()?, words.next()?);
    Some((token.parse().ok()?, store.parse().ok()?, length.parse().ok()?))
}

/// Whether a whole record begins anywhere behind `from`.
fn find_record(path: &Path, from: u64, end: u64) -> io::Result<bool> {
    let mut rest = Vec::new();
    let mut file = fs::File::open(path)?;
    file.seek(SeekFrom::Start(from))?;
    file.take(end - from).read_to_end(&mut rest)?;
    let begins = rest.windows(MAGIC.len()).enumerate().filter(|(_, at)| *at == MAGIC.as_bytes());
    for (skipped, _) in begins {
        let at = from + u64::try_from(skipped).unwrap_or(u64::MAX);
        let mut record = rest.get(skipped..).unwrap_or_default();
        if next_record(&mut record, at, end)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> StoreId {
        StoreId::from_bytes([0xA; 16])
    }

    fn token(number: u64) -> PresentedToken {
        number.try_into().unwrap()
    }

    /// A log in a folder of its own, with these records.
    async fn log_of(records: &[&[u8]]) -> (tempfile::TempDir, FencedLog) {
        let folder = tempfile::tempdir().unwrap();
        let log = FencedLog::at(folder.path().join("log"));
        for (number, bytes) in (1..).zip(records) {
            log.append(token(number), store(), *bytes).await.unwrap();
        }
        (folder, log)
    }

    async fn all(log: &FencedLog) -> Vec<Vec<u8>> {
        log.records().await.unwrap().map(|record| record.unwrap().bytes).collect()
    }

    #[tokio::test]
    async fn records_come_back_as_they_were_appended_whatever_they_hold() {
        let nested = Record { token: token(9), store: store(), bytes: b"x".into() }.framed(0);
        let records: [&[u8]; 5] = [b"", b"one", b"\n\n", &nested, &[0xFF; 70_000]];
        let (_folder, log) = log_of(&records).await;
        let fresh = FencedLog::at(log.path.clone());
        for log in [log, fresh] {
            assert_eq!(all(&log).await, records);
            let tokens: Vec<_> =
                log.records().await.unwrap().map(|record| record.unwrap().token.get()).collect();
            assert_eq!(tokens, [1, 2, 3, 4, 5]);
        }
    }

    #[tokio::test]
    async fn a_torn_end_is_cut_off_wherever_it_is_torn() {
        let (_folder, log) = log_of(&[b"one", b"cerrojo-record 2 in disguise\n"]).await;
        let whole = fs::read(&log.path).unwrap();
        let first =
            Record { token: token(1), store: store(), bytes: b"one".into() }.framed(0).len();
        for cut in first..whole.len() {
            for filler in [&b""[..], &[0; 500]] {
                fs::write(&log.path, [&whole[..cut], filler].concat()).unwrap();
                let log = FencedLog::at(log.path.clone());
                log.append(token(2), store(), *b"two").await.unwrap();
                assert_eq!(all(&log).await, [b"one", b"two"], "cut off at {cut}");
            }
        }
    }

    #[tokio::test]
    async fn damage_with_whole_records_behind_it_is_never_cut_off() {
        let (_folder, log) = log_of(&[b"one", b"two", b"three"]).await;
        let whole = fs::read(&log.path).unwrap();
        let last = Record { token: token(3), store: store(), bytes: b"three".into() };
        let last_at = whole.len() - last.framed(0).len();
        for at in 0..last_at {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&log.path, &damaged).unwrap();
            let log = FencedLog::at(log.path.clone());
            let refused = log.append(token(3), store(), *b"four").await;
            assert!(matches!(refused, Err(FileError::Damaged { .. })), "byte {at}: {refused:?}");
            assert_eq!(fs::read(&log.path).unwrap(), damaged);
        }
    }

    #[tokio::test]
    async fn a_lost_state_is_made_up_for_by_the_last_record() {
        let (folder, log) = log_of(&[b"one", b"two"]).await;
        fs::remove_file(folder.path().join("log.fence")).unwrap();
        assert_eq!(log.state().await.unwrap().highest(), 2);
        let stale = log.append(token(1), store(), *b"late").await;
        assert!(matches!(stale, Err(FileError::Stale(_))), "{stale:?}");
        log.append(token(2), store(), *b"three").await.unwrap();
    }

    #[tokio::test]
    async fn a_read_raises_the_fence_of_a_log_and_a_look_does_not() {
        let (_folder, log) = log_of(&[b"one"]).await;
        assert_eq!(all(&log).await.len(), 1);
        assert_eq!(log.state().await.unwrap().highest(), 1);
        assert_eq!(log.read(token(5), store()).await.unwrap().count(), 1);
        let late = log.append(token(4), store(), *b"late").await;
        assert!(matches!(late, Err(FileError::Stale(_))), "{late:?}");
        assert_eq!(all(&log).await.len(), 1);
    }

    #[tokio::test]
    async fn an_adopted_store_counts_anew_and_its_records_follow_the_old_ones() {
        let (_folder, log) = log_of(&[b"one", b"two"]).await;
        let new = StoreId::from_bytes([0xB; 16]);
        let refused = log.append(token(9), new, *b"early").await;
        assert!(matches!(refused, Err(FileError::OtherStore { .. })), "{refused:?}");
        log.adopt(new).await.unwrap();
        log.append(token(1), new, *b"three").await.unwrap();
        assert_eq!(log.records().await.unwrap().last().unwrap().unwrap().store, new);
        let old = log.append(token(9), store(), *b"late").await;
        assert!(matches!(old, Err(FileError::OtherStore { .. })), "{old:?}");
    }

    #[tokio::test]
    async fn two_writers_see_each_others_records() {
        let (_folder, one) = log_of(&[]).await;
        let other = FencedLog::at(one.path.clone());
        for _ in 0..3 {
            one.append(token(1), store(), *b"one").await.unwrap();
            other.append(token(1), store(), *b"other").await.unwrap();
        }
        assert_eq!(all(&one).await, all(&other).await);
        assert_eq!(all(&one).await.len(), 6);
    }
}
