//! What can go wrong with a server, and what that means to a caller.

use std::{error::Error as StdError, io, path::PathBuf, sync::Arc, time::Duration};

use redis::ErrorKind as Driver;

use crate::{Error, ErrorKind, LockName};

#[derive(Debug, thiserror::Error)]
pub(in crate::backend) enum RedisError {
    #[error("{0}")]
    Config(String),
    #[error("cannot read {path}")]
    Pem {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error("cannot connect")]
    Dial(#[source] redis::RedisError),
    #[error("no connection within {0:?}")]
    DialTooSlow(Duration),
    /// Why there was no connection a moment ago.
    #[error(transparent)]
    Resting(Arc<RedisError>),
    #[error("it has left a call without an answer, and is being connected anew")]
    Silent,
    #[error("all connections that wait for replicas were busy for {0:?}")]
    Busy(Duration),
    #[error("the call failed")]
    Call(#[source] redis::RedisError),
    #[error("no answer within {0:?}")]
    NoAnswer(Duration),
    #[error("an answer that no server of locks gives: {0}")]
    Answer(String),
    #[error("{held} of {wanted} replicas have acknowledged the grant, so it was given back")]
    Replicas { held: i64, wanted: usize },
    #[error(
        "`{0}` has braces, by which a cluster would choose the slot of a lock in a foreign format"
    )]
    Braces(LockName),
    #[error("it is a replica, which takes no locks: name the master, or let Sentinel do so")]
    Replica,
    #[error(
        "it is a node of a cluster: a majority is one of servers that know nothing of each other"
    )]
    Shard,
    #[error("it is the same server as {0}: a majority is one of different servers")]
    Twin(String),
    #[error(
        "it does not say who it is, so that a restart would not be noticed: the user has to be allowed INFO"
    )]
    Anonymous,
}

impl RedisError {
    /// The error that the user sees, naming the server.
    pub(in crate::backend) fn at(self, place: &str) -> Error {
        Error::new(self.kind(), self.message(place)).with_source(self)
    }

    /// The same of the first connection: a replica there was named by mistake, one that is there later is a failover under way.
    pub(in crate::backend) fn at_first(self, place: &str) -> Error {
        Error::new(self.kind_at_first(), self.message(place)).with_source(self)
    }

    pub(in crate::backend) fn kind_at_first(&self) -> ErrorKind {
        if self.is_replica() { ErrorKind::Invalid } else { self.kind() }
    }

    /// For what is wrong before there is a server.
    pub(in crate::backend) fn plain(self) -> Error {
        Error::new(self.kind(), format!("redis: {self}{}", self.advice())).with_source(self)
    }

    pub(in crate::backend) fn message(&self, place: &str) -> String {
        format!("redis at {place}: {self}{}", self.advice())
    }

    fn is_replica(&self) -> bool {
        match self {
            Self::Replica => true,
            Self::Resting(error) => error.is_replica(),
            _ => false,
        }
    }

    /// Whether the connection is of no further use.
    pub(in crate::backend) fn ends_connection(&self) -> bool {
        match self {
            // A server that has become a replica: another one is the master now.
            Self::Call(error) => {
                error.is_io_error() || code(error) == "READONLY" || is_garbled(error)
            }
            _ => false,
        }
    }

    pub(in crate::backend) fn kind(&self) -> ErrorKind {
        match self {
            Self::Config(_)
            | Self::Pem { .. }
            | Self::Braces(_)
            | Self::Shard
            | Self::Twin(_)
            | Self::Anonymous => ErrorKind::Invalid,
            Self::Dial(error) => kind_of_dial(error),
            Self::Resting(error) => error.kind(),
            Self::Replica
            | Self::DialTooSlow(_)
            | Self::Silent
            | Self::Busy(_)
            | Self::Replicas { .. } => ErrorKind::Unavailable,
            Self::Call(error) => kind_of_call(error),
            Self::NoAnswer(_) | Self::Answer(_) => ErrorKind::Indeterminate,
        }
    }

    fn advice(&self) -> String {
        match self {
            Self::Dial(error) => {
                format!(": {}{}", described(error), advice_for_dial(error))
            }
            Self::Call(error) => format!(": {}{}", described(error), advice(error)),
            Self::Resting(error) => error.advice(),
            Self::Pem { error, .. } => format!(": {error}"),
            Self::DialTooSlow(_) => NOT_HEARD.to_owned(),
            Self::NoAnswer(_) => "; it may be stopped or slow, or the network is cut".to_owned(),
            _ => String::new(),
        }
    }
}

/// Why a server may say nothing to a greeting.
const NOT_HEARD: &str =
    "; it may be stopped or slow, the network may be cut, or only one side speaks TLS";

/// Answers of a server that has done nothing, and may do it later.
const LATER: [&str; 12] = [
    "READONLY",
    "OOM",
    "LOADING",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "MOVED",
    "ASK",
    "TRYAGAIN",
    "BUSY",
    "NOREPLICAS",
    "MISCONF",
    "NOSCRIPT",
];
/// Answers of a server that will never do it.
const NEVER: [&str; 6] = ["NOAUTH", "WRONGPASS", "NOPERM", "WRONGTYPE", "CROSSSLOT", "DENIED"];

