//! One client's connection and the one to the server that belongs to it.

use std::{
    io,
    net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpStream},
    os::fd::AsFd,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags},
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, connect, socket_with},
};

use super::line::{Line, Rule, Verdict};

/// The rules of both directions.
#[derive(Debug, Default)]
pub(super) struct Rules {
    pub(super) to_server: Rule,
    pub(super) to_client: Rule,
}

#[derive(Debug)]
pub(super) struct Connection {
    client: TcpStream,
    server: TcpStream,
    to_server: Line,
    to_client: Line,
}

impl Connection {
    /// Takes a client and begins to connect to the server.
    pub(super) fn open(client: TcpStream, port: u16) -> io::Result<Self> {
        client.set_nonblocking(true)?;
        client.set_nodelay(true)?;
        let server = start_connecting(port)?;
        server.set_nodelay(true)?;
        Ok(Self { client, server, to_server: Line::default(), to_client: Line::default() })
    }

    /// What is to be waited for. An end of which nothing is wanted is left out: it would report its hang-up again and
    /// again.
    pub(super) fn interests(&self, rules: &Rules, now: Instant) -> Vec<PollFd<'_>> {
        let client = interest(&self.to_server, &self.to_client, &rules.to_client, now);
        let server = interest(&self.to_client, &self.to_server, &rules.to_server, now);
        let ends = [(&self.client, client), (&self.server, server)];
        let wanted = ends.into_iter().filter(|(_, flags)| !flags.is_empty());
        wanted.map(|(end, flags)| PollFd::from_borrowed_fd(end.as_fd(), flags)).collect()
    }

    /// The next instant at which something is to be passed on.
    pub(super) fn due(&self, rules: &Rules) -> Option<Instant> {
        let dues = [self.to_server.due(&rules.to_server), self.to_client.due(&rules.to_client)];
        dues.into_iter().flatten().min()
    }

    /// Moves what can be moved; whether the connection lives on.
    pub(super) fn move_on(&mut self, rules: &mut Rules, now: Instant) -> bool {
        if self.to_server.wants_to_read() {
            self.to_server.read(&self.client, &mut rules.to_server, now);
        }
        if self.to_client.wants_to_read() {
            self.to_client.read(&self.server, &mut rules.to_client, now);
        }
        let verdicts = [
            self.to_server.write(&self.server, &mut rules.to_server, now),
            self.to_client.write(&self.client, &mut rules.to_client, now),
        ];
        if verdicts.contains(&Verdict::Reset) {
            self.reset();
            return false;
        }
        if verdicts.contains(&Verdict::Cut) {
            self.cut();
            return false;
        }
        !(self.to_server.is_closed() && self.to_client.is_closed())
    }

    /// Ends it in order.
    pub(super) fn cut(&self) {
        for end in [&self.client, &self.server] {
            // One that is gone already is no error.
            drop(end.shutdown(Shutdown::Both));
        }
    }

    /// Has it end with RST when it is closed.
    pub(super) fn reset(&self) {
        for end in [&self.client, &self.server] {
            // One that is gone already is no error.
            let _ = rustix::net::sockopt::set_socket_linger(end, Some(Duration::ZERO));
        }
    }
}

/// What an end is wanted for: the line that begins there, and the one that ends there.
fn interest(from: &Line, to: &Line, to_rule: &Rule, now: Instant) -> PollFlags {
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::IN, from.wants_to_read());
    flags.set(PollFlags::OUT, to.due(to_rule).is_some_and(|due| due <= now));
    flags
}

/// Until it is connected, reading and writing say that there is nothing yet; a refusal reads as an error.
fn start_connecting(port: u16) -> io::Result<TcpStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    match connect(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(TcpStream::from(socket)),
        Err(error) => Err(error.into()),
    }
}
