//! The lock libraries that take turns, and the program of each.

use std::{
    fmt,
    path::{Path, PathBuf},
    process::Command,
};

/// A way to lock, each in a process of its own: of Redis where it says no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Peer {
    /// Cerrojo.
    Ours,
    /// `SET NX PX` and compare-and-delete as two scripts on one connection: what a cycle costs at least. It does not wait.
    Raw,
    /// The crate rslock.
    Rslock,
    /// The lock of redis-py.
    RedisPy,
    /// The npm package redlock.
    NodeRedlock,
    /// The package python-redis-lock.
    PythonRedisLock,
    /// One row in PostgreSQL: an upsert takes it, a delete gives it back. Who waits tries again after 50 to 100 ms.
    Upsert,
    /// PostgreSQL's advisory lock of a session. It writes nothing, and its waiters stand in a queue of the server.
    SessionAdvisory,
    /// PostgreSQL's advisory lock of a transaction, which stays open until the lock is given back.
    TransactionAdvisory,
    /// One row in PostgreSQL: looked for and then inserted, in one SERIALIZABLE transaction. Waits as [`Peer::Upsert`].
    Serializable,
    /// The crate distributed-lock, in PostgreSQL.
    DistributedLock,
    /// The InterProcessMutex of Curator, in ZooKeeper.
    Curator,
    /// The lock of kazoo, in ZooKeeper.
    Kazoo,
    /// No lock at all: what it costs shows that a test can see it.
    NoLock,
}

/// Makes what those need that keep their locks in a row of PostgreSQL.
pub const LEASE_TABLE: &str = include_str!("../peers/lease.sql");

/// How a peer's program is run.
enum Program {
    /// A part of our own program, which links the library.
    Own(&'static str),
    /// A script, and the package of the library.
    Python(&'static str, &'static str),
    Node(&'static str),
    /// A class that is compiled when it is run, and the library.
    Java(&'static str, &'static str),
    /// A crate of its own, built by `cargo xtask bench`.
    Built(&'static str),
}

impl Peer {
    fn program(self) -> Program {
        match self {
            Self::Ours => Program::Own("ours"),
            Self::Raw => Program::Own("raw"),
            Self::Rslock => Program::Own("rslock"),
            Self::RedisPy => Program::Python("redis_py.py", "redis"),
            Self::NodeRedlock => Program::Node("node_redlock.mjs"),
            Self::PythonRedisLock => Program::Python("python_redis_lock.py", "redis_lock"),
            Self::Upsert => Program::Own("upsert"),
            Self::SessionAdvisory => Program::Own("session-advisory"),
            Self::TransactionAdvisory => Program::Own("transaction-advisory"),
            Self::Serializable => Program::Own("serializable"),
            Self::DistributedLock => Program::Built("distributed-lock-peer"),
            Self::Curator => Program::Java("Curator.java", "curator-recipes.jar"),
            Self::Kazoo => Program::Python("kazoo_lock.py", "kazoo"),
            Self::NoLock => Program::Own("no-lock"),
        }
    }

    /// The word for it in tables, in lists and in `?format=`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Raw => "raw scripts",
            Self::Rslock => "rslock",
            Self::RedisPy => "redis-py",
            Self::NodeRedlock => "node-redlock",
            Self::PythonRedisLock => "python-redis-lock",
            Self::Upsert => "upsert",
            Self::SessionAdvisory => "session advisory",
            Self::TransactionAdvisory => "transaction advisory",
            Self::Serializable => "serializable",
            Self::DistributedLock => "distributed-lock",
            Self::Curator => "curator",
            Self::Kazoo => "kazoo",
            Self::NoLock => "no lock",
        }
    }

    /// What its program lacks here, if anything.
    #[must_use]
    pub fn missing(self) -> Option<String> {
        let (wanted, chore) = match self.program() {
            Program::Own(_) => return None,
            Program::Python(_, package) => (python_packages().join(package), "test"),
            Program::Node(_) => (node_packages().join("redlock"), "test"),
            Program::Java(_, library) => (java_libraries().join(library), "test"),
            Program::Built(name) => (built_programs().join(name), "bench"),
        };
        let missing = !wanted.exists();
        missing.then(|| format!("{self} is not installed; `cargo xtask {chore}` does it"))
    }

    /// Its program, without what it is to do; `own` is the program of this package.
    #[must_use]
    pub fn command(self, own: &Path) -> Command {
        match self.program() {
            Program::Own(kind) => {
                let mut command = Command::new(own);
                command.arg("fleet-turns").arg(kind);
                command
            }
            Program::Python(file, _) => {
                let mut command = Command::new("python3");
                command.env("PYTHONPATH", python_packages()).arg("-B").arg(scripts().join(file));
                command
            }
            Program::Node(file) => {
                let mut command = Command::new("node");
                command.env("NODE_PATH", node_packages()).arg(scripts().join(file));
                command
            }
            Program::Java(file, library) => java(&scripts().join(file), library),
            Program::Built(name) => Command::new(built_programs().join(name)),
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn scripts() -> PathBuf {
    package().join("peers")
}

fn python_packages() -> PathBuf {
    package().join("../../target/peers/python")
}

fn node_packages() -> PathBuf {
    package().join("../../target/peers/node/node_modules")
}

/// Where Debian has them.
fn java_libraries() -> PathBuf {
    PathBuf::from("/usr/share/java")
}

fn java(file: &Path, library: &str) -> Command {
    let paths = [library, "slf4j-nop.jar"].map(|name| java_libraries().join(name));
    let [library, silence] = paths.map(|path| path.display().to_string());
    let mut command = Command::new("java");
    command.args(["-Xmx96m", "-XX:+UseSerialGC", "-XX:-UsePerfData"]);
    command.arg("-cp").arg(format!("{library}:{silence}")).arg(file);
    command
}

fn built_programs() -> PathBuf {
    package().join("../../target/peers/rust/release")
}
