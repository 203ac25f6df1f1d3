//! One direction of one connection.

use std::{
    collections::VecDeque,
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    time::{Duration, Instant},
};

use super::Bytes;

/// How much is kept for a line before its sender has to wait.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// What one read takes at most.
const READ_BYTES_MAX: usize = 16 * 1024;

/// What becomes of the bytes of a direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Way {
    #[default]
    Open,
    Held,
    Swallowed,
}

/// What holds for all lines of a direction.
#[derive(Debug, Default)]
pub(super) struct Rule {
    pub(super) way: Way,
    pub(super) delay: Duration,
    pub(super) cut_after: Option<u64>,
    pub(super) bytes: Bytes,
}

impl Rule {
    fn count_passed(&mut self, length: usize) {
        self.bytes.passed += as_count(length);
        self.cut_after = self.cut_after.map(|bytes| bytes - as_count(length));
    }

    /// Whether the connection is to be cut here; only once.
    fn take_cut(&mut self) -> bool {
        self.cut_after.take_if(|bytes| *bytes == 0).is_some()
    }
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Fin,
    Reset,
}

/// What a connection has to do after a line moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    GoOn,
    Cut,
    Reset,
}

#[derive(Debug)]
struct Chunk {
    due: Instant,
    bytes: Vec<u8>,
    sent: usize,
}

/// Bytes on their way from one end to the other.
#[derive(Debug, Default)]
pub(super) struct Line {
    chunks: VecDeque<Chunk>,
    kept_bytes: usize,
    end: Option<(End, Instant)>,
    is_closed: bool,
}

impl Line {
    pub(super) fn wants_to_read(&self) -> bool {
        self.end.is_none() && self.kept_bytes < KEPT_BYTES_MAX
    }

    /// When there is something to write, if there is.
    pub(super) fn due(&self, rule: &Rule) -> Option<Instant> {
        if rule.way == Way::Held || self.is_closed {
            return None;
        }
        let end = self.end.filter(|_| rule.way == Way::Open);
        self.chunks.front().map(|chunk| chunk.due).or(end.map(|(_, due)| due))
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Takes what `from` has, at most one buffer full.
    pub(super) fn read(&mut self, mut from: &TcpStream, rule: &mut Rule, now: Instant) {
        let mut buffer = [0; READ_BYTES_MAX];
        let due = now + rule.delay;
        match from.read(&mut buffer) {
            Ok(0) => self.end = Some((End::Fin, due)),
            Ok(length) => {
                rule.bytes.arrived += as_count(length);
                self.keep(buffer.get(..length).unwrap_or_default(), due);
            }
            Err(error) if is_nothing_yet(&error) => {}
            Err(_) => self.end = Some((End::Reset, due)),
        }
    }

    fn keep(&mut self, bytes: &[u8], due: Instant) {
        self.kept_bytes += bytes.len();
        self.chunks.push_back(Chunk { due, bytes: bytes.to_vec(), sent: 0 });
    }

    fn forget(&mut self) {
        self.chunks.clear();
        self.kept_bytes = 0;
    }

    /// Passes on what is due.
    pub(super) fn write(&mut self, to: &TcpStream, rule: &mut Rule, now: Instant) -> Verdict {
        while self.due(rule).is_some_and(|due| due <= now) {
            if rule.way == Way::Swallowed {
                self.forget();
                continue;
            }
            match self.step(to, rule) {
                Ok(Verdict::GoOn) => {}
                Ok(verdict) => return verdict,
                Err(error) if is_nothing_yet(&error) => return Verdict::GoOn,
                Err(_) => self.give_up(),
            }
        }
        Verdict::GoOn
    }

    /// Whoever would get it has gone. The line that begins there tells the other end, when it flows.
    fn give_up(&mut self) {
        self.forget();
        self.is_closed = true;
    }

    fn step(&mut self, mut to: &TcpStream, rule: &mut Rule) -> io::Result<Verdict> {
        let Some(chunk) = self.chunks.front_mut() else { return self.close(to) };
        let left = chunk.bytes.get(chunk.sent..).unwrap_or_default();
        let allowed = rule.cut_after.map_or(left.len(), |bytes| as_length(bytes).min(left.len()));
        if allowed > 0 {
            let sent = to.write(left.get(..allowed).unwrap_or_default())?;
            chunk.sent += sent;
            self.kept_bytes -= sent;
            rule.count_passed(sent);
        }
        if chunk.sent == chunk.bytes.len() {
            self.chunks.pop_front();
        }
        Ok(if rule.take_cut() { Verdict::Cut } else { Verdict::GoOn })
    }

    fn close(&mut self, to: &TcpStream) -> io::Result<Verdict> {
        self.is_closed = true;
        match self.end {
            Some((End::Reset, _)) => Ok(Verdict::Reset),
            _ => to.shutdown(Shutdown::Write).map(|()| Verdict::GoOn),
        }
    }
}

fn is_nothing_yet(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn as_count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

fn as_length(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
