//! The lock libraries that take turns, and the program of each.

use std::{
    fmt,
    path::{Path, PathBuf},
    process::Command,
};

/// A lock library for Redis, each in a process of its own.
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
    /// No lock at all: what it costs shows that a test can see it.
    NoLock,
}

/// How a peer's program is run.
enum Program {
    /// A part of our own program, which links the library.
    Own(&'static str),
    Python(&'static str),
    Node(&'static str),
}

impl Peer {
    fn program(self) -> Program {
        match self {
            Self::Ours => Program::Own("ours"),
            Self::Raw => Program::Own("raw"),
            Self::Rslock => Program::Own("rslock"),
            Self::RedisPy => Program::Python("redis_py.py"),
            Self::NodeRedlock => Program::Node("node_redlock.mjs"),
            Self::PythonRedisLock => Program::Python("python_redis_lock.py"),
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
            Self::NoLock => "no lock",
        }
    }

    /// What its program lacks here, if anything.
    #[must_use]
    pub fn missing(self) -> Option<String> {
        let wanted = match self.program() {
            Program::Own(_) => return None,
            Program::Python(_) => python_packages().join("redis_lock"),
            Program::Node(_) => node_packages().join("redlock"),
        };
        let missing = !wanted.is_dir();
        missing.then(|| format!("{self} is not installed; `cargo xtask test` does it"))
    }

    /// Its program, without what it is to do; `own` is the program of this package.
    #[must_use]
    pub fn command(self, own: &Path) -> Command {
        match self.program() {
            Program::Own(kind) => {
                let mut command = Command::new(own);
                command.arg("redis-turns").arg(kind);
                command
            }
            Program::Python(file) => {
                let mut command = Command::new("python3");
                command.env("PYTHONPATH", python_packages()).arg("-B").arg(scripts().join(file));
                command
            }
            Program::Node(file) => {
                let mut command = Command::new("node");
                command.env("NODE_PATH", node_packages()).arg(scripts().join(file));
                command
            }
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
