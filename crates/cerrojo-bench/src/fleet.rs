//! Several processes that take turns on locks of one store.
//!
//! The protocol, the same in every language: a worker prints `ready` when it is connected. A line on its standard input
//! starts its turns; they end with its standard input or after as many rounds as asked for. Then it prints all of them as one
//! line of JSON: for each turn its task and when it asked, had the lock, and was about to release it, in
//! nanoseconds of a clock that all processes of that library share. Of a try that was refused the time when it had the
//! lock is 0, and the last one is when it knew.

use std::{
    path::Path,
    sync::mpsc::{self, Receiver, TryRecvError},
    time::Duration,
};

use crate::{
    Result,
    peer::Peer,
    process::{Said, Worker},
};

/// A worker that says nothing for so long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// What each worker of a fleet does.
#[derive(Clone, Debug)]
pub struct Job {
    /// Where the locks are.
    pub servers: Servers,
    /// The lock's name.
    pub name: String,
    /// Each task has a lock of its own, `NAME/TASK`.
    pub own_names: bool,
    /// How many tasks or threads each process has.
    pub tasks: u32,
    /// How many turns each task takes at most.
    pub rounds: u32,
    /// How long a lock is held.
    pub hold_ms: u32,
    /// How long a task pauses after a turn.
    pub between_ms: u32,
    /// The locks' TTL.
    pub ttl_ms: u32,
    /// It does not wait: a turn is a try.
    pub tries: bool,
    /// What each turn reads and writes one higher, without care.
    pub counter: Option<Counter>,
    /// The preset of keys and values with which ours runs.
    pub format: Option<String>,
}

/// Who has the locks.
#[derive(Clone, Debug)]
pub enum Servers {
    /// Redis on these ports of 127.0.0.1; of several a majority has the lock.
    Redis(Vec<u16>),
    /// A database of PostgreSQL, by its URL.
    Postgres(String),
    /// ZooKeeper, as `zookeeper://HOST:PORT,HOST:PORT`.
    ZooKeeper(String),
}

/// A number in a Redis server, which may be none of those that have the lock.
#[derive(Clone, Debug)]
pub struct Counter {
    /// The server's port on 127.0.0.1.
    pub port: u16,
    /// The number's key; `KEY/order` lists who has written it.
    pub key: String,
}

/// One turn of one task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Which process of the fleet.
    pub process: usize,
    /// Which task of that process.
    pub task: u64,
    /// When it asked for the lock, in nanoseconds.
    pub asked: u64,
    /// When it had the lock; 0: it was refused.
    pub acquired: u64,
    /// Just before it called release, or when it knew that it was refused.
    pub released: u64,
}

/// Processes that are ready to take turns; killed when dropped.
#[derive(Debug)]
pub struct Fleet {
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    peer: Peer,
    worker: Worker,
    said: Receiver<Said>,
}

impl Turn {
    fn told(process: usize, [task, asked, acquired, released]: [u64; 4]) -> Self {
        Self { process, task, asked, acquired, released }
    }

    /// Whether somebody else had the lock.
    #[must_use]
    pub fn was_refused(&self) -> bool {
        self.acquired == 0
    }
}

impl Job {
    /// Turns without an end, a pause, or anything to do, with a TTL of 30 s, on the Redis servers of those ports.
    #[must_use]
    pub fn new(nodes: &[u16], name: &str) -> Self {
        Self::on(Servers::Redis(nodes.to_vec()), name)
    }

    /// The same in a database of PostgreSQL.
    #[must_use]
    pub fn in_database(url: &str, name: &str) -> Self {
        Self::on(Servers::Postgres(url.to_owned()), name)
    }

    /// The same in ZooKeeper.
    #[must_use]
    pub fn in_zookeeper(url: &str, name: &str) -> Self {
        Self::on(Servers::ZooKeeper(url.to_owned()), name)
    }

    fn on(servers: Servers, name: &str) -> Self {
        Self {
            servers,
            name: name.to_owned(),
            own_names: false,
            tasks: 1,
            rounds: u32::MAX,
            hold_ms: 0,
            between_ms: 0,
            ttl_ms: 30_000,
            tries: false,
            counter: None,
            format: None,
        }
    }

    fn words(&self, peer: Peer) -> Vec<String> {
        let mut words = vec![format!("--name={}", self.name), format!("--id={peer}")];
        words.extend(self.numbers().map(|(option, number)| format!("--{option}={number}")));
        words.push(self.servers.word());
        words.extend(self.counter.iter().flat_map(Counter::words));
        let format = self.format.as_ref().filter(|_| peer == Peer::Ours);
        words.extend(format.map(|format| format!("--format={format}")));
        words.extend(self.own_names.then(|| "--own-names".to_owned()));
        words.extend(self.tries.then(|| "--tries".to_owned()));
        words
    }

