//! What the program says: for people, or as JSON with one object per line.

use std::{
    error::Error as StdError,
    io::{self, Write},
    time::Duration,
};

use cerrojo::{HolderInfo, LockName};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{exit::Failure, held::Grant};

/// How clap begins its messages.
const CLAP_PREFIX: &str = "error: ";

/// Which of the two it is.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Output {
    json: bool,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Self { json }
    }

    /// A lock that is held.
    pub(crate) fn holder(self, holder: &HolderInfo) -> Result<(), Failure> {
        self.answer(|| sentence(holder), || holder_json(holder))
    }

    /// A lock that nobody holds.
    pub(crate) fn free(self, name: &LockName) -> Result<(), Failure> {
        let free = || json!({"name": name.as_str(), "held": false});
        self.answer(|| format!("{name} is free"), free)
    }

    /// A lock that is ours, for as long as the program runs.
    pub(crate) fn held(self, grant: &Grant) -> Result<(), Failure> {
        let (name, token) = (grant.name(), grant.token());
        let json = || json!({"name": name.as_str(), "held": true, "token": token, "store_id": grant.store_id()});
        let token = token.map(|token| format!(", token {token}")).unwrap_or_default();
        self.answer(|| format!("{name} is held by us{token}"), json)
    }

    /// That a lock is waited for, on stderr.
    pub(crate) fn waiting(self, name: &LockName, holder: Option<&HolderInfo>) {
        complain(&if self.json {
            json!({"waiting": {"name": name.as_str(), "holder": holder.map(holder_json)}})
                .to_string()
        } else {
            waiting(name, holder)
        });
    }

    /// One line on stdout, of whichever kind is wanted.
    pub(crate) fn answer(
        self,
        human: impl FnOnce() -> String,
        machine: impl FnOnce() -> Value,
    ) -> Result<(), Failure> {
        let line = if self.json { machine().to_string() } else { human() };
        text(&format!("{line}\n"))
    }

    /// Why the program could not do what it was asked, on stderr.
    pub(crate) fn failure(self, failure: &Failure) {
        complain(&self.complaint(failure));
    }

    /// The same as a line.
    pub(crate) fn complaint(self, failure: &Failure) -> String {
        if self.json { failure_json(failure) } else { complaint(failure) }
    }

    /// Something that went wrong without changing what the program did, on stderr.
    pub(crate) fn warning(self, error: &cerrojo::Error) {
        let message = chain(error);
        let line = if self.json {
            json!({"warning": {"kind": error.kind().as_str(), "message": message}}).to_string()
        } else {
            format!("cerrojo: warning: {message}")
        };
        complain(&line);
    }
}

/// Writes to stdout. A reader that has gone away, as in `cerrojo ls | head -1`, has what it wanted.
pub(crate) fn text(text: &str) -> Result<(), Failure> {
    match to_stdout(text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::output(error)),
        _ => Ok(()),
    }
}

/// Writes a line to stdout that has to reach its reader.
pub(crate) fn deliver(line: &str) -> Result<(), Failure> {
    to_stdout(&format!("{line}\n")).map_err(Failure::output)
}

fn to_stdout(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// When stderr is gone there is nowhere left to say so.
pub(crate) fn complain(line: &str) {
    drop(writeln!(io::stderr(), "{}", line.trim_end()));
}

/// A usage error has its own form by clap; everything else is one line.
fn complaint(failure: &Failure) -> String {
    match failure.kind() {
        "usage" if failure.to_string().starts_with(CLAP_PREFIX) => failure.to_string(),
        _ => format!("cerrojo: {}", chain(failure)),
    }
}

/// The message and those of its causes that it does not repeat already.
fn chain(error: &dyn StdError) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        if !is_said(&message, error) {
            message += &format!(": {error}");
        }
        cause = error.source();
    }
    message
}

/// Whether a message has an error's text in it, or that of one of its causes, which the error may only dress up.
fn is_said(message: &str, error: &dyn StdError) -> bool {
    message.contains(&error.to_string())
        || error.source().is_some_and(|cause| is_said(message, cause))
}

fn failure_json(failure: &Failure) -> String {
    let mut error = Map::new();
    error.insert("kind".to_owned(), failure.kind().into());
    let message = chain(failure);
    let message = message.strip_prefix(CLAP_PREFIX).unwrap_or(&message).trim_end();
    error.insert("message".to_owned(), message.into());
    if let Some(holder) = failure.store_error().and_then(cerrojo::Error::holder) {
        error.insert("holder".to_owned(), holder_json(holder));
    }
    json!({"error": error}).to_string()
}

/// What is waited for, as a line.
pub(crate) fn waiting(name: &LockName, holder: Option<&HolderInfo>) -> String {
    let holder = holder.map(|holder| format!(", {holder}")).unwrap_or_default();
    format!("cerrojo: waiting for `{name}`{holder}")
}

fn sentence(holder: &HolderInfo) -> String {
    let mut line = format!("{} is {holder}", holder.name);
    if let Some(ends_in) = holder.ends_in {
        line += &format!(", ends in {:.1} s", ends_in.as_secs_f64());
    }
    if holder.broken {
        line += ", broken: renewed no more";
    }
    line
}

/// Tokens are strings: a JSON number is exact only up to 2^53. What the store cannot tell is null.
pub(crate) fn holder_json(holder: &HolderInfo) -> Value {
    json!({
        "name": holder.name.as_str(),
        "held": true,
        "owner": holder.owner,
        "token": holder.token.map(|token| token.to_string()),
        "host": holder.identity.host,
        "pid": holder.identity.pid,
        "label": holder.identity.label,
        "held_for_ms": holder.held_for.map(millis),
        "ends_in_ms": holder.ends_in.map(millis),
        "broken": holder.broken,
    })
}

pub(crate) fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}
