//! How a process learns that one of its waiters may enter: one socket and one thread, however many wait.
//!
//! A release sends the owner ids that may enter to the socket of their process. The same thread watches
//! the processes that hold what is waited for (a pidfd is readable when its process ends), and every [`TICK`] it
//! gives a sign of life and looks at the tables itself, so that a lost wake-up costs no more than that.

use std::{
    collections::HashMap,
    fs::{self, File, Permissions},
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{fs::PermissionsExt, net::UnixDatagram},
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::Notify;

use super::{
    error::LocalError,
    folder::Folder,
    machine::Machine,
    process::{Life, Process, Proof},
    store::{Standing, Tables, Waiting, Wake, write_proof},
    worker::Worker,
};
use crate::{owner::OwnerId, spi::BoundTo};

/// How often a process with waiters gives a sign of life and looks for what it was not told.
pub const TICK: Duration = Duration::from_millis(500);
/// How long a sign of life lasts: for so long a stopped process at the head of a line holds the others up.
pub(super) const PEER_LIVES: Duration = Duration::from_secs(2);
/// How many holders' processes one process watches; beyond that their TTLs and the tick decide.
const WATCHED_MAX: usize = 256;
/// How many owner ids fit one message.
const OWNERS_MAX: usize = 256;

/// The id of one open store that has waiters; also its socket's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PeerId([u8; 16]);

impl PeerId {
    pub(super) fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    pub(super) fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    fn file_name(&self) -> String {
        OwnerId::from_bytes(self.0).to_hex()
    }
}

/// The folder of sockets, held open: a path by its descriptor is short, whatever the folder's own path.
#[derive(Debug)]
pub(super) struct Sockets {
    folder: PathBuf,
    opened: File,
}

impl Sockets {
    pub(super) fn open(folder: &Folder) -> Result<Self, LocalError> {
        let folder = folder.wake();
        match File::open(&folder) {
            Ok(opened) => Ok(Self { folder, opened }),
            Err(error) => Err(LocalError::Io { what: "open", path: folder, error }),
        }
    }

    fn path(&self, peer: PeerId) -> PathBuf {
        let descriptor = self.opened.as_raw_fd();
        Path::new("/proc/self/fd").join(descriptor.to_string()).join(peer.file_name())
    }

    fn bind(&self, peer: PeerId) -> Result<UnixDatagram, LocalError> {
        let path = self.path(peer);
        let bound = UnixDatagram::bind(&path).and_then(|socket| {
            fs::set_permissions(&path, Permissions::from_mode(0o600))?;
            Ok(socket)
        });
        bound.map_err(|error| LocalError::Io {
            what: "make a socket in",
            path: self.folder.clone(),
            error,
        })
    }

    pub(super) fn remove(&self, peer: PeerId) {
        if let Err(error) = fs::remove_file(self.path(peer))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::debug!(%error, "a socket of a process that is gone stays behind");
        }
    }
}

/// Sends wake-ups.
#[derive(Debug)]
pub(super) struct Caller {
    sockets: Arc<Sockets>,
    socket: UnixDatagram,
}

