//! The scripts: each one atomic step in the server.

use std::sync::LazyLock;

use redis::{Arg, Cmd, ToRedisArgs};

/// For how many words, and bytes in them, a call has room from the start: for all but the longest names.
const ROOM: (usize, usize) = (16, 512);

/// A script's text and the hash by which a server that has seen it knows it.
#[derive(Debug)]
pub(in crate::backend) struct Script {
    text: &'static str,
    hash: String,
}

macro_rules! script {
    ($name:ident, $($file:literal),+) => {
        pub(in crate::backend) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(concat!($(include_str!(concat!("lua/", $file, ".lua"))),+)));
    };
}

script!(ACQUIRE, "acquire_quickly", "value", "line", "acquire");
script!(RENEW, "value", "renew");
script!(RELEASE, "value", "release_quickly", "line", "release");
script!(BREAK, "value", "line", "break");
script!(HOLDER, "value", "line", "holder");

impl Script {
    pub(in crate::backend) fn new(text: &'static str) -> Self {
        Self { text, hash: redis::Script::new(text).get_hash().to_owned() }
    }

    /// A call by the hash, which a server that has seen the text before knows.
    pub(in crate::backend) fn call(&self, keys: &[impl ToRedisArgs]) -> Cmd {
        let mut command = Cmd::with_capacity(ROOM.0, ROOM.1);
        command.arg("EVALSHA").arg(&self.hash).arg(keys.len()).arg(keys);
        command
    }

    /// Has the server remember it.
    pub(super) fn load(&self) -> Cmd {
        let mut command = redis::cmd("SCRIPT");
        command.arg("LOAD").arg(self.text);
        command
    }

    /// The same call for a server that does not: after SCRIPT FLUSH, a restart or a failover.
    pub(in crate::backend) fn with_text(&self, call: &Cmd) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(self.text);
        for argument in call.args_iter().skip(2) {
            if let Arg::Simple(argument) = argument {
                command.arg(argument);
            }
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_by_the_text_is_given_the_same() {
        let mut call = RENEW.call(&["a", "b"]);
        call.arg(b"owner").arg(7);
        let words = |command: &Cmd| {
            let words = command.args_iter().map(|argument| match argument {
                Arg::Simple(word) => word.to_vec(),
                _ => panic!("no word"),
            });
            words.collect::<Vec<_>>()
        };
        let (by_hash, by_text) = (words(&call), words(&RENEW.with_text(&call)));
        assert_eq!(by_text[..2], [b"EVAL".to_vec(), RENEW.text.as_bytes().to_vec()]);
        assert_eq!(by_hash[1], RENEW.hash.as_bytes());
        assert_eq!(by_hash[2..], by_text[2..]);
    }
}
