//! The scripts: each one atomic step in the server.

use std::sync::LazyLock;

use redis::Cmd;

/// A script's text and the hash by which a server that has seen it knows it.
#[derive(Debug)]
pub(super) struct Script {
    text: &'static str,
    hash: String,
}

macro_rules! script {
    ($name:ident, $file:literal) => {
        pub(super) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(concat!(include_str!("lua/line.lua"), include_str!(concat!("lua/", $file))))
        });
    };
}

script!(ACQUIRE, "acquire.lua");
script!(RENEW, "renew.lua");
script!(RELEASE, "release.lua");
script!(BREAK, "break.lua");
script!(HOLDER, "holder.lua");

impl Script {
    fn new(text: &'static str) -> Self {
        Self { text, hash: redis::Script::new(text).get_hash().to_owned() }
    }

    /// Runs what the server remembers.
    pub(super) fn by_hash(&self, call: &Call) -> Cmd {
        self.command("EVALSHA", &self.hash, call)
    }

    /// For a server that does not remember it: after SCRIPT FLUSH, a restart or a failover.
    pub(super) fn by_text(&self, call: &Call) -> Cmd {
        self.command("EVAL", self.text, call)
    }

    fn command(&self, command: &str, script: &str, call: &Call) -> Cmd {
        let mut command = redis::cmd(command);
        command.arg(script).arg(call.keys.len());
        command.arg(&call.keys).arg(&call.arguments);
        command
    }
}

/// What a script is given.
#[derive(Debug, Default)]
pub(super) struct Call {
    keys: Vec<Vec<u8>>,
    arguments: Vec<Vec<u8>>,
}

impl Call {
    pub(super) fn on(keys: impl IntoIterator<Item = Vec<u8>>) -> Self {
        Self { keys: keys.into_iter().collect(), arguments: Vec::new() }
    }

    pub(super) fn arg(mut self, argument: impl Into<Vec<u8>>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    pub(super) fn number(self, number: u64) -> Self {
        self.arg(number.to_string())
    }
}