impl Caller {
    pub(super) fn new(sockets: Arc<Sockets>) -> Result<Self, LocalError> {
        let socket = UnixDatagram::unbound().and_then(|socket| {
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        let socket = socket.map_err(|error| LocalError::Io {
            what: "make a socket for",
            path: sockets.folder.clone(),
            error,
        })?;
        Ok(Self { sockets, socket })
    }

    /// Tells every process whose waiters may enter; the processes that cannot be reached are gone.
    pub(super) fn tell(&self, wakes: &[Wake]) -> Vec<PeerId> {
        let mut by_peer: HashMap<PeerId, Vec<u8>> = HashMap::new();
        for wake in wakes {
            by_peer.entry(wake.peer).or_default().extend_from_slice(wake.owner.as_bytes());
        }
        by_peer
            .into_iter()
            .filter(|(peer, owners)| !self.reaches(*peer, owners))
            .map(|(peer, _)| peer)
            .collect()
    }

    /// Removes the socket of a process that is gone.
    pub(super) fn remove(&self, peer: PeerId) {
        self.sockets.remove(peer);
    }

    fn reaches(&self, peer: PeerId, owners: &[u8]) -> bool {
        let path = self.sockets.path(peer);
        owners.chunks(16 * OWNERS_MAX).all(|message| match self.socket.send_to(message, &path) {
            Err(error) => {
                !matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
            }
            // Else sent, or its queue is full and it will look by itself.
            Ok(_) => true,
        })
    }
}

/// The waiters of one open store, and the thread that listens for them.
#[derive(Debug)]
pub(super) struct Waiters {
    standing: Standing,
    sockets: Arc<Sockets>,
    peer: PeerId,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: HashMap<OwnerId, Arc<Notify>>,
    watched: HashMap<Process, OwnedFd>,
    /// Whether the thread runs.
    listening: bool,
    ended: bool,
}

/// One waiter: told by its [`Notify`]; leaves when dropped.
#[derive(Debug)]
pub(super) struct Waiter {
    waiters: Arc<Waiters>,
    owner: OwnerId,
    called: Arc<Notify>,
}

impl Waiters {
    pub(super) fn new(sockets: Arc<Sockets>, machine: &Machine) -> Self {
        let peer = PeerId(*OwnerId::random().as_bytes());
        let proof = Proof::of(&BoundTo::ThisProcess, machine).as_ref().map(write_proof);
        let standing = Standing { peer, proof };
        Self { standing, sockets, peer, state: Mutex::default() }
    }

    pub(super) fn standing(&self) -> Standing {
        self.standing.clone()
    }

    /// Starts to listen for `owner`, before it stands in line: so no call is missed.
    pub(super) fn enter(
        self: &Arc<Self>,
        owner: OwnerId,
        worker: &Worker,
    ) -> Result<Waiter, LocalError> {
        let called = Arc::new(Notify::new());
        let mut state = self.state();
        if !state.listening {
            self.start_listening(worker)?;
            state.listening = true;
        }
        state.waiting.insert(owner, Arc::clone(&called));
        let first = state.waiting.len() == 1;
        drop(state);
        if first {
            self.stir_listener();
        }
        Ok(Waiter { waiters: Arc::clone(self), owner, called })
    }

    fn start_listening(self: &Arc<Self>, worker: &Worker) -> Result<(), LocalError> {
        let socket = self.sockets.bind(self.peer)?;
        let listener =
            Listener { waiters: Arc::downgrade(self), socket, worker: worker.downgrade() };
        let thread = std::thread::Builder::new().name("cerrojo-wake".into());
        thread.spawn(move || listener.run()).map(drop).map_err(|error| LocalError::Io {
            what: "start a thread for",
            path: self.sockets.folder.clone(),
            error,
        })
    }

    /// Watches for the end of the processes that hold what is waited for.
    pub(super) fn watch(&self, proof: &Proof, machine: &Machine) {
        if !proof.can_be_seen_from(machine) {
            return;
        }
        // It ended since the look at the tables. One of several that has ended is no news.
        if proof.all_gone(machine) {
            self.call_all();
        } else if self.watch_each(&proof.processes) {
            self.stir_listener();
        }
    }

    /// True: there is one more to watch.
    fn watch_each(&self, processes: &[Process]) -> bool {
        let mut state = self.state();
        let before = state.watched.len();
        for process in processes {
            if state.watched.len() >= WATCHED_MAX || state.watched.contains_key(process) {
                continue;
            }
            if let Life::Alive(pidfd) = process.life() {
                state.watched.insert(*process, pidfd);
            }
        }
        state.watched.len() > before
    }

    fn call(&self, owner: &OwnerId) {
        if let Some(called) = self.state().waiting.get(owner) {
            called.notify_one();
        }
    }

    fn call_all(&self) {
        self.state().waiting.values().for_each(|called| called.notify_one());
    }

    /// Makes the listener look at what has changed, by an empty message to its socket.
    fn stir_listener(&self) {
        let sent = UnixDatagram::unbound().and_then(|socket| {
            socket.set_nonblocking(true)?;
            socket.send_to(&[], self.sockets.path(self.peer))
        });
        if let Err(error) = sent
            && error.kind() != io::ErrorKind::WouldBlock
        {
            tracing::debug!(%error, "the listener is not reached; the tick serves");
        }
    }

    /// Ends the thread; the store is being closed.
    pub(super) fn end(&self) {
        let mut state = self.state();
        state.ended = true;
        let listening = state.listening;
        drop(state);
        if listening {
            self.stir_listener();
            self.sockets.remove(self.peer);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiter {
    pub(super) async fn called(&self) {
        self.called.notified().await;
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut state = self.waiters.state();
        state.waiting.remove(&self.owner);
        if state.waiting.is_empty() {
            state.watched.clear();
        }
    }
}

/// The thread that listens on the socket.
struct Listener {
    waiters: Weak<Waiters>,
    socket: UnixDatagram,
    worker: super::worker::WeakWorker,
}

impl Listener {
    fn run(self) {
        let mut message = [0; 16 * OWNERS_MAX];
        if let Err(error) = self.socket.set_nonblocking(true) {
            tracing::warn!(%error, "cannot listen for wake-ups; the tick serves");
        }
        while let Some(waiters) = self.waiters.upgrade() {
            if waiters.state().ended {
                return;
            }
            let ticked = self.wait(&waiters);
            self.read(&waiters, &mut message);
            if ticked {
                self.look_after(&waiters);
            }
        }
    }

    /// Blocks until there is a message, a watched process ends, or a tick has passed. True: a tick, or an end.
    fn wait(&self, waiters: &Waiters) -> bool {
        let (idle, watched) = copies_of_watched(waiters);
        let mut fds = vec![PollFd::new(&self.socket, PollFlags::IN)];
        fds.extend(watched.iter().map(|(_, pidfd)| PollFd::new(pidfd, PollFlags::IN)));
        let tick = Timespec::try_from(TICK).unwrap_or_default();
        // An error of poll is a signal at most; the loop comes again.
        let ready = poll(&mut fds, (!idle).then_some(&tick)).unwrap_or(0);
        let ended: Vec<Process> = watched
            .iter()
            .zip(fds.iter().skip(1))
            .filter(|(_, fd)| !fd.revents().is_empty())
            .map(|((process, _), _)| *process)
            .collect();
        drop(fds);
        if ended.is_empty() {
            return ready == 0;
        }
        waiters.state().watched.retain(|process, _| !ended.contains(process));
        waiters.call_all();
        false
    }

    fn read(&self, waiters: &Waiters, message: &mut [u8]) {
        while let Ok(length) = self.socket.recv(message) {
            for owner in message.get(..length).unwrap_or_default().as_chunks::<16>().0 {
                waiters.call(&OwnerId::from_bytes(*owner));
            }
        }
    }

    /// The sign of life, and the look at the tables for what a wake-up did not tell.
    fn look_after(&self, waiters: &Arc<Waiters>) {
        let (standing, waiters) = (waiters.standing(), Arc::downgrade(waiters));
        self.worker.send(move |tables: &mut Tables| {
            let looked = tables.look_after(&standing)?;
            let machine = tables.machine().clone();
            Ok(move || {
                if let Some(waiters) = waiters.upgrade() {
                    waiters.take_note(&looked, &machine);
                }
            })
        });
    }
}

impl Waiters {
    /// Calls those that may enter, and those that the tables do not know any more: they stand in line anew.
    fn take_note(&self, looked: &[Waiting], machine: &Machine) {
        let known: HashMap<OwnerId, &Waiting> =
            looked.iter().map(|waiting| (waiting.owner, waiting)).collect();
        for (owner, called) in &self.state().waiting {
            if known.get(owner).is_none_or(|waiting| waiting.may_enter) {
                called.notify_one();
            }
        }
        for proof in looked.iter().filter_map(|waiting| waiting.proof.as_ref()) {
            self.watch(proof, machine);
        }
    }
}

/// Whether nobody waits, and the watched processes' descriptors, copied so that no lock is held while blocking.
fn copies_of_watched(waiters: &Waiters) -> (bool, Vec<(Process, OwnedFd)>) {
    let state = waiters.state();
    let copy = |(process, pidfd): (&Process, &OwnedFd)| Some((*process, pidfd.try_clone().ok()?));
    (state.waiting.is_empty(), state.watched.iter().filter_map(copy).collect())
}