fn kind_of_dial(error: &redis::RedisError) -> ErrorKind {
    let may_pass = error.is_io_error()
        || LATER.contains(&code(error))
        || described(error).contains("max number of clients")
        || matches!(
            error.kind(),
            Driver::MasterNameNotFoundBySentinel | Driver::ClusterConnectionNotFound
        );
    let is_odd = is_garbled(error) || is_of_tls(error);
    if may_pass && !is_odd { ErrorKind::Unavailable } else { ErrorKind::Invalid }
}

fn kind_of_call(error: &redis::RedisError) -> ErrorKind {
    match code(error) {
        code if LATER.contains(&code) => ErrorKind::Unavailable,
        code if NEVER.contains(&code) || lacks_rights(error) => ErrorKind::Invalid,
        _ if error.kind() == Driver::ClusterConnectionNotFound => ErrorKind::Unavailable,
        _ => ErrorKind::Indeterminate,
    }
}

fn code(error: &redis::RedisError) -> &str {
    error.code().unwrap_or_default()
}

/// Whether what answers does not speak the protocol.
fn is_garbled(error: &redis::RedisError) -> bool {
    error.kind() == Driver::Parse
}

/// Whether the two sides cannot come to an agreement: another authority, a certificate that is missing, no TLS at all.
fn is_of_tls(error: &redis::RedisError) -> bool {
    let cause = io_error(error).and_then(io::Error::get_ref);
    cause.is_some_and(|cause| cause.is::<rustls::Error>())
}

/// Whether somebody was there, and ended the connection.
fn was_hung_up_on(error: &redis::RedisError) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    let kind = io_error(error).map(io::Error::kind);
    matches!(kind, Some(BrokenPipe | ConnectionReset | UnexpectedEof))
}

fn io_error(error: &redis::RedisError) -> Option<&io::Error> {
    type Shared = Arc<dyn StdError + Send + Sync>;
    error.source()?.downcast_ref::<Shared>()?.downcast_ref()
}

/// A command inside of a script is denied without a code.
fn lacks_rights(error: &redis::RedisError) -> bool {
    code(error) == "NOPERM" || described(error).contains("The user executing the script can't")
}

/// In one line.
fn described(error: &redis::RedisError) -> String {
    error.to_string().lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

fn advice_for_dial(error: &redis::RedisError) -> &'static str {
    match error {
        error if error.is_timeout() => NOT_HEARD,
        error if was_hung_up_on(error) => "; it hung up: one that speaks TLS needs rediss:",
        error => advice(error),
    }
}

fn advice(error: &redis::RedisError) -> &'static str {
    match code(error) {
        "READONLY" => "; it is a replica: name the master, or let Sentinel do so",
        "OOM" => "; its memory is full: give it more, and never let it evict locks",
        "NOAUTH" | "WRONGPASS" => "; user or password is wrong",
        "WRONGTYPE" => "; the key holds something else than a lock: choose another name or prefix",
        "LOADING" => "; it is starting",
        _ if lacks_rights(error) => {
            "; docs/backends/redis.md says what the user must be allowed to do"
        }
        _ if is_garbled(error) => "; whatever it is, it is not a Redis server",
        _ if is_of_tls(error) => "; TLS is refused: `ca`, `cert` and `key` have to suit the server",
        _ if error.kind() == Driver::AuthenticationFailed => "; user or password is wrong",
        _ if error.kind() == Driver::RESP3NotSupported => "; it has to be Redis 7 or later",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(code: &str) -> redis::RedisError {
        redis::make_extension_error(code.to_owned(), Some("why".to_owned()))
    }

    #[test]
    fn what_the_server_refused_was_not_done() {
        for code in LATER {
            assert_eq!(RedisError::Call(answer(code)).kind(), ErrorKind::Unavailable, "{code}");
        }
        for code in NEVER {
            assert_eq!(RedisError::Call(answer(code)).kind(), ErrorKind::Invalid, "{code}");
        }
    }

    #[test]
    fn what_broke_off_is_unknown_unless_nothing_was_sent() {
        let cut = || redis::RedisError::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(RedisError::Call(cut()).kind(), ErrorKind::Indeterminate);
        assert!(RedisError::Call(cut()).ends_connection());
        assert_eq!(RedisError::Dial(cut()).kind(), ErrorKind::Unavailable);
        assert_eq!(RedisError::NoAnswer(Duration::ZERO).kind(), ErrorKind::Indeterminate);
        assert_eq!(RedisError::Call(answer("ERR")).kind(), ErrorKind::Indeterminate);
    }

    #[test]
    fn a_message_names_the_server_and_what_to_do() {
        let error = RedisError::Call(answer("OOM")).at("h:1");
        assert!(error.to_string().starts_with("redis at h:1: the call failed: "), "{error}");
        assert!(error.to_string().contains("never let it evict"), "{error}");
    }
}
