//! A waiter in a process of its own: this very program, started again, that does what it is told line by line.
#![allow(clippy::print_stdout, reason = "a child talks by lines")]

use std::{
    collections::HashMap,
    io::{self, Write},
    process::ExitCode,
    time::Duration,
};

use cerrojo::{ApproximateGuard, Error, Instant, Locker, Result, Ttl, backend::redis::Redis};
use cerrojo_testbed::Process;

use crate::site::{LONG, NAME, Outcome, open, runtime};

/// The first argument of a child; no test runner knows it.
const CHILD: &str = "--child";

/// The work of a child, if this process is one.
pub(crate) fn main() -> Option<ExitCode> {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.as_slice() {
        [_, child, url] if child == CHILD => Some(talk(url)),
        _ => None,
    }
}

/// What a child says of a grant.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) at: Instant,
    pub(crate) remaining: Duration,
}

/// A child that has opened the store.
pub(crate) struct Child(pub(crate) Process);

impl Child {
    pub(crate) fn open(url: &str) -> Outcome<Self> {
        let child = Process::again([CHILD, url])?;
        match child.line(LONG)?.as_str() {
            "open" => Ok(Self(child)),
            other => Err(other.into()),
        }
    }

    /// Has it wait for the lock; what becomes of that is its next line.
    pub(crate) fn wait_for_lock(&mut self, ttl_ms: u64) -> Outcome {
        Ok(self.0.say(&format!("acquire {NAME} {ttl_ms}"))?)
    }

    pub(crate) fn granted(&self) -> Outcome<Granted> {
        let line = self.0.line(LONG)?;
        let parts: Vec<&str> = line.split(' ').collect();
        let ["granted", at, remaining] = parts[..] else { return Err(line.into()) };
        let remaining = Duration::from_nanos(remaining.parse()?);
        Ok(Granted { at: Instant::from_nanos(at.parse()?), remaining })
    }

    pub(crate) fn release(&mut self) -> Outcome {
        match self.0.ask(&format!("release {NAME}"), LONG)?.as_str() {
            "released" => Ok(()),
            other => Err(other.into()),
        }
    }
}

fn talk(url: &str) -> ExitCode {
    let runtime = runtime();
    let mut held = HashMap::new();
    let locks = match runtime.block_on(open(url)) {
        Ok(locks) => locks,
        Err(error) => return fail(&error),
    };
    say("open");
    for line in io::stdin().lines().map_while(io::Result::ok) {
        let answer = runtime.block_on(obey(&locks, &mut held, &line));
        say(&answer.unwrap_or_else(|error| complaint(&error)));
    }
    ExitCode::SUCCESS
}

async fn obey(
    locks: &Locker<Redis>,
    held: &mut HashMap<String, ApproximateGuard>,
    line: &str,
) -> Result<String> {
    let parts: Vec<&str> = line.split(' ').collect();
    match parts[..] {
        ["acquire", name, ttl_ms] => {
            let ttl = Ttl::millis(ttl_ms.parse().unwrap())?;
            let guard = locks.acquire(name).ttl(ttl).wait(LONG * 2).await?;
            let (at, remaining) = (Instant::now(), guard.remaining());
            held.insert(name.to_owned(), guard);
            Ok(format!("granted {} {}", at.as_nanos(), remaining.as_nanos()))
        }
        ["release", name] => {
            let guard = held.remove(name).unwrap();
            guard.release().await.map(|()| "released".to_owned())
        }
        _ => panic!("no command {line:?}"),
    }
}

/// One line, in one write.
fn say(line: &str) {
    io::stdout().write_all(format!("{line}\n").as_bytes()).unwrap();
}

fn complaint(error: &Error) -> String {
    format!("error {} {}", error.kind().as_str(), error.to_string().replace('\n', " "))
}

fn fail(error: &Error) -> ExitCode {
    say(&complaint(error));
    ExitCode::FAILURE
}
