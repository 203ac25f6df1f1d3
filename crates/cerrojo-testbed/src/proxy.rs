//! A TCP proxy that breaks the network on purpose.

mod connection;
mod line;
mod pump;

use std::{
    io,
    os::fd::OwnedFd,
    sync::{
        Arc,
        mpsc::{Sender, channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use rustix::event::{EventfdFlags, eventfd};

use self::pump::{Order, Pump};
use crate::Port;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server: requests.
    ToServer,
    /// From the server to the client: replies.
    ToClient,
}

/// What went one way so far, over all connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    /// Bytes that reached the proxy.
    pub arrived: u64,
    /// Bytes that it passed on.
    pub passed: u64,
}

/// What a proxy has seen so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections that clients made.
    pub connections_seen: u64,
    /// Those that are open now.
    pub connections_open: u64,
    /// Requests.
    pub to_server: Bytes,
    /// Replies.
    pub to_client: Bytes,
}

/// A TCP proxy in front of a port of 127.0.0.1, on a port of its own.
///
/// It passes all on, in order, half-closed connections included, until it is told otherwise; each fault is in force
/// when its call returns. One thread, named after the port, serves all connections, sleeps while there
/// is nothing to do, and ends when the proxy is dropped: that closes all connections.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    orders: Sender<Order>,
    bell: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts one in front of `port`, where a server need not listen yet.
    ///
    /// # Errors
    ///
    /// When there is no free port.
    pub fn start(port: u16) -> io::Result<Self> {
        let front = Port::reserve()?;
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (orders, received) = channel();
        let own = front.number();
        let mut pump = Pump::new(front, port)?;
        let ears = Arc::clone(&bell);
        let thread = std::thread::Builder::new()
            .name(format!("proxy-{own}"))
            .spawn(move || pump.run(&received, &ears))?;
        Ok(Self { port: own, orders, bell, thread: Some(thread) })
    }

    /// Its own port on 127.0.0.1, the same until it is dropped.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its own address, of the form `127.0.0.1:6379`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Bytes that arrive from now on are passed on that much later, in order; zero ends it for later ones.
    ///
    /// # Errors
    ///
    /// As all faults: when the proxy's thread has failed.
    pub fn delay(&self, direction: Direction, delay: Duration) -> io::Result<()> {
        self.tell(move |pump| pump.rule(direction).delay = delay)
    }

    /// Keeps bytes back, also the end of a stream: the connection is half open. Up to 1 MiB for each connection, then
    /// its sender has to wait.
    ///
    /// # Errors
    ///
    /// See [`Proxy::delay`].
    pub fn hold(&self, direction: Direction) -> io::Result<()> {
        self.tell(move |pump| pump.rule(direction).way = line::Way::Held)
    }

    /// Swallows bytes, also those that are being held: what comes after [`flow`](Proxy::flow) has a hole before it.
    ///
    /// # Errors
    ///
    /// See [`Proxy::delay`].
    pub fn swallow(&self, direction: Direction) -> io::Result<()> {
        self.tell(move |pump| pump.rule(direction).way = line::Way::Swallowed)
    }

    /// Ends holding and swallowing: what was kept goes first.
    ///
    /// # Errors
    ///
    /// See [`Proxy::delay`].
    pub fn flow(&self, direction: Direction) -> io::Result<()> {
        self.tell(move |pump| pump.rule(direction).way = line::Way::Open)
    }

    /// Ends the connection that passes the last of that many more bytes in this direction; with 0, the one whose
    /// byte is next, before that byte. Once: later connections live.
    ///
    /// With 0 towards the client, the server does what is asked next and the client never hears.
    ///
    /// # Errors
    ///
    /// See [`Proxy::delay`].
    pub fn cut_after(&self, direction: Direction, bytes: u64) -> io::Result<()> {
        self.tell(move |pump| pump.rule(direction).cut_after = Some(bytes))
    }

    /// Ends all connections now, in order (FIN); what is on its way is lost.
    ///
    /// # Errors
    ///
    /// See [`Proxy::delay`].
    pub fn cut(&self) -> io::Result<()> {
        self.tell(Pump::cut)
    }

    /// Ends all connections now with RST, at both ends.
    ///
    /// # Errors
    ///
    /// See [`Proxy::delay`].
    pub fn reset(&self) -> io::Result<()> {
        self.tell(Pump::reset)
    }

    /// Refuses new connections; those that are open stay.
    ///
    /// # Errors
    ///
    /// See [`Proxy::delay`].
    pub fn refuse(&self) -> io::Result<()> {
        self.tell(Pump::refuse)
    }

    /// Accepts new connections again.
    ///
    /// # Errors
    ///
    /// See [`Proxy::delay`], and when the port cannot be listened on.
    pub fn accept(&self) -> io::Result<()> {
        self.tell(Pump::accept)?
    }

    /// Leads new connections to another port from now on, as a name does after a failover; those that are open stay.
    ///
    /// # Errors
    ///
    /// See [`Proxy::delay`].
    pub fn lead_to(&self, port: u16) -> io::Result<()> {
        self.tell(move |pump| pump.lead_to(port))
    }

    /// Ends all faults; what was held flows.
    ///
    /// # Errors
    ///
    /// As [`Proxy::accept`].
    pub fn heal(&self) -> io::Result<()> {
        self.tell(Pump::heal)?
    }

    /// What it has seen so far.
    ///
    /// # Errors
    ///
    /// See [`Proxy::delay`].
    pub fn counts(&self) -> io::Result<Counts> {
        self.tell(|pump| pump.counts())
    }

    /// Waits until its counts are as wanted, and returns them: that a request has passed, that a reply has arrived and
    /// is held, that a connection was made or has gone.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::TimedOut`] when they are not within `limit`; see [`Proxy::delay`].
    pub fn await_counts(
        &self,
        limit: Duration,
        wanted: impl Fn(&Counts) -> bool + Send + 'static,
    ) -> io::Result<Counts> {
        let (reached, wait) = channel();
        self.tell(move |pump| pump.watch(wanted, reached))?;
        wait.recv_timeout(limit).map_err(|_| {
            let counts = self.counts();
            io::Error::new(io::ErrorKind::TimedOut, format!("not within {limit:?}: {counts:?}"))
        })
    }

    /// Has the thread do something, and waits until it is done.
    fn tell<T: Send + 'static>(
        &self,
        order: impl FnOnce(&mut Pump) -> T + Send + 'static,
    ) -> io::Result<T> {
        let (done, answer) = channel();
        // Whether anyone still waits for the answer is no concern of the thread's.
        let order: Order = Box::new(move |pump| drop(done.send(order(pump))));
        self.orders.send(order).map_err(|_| ended())?;
        ring(&self.bell)?;
        answer.recv().map_err(|_| ended())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // An error means that it has ended already.
        drop(self.tell(Pump::end));
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn ring(bell: &OwnedFd) -> io::Result<()> {
    Ok(rustix::io::write(bell, &1u64.to_ne_bytes()).map(drop)?)
}

fn ended() -> io::Error {
    io::Error::other("the proxy's thread has ended")
}
