//! The proxy's thread: it waits for sockets, for orders and for what is due, and moves bytes.

use std::{
    fmt, io,
    net::{Ipv4Addr, TcpListener},
    os::fd::{AsFd, OwnedFd},
    sync::mpsc::{Receiver, Sender},
    time::Instant,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{
    Counts, Direction,
    connection::{Connection, Rules},
    line::Rule,
};
use crate::{Port, time::now};

/// Something to be done by the thread.
pub(super) type Order = Box<dyn FnOnce(&mut Pump) + Send>;

struct Watch {
    wanted: Box<dyn Fn(&Counts) -> bool + Send>,
    reached: Sender<Counts>,
}

pub(super) struct Pump {
    port: Port,
    target: u16,
    listener: Option<TcpListener>,
    connections: Vec<Connection>,
    rules: Rules,
    seen: u64,
    watches: Vec<Watch>,
    has_ended: bool,
}

impl Pump {
    pub(super) fn new(port: Port, target: u16) -> io::Result<Self> {
        let listener = Some(listen(&port)?);
        Ok(Self {
            port,
            target,
            listener,
            connections: Vec::new(),
            rules: Rules::default(),
            seen: 0,
            watches: Vec::new(),
            has_ended: false,
        })
    }

    pub(super) fn run(&mut self, orders: &Receiver<Order>, bell: &OwnedFd) {
        while !self.has_ended {
            if self.wait(bell).is_err() {
                return;
            }
            silence(bell);
            orders.try_iter().for_each(|order| order(self));
            self.welcome();
            self.move_all();
            self.tell_watches();
        }
    }

    /// Sleeps until there is something to do.
    fn wait(&self, bell: &OwnedFd) -> io::Result<()> {
        let now = now();
        let mut wanted = vec![PollFd::new(bell, PollFlags::IN)];
        wanted.extend(self.listener.as_ref().map(|it| PollFd::new(it, PollFlags::IN)));
        wanted.extend(self.connections.iter().flat_map(|it| it.interests(&self.rules, now)));
        let due = self.connections.iter().filter_map(|it| it.due(&self.rules));
        // What is due already waits for its socket.
        let next = due.filter(|due| *due > now).min();
        match poll(&mut wanted, timeout(next, now)?.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn welcome(&mut self) {
        while let Some(Ok((client, _))) = self.listener.as_ref().map(TcpListener::accept) {
            self.seen += 1;
            // A client for which there is no connection to the server is hung up on.
            self.connections.extend(Connection::open(client, self.target));
        }
    }

    fn move_all(&mut self) {
        let now = now();
        self.connections.retain_mut(|connection| connection.move_on(&mut self.rules, now));
    }

    fn tell_watches(&mut self) {
        let counts = self.counts();
        // Whether anyone still waits is no concern of ours.
        self.watches.retain(|watch| {
            !(watch.wanted)(&counts) || {
                let _ = watch.reached.send(counts);
                false
            }
        });
    }

    pub(super) fn counts(&self) -> Counts {
        Counts {
            connections_seen: self.seen,
            connections_open: u64::try_from(self.connections.len()).unwrap_or(u64::MAX),
            to_server: self.rules.to_server.bytes,
            to_client: self.rules.to_client.bytes,
        }
    }

    pub(super) fn watch(
        &mut self,
        wanted: impl Fn(&Counts) -> bool + Send + 'static,
        reached: Sender<Counts>,
    ) {
        self.watches.push(Watch { wanted: Box::new(wanted), reached });
    }

    pub(super) fn rule(&mut self, direction: Direction) -> &mut Rule {
        match direction {
            Direction::ToServer => &mut self.rules.to_server,
            Direction::ToClient => &mut self.rules.to_client,
        }
    }

    pub(super) fn cut(&mut self) {
        self.connections.drain(..).for_each(|connection| connection.cut());
    }

    pub(super) fn reset(&mut self) {
        self.connections.drain(..).for_each(|connection| connection.reset());
    }

    pub(super) fn refuse(&mut self) {
        self.listener = None;
    }

    pub(super) fn accept(&mut self) -> io::Result<()> {
        if self.listener.is_none() {
            self.listener = Some(listen(&self.port)?);
        }
        Ok(())
    }

    pub(super) fn lead_to(&mut self, target: u16) {
        self.target = target;
    }

    pub(super) fn heal(&mut self) -> io::Result<()> {
        for direction in [Direction::ToServer, Direction::ToClient] {
            let rule = self.rule(direction);
            *rule = Rule { bytes: rule.bytes, ..Rule::default() };
        }
        self.accept()
    }

    pub(super) fn end(&mut self) {
        self.has_ended = true;
    }
}

impl fmt::Debug for Pump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pump").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

fn listen(port: &Port) -> io::Result<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.number()))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn timeout(next: Option<Instant>, now: Instant) -> io::Result<Option<Timespec>> {
    let left = next.map(|next| next.saturating_duration_since(now));
    left.map(|left| Timespec::try_from(left).map_err(io::Error::other)).transpose()
}

fn silence(bell: &OwnedFd) {
    // That it did not ring is no error.
    let _ = rustix::io::read(bell.as_fd(), &mut [0u8; 8]);
}