    fn numbers(&self) -> [(&'static str, u32); 5] {
        [
            ("tasks", self.tasks),
            ("rounds", self.rounds),
            ("hold", self.hold_ms),
            ("between", self.between_ms),
            ("ttl", self.ttl_ms),
        ]
    }
}

impl Servers {
    fn word(&self) -> String {
        match self {
            Self::Redis(ports) => {
                let ports: Vec<_> = ports.iter().map(u16::to_string).collect();
                format!("--nodes={}", ports.join(","))
            }
            Self::Postgres(url) | Self::ZooKeeper(url) => format!("--url={url}"),
        }
    }
}

impl Counter {
    fn words(&self) -> [String; 2] {
        [format!("--counter={}", self.key), format!("--counter-at={}", self.port)]
    }
}

impl Fleet {
    /// Starts one process for each of `peers` and waits until all are connected; `own` is the program of this package.
    ///
    /// # Errors
    ///
    /// When one is not installed, cannot be started, or is not ready in time.
    pub fn start(own: &Path, peers: &[Peer], job: &Job) -> Result<Self> {
        let start = |peer: &Peer| Member::start(own, *peer, job);
        let members = peers.iter().map(start).collect::<Result<Vec<_>>>()?;
        members.iter().try_for_each(Member::await_ready)?;
        Ok(Self { members })
    }

    /// Lets all begin.
    ///
    /// # Errors
    ///
    /// When one has ended.
    pub fn go(&mut self) -> Result<()> {
        self.members.iter_mut().try_for_each(|member| Ok(member.worker.say("go")?))
    }

    /// Whether all still take turns.
    ///
    /// # Errors
    ///
    /// When one has ended, or has done so much that it told of it.
    pub fn check(&self) -> Result<()> {
        self.members.iter().try_for_each(Member::check)
    }

    /// The ids of the processes.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        self.members.iter().map(|member| member.worker.pid()).collect()
    }

    /// Waits until all have taken as many turns as they were asked for.
    ///
    /// # Errors
    ///
    /// When one fails, or does not end in time.
    pub fn turns(self) -> Result<Vec<Turn>> {
        let turns = self.members.iter().enumerate().map(|(at, member)| member.turns(at));
        Ok(turns.collect::<Result<Vec<_>>>()?.concat())
    }

    /// Ends the turns, each after the one under way, and answers all.
    ///
    /// # Errors
    ///
    /// As [`Fleet::turns`].
    pub fn finish(mut self) -> Result<Vec<Turn>> {
        self.members.iter_mut().for_each(|member| member.worker.finish());
        self.turns()
    }
}

impl Member {
    fn start(own: &Path, peer: Peer, job: &Job) -> Result<Self> {
        peer.missing().map_or(Ok(()), Err)?;
        let (say, said) = mpsc::channel();
        let worker = Worker::spawn(peer.command(own).args(job.words(peer)), say)?;
        Ok(Self { peer, worker, said })
    }

    fn await_ready(&self) -> Result<()> {
        match self.line()?.as_str() {
            "ready" => Ok(()),
            other => Err(format!("{} said {other}", self.peer).into()),
        }
    }

    fn check(&self) -> Result<()> {
        match self.said.try_recv() {
            Err(TryRecvError::Empty) => Ok(()),
            _ => Err(format!("a process with {} has ended", self.peer).into()),
        }
    }

    fn turns(&self, process: usize) -> Result<Vec<Turn>> {
        let turns: Vec<_> = serde_json::from_str(&self.line()?)?;
        Ok(turns.into_iter().map(|told| Turn::told(process, told)).collect())
    }

    fn line(&self) -> Result<String> {
        let said = self.said.recv_timeout(PATIENCE);
        Ok(said.map_err(|why| format!("a process with {}: {why}", self.peer))?.line)
    }
}

/// How often each followed each other one in a list of who had the lock: turns of one after itself do not count.
#[must_use]
pub fn hand_offs(order: &[String], from: Peer, to: Peer) -> usize {
    let pairs = order.iter().zip(order.iter().skip(1));
    pairs.filter(|(one, next)| (one.as_str(), next.as_str()) == (from.name(), to.name())).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hand_offs_are_counted_by_direction() {
        let order = ["ours", "ours", "rslock", "ours", "rslock", "rslock"].map(str::to_owned);
        assert_eq!(hand_offs(&order, Peer::Ours, Peer::Rslock), 2);
        assert_eq!(hand_offs(&order, Peer::Rslock, Peer::Ours), 1);
        assert_eq!(hand_offs(&[], Peer::Rslock, Peer::Ours), 0);
    }

    #[test]
    fn only_ours_is_told_of_a_format() {
        let job = Job { format: Some("rslock".to_owned()), ..Job::new(&[1], "n") };
        let told = |peer| job.words(peer).contains(&"--format=rslock".to_owned());
        assert!(told(Peer::Ours) && !told(Peer::Rslock));
    }

    #[test]
    fn a_worker_is_told_where_the_locks_are() {
        let told = |job: &Job, word: &str| job.words(Peer::Ours).contains(&word.to_owned());
        assert!(told(&Job::new(&[1, 2], "n"), "--nodes=1,2"));
        assert!(told(&Job::in_database("postgres://h/d", "n"), "--url=postgres://h/d"));
    }

    #[test]
    fn a_worker_that_ends_early_is_an_error() {
        let started = Fleet::start(Path::new("/bin/false"), &[Peer::Ours], &Job::new(&[1], "n"));
        assert!(started.unwrap_err().to_string().contains("ours"));
    }
}
