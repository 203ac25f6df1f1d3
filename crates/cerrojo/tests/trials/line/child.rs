//! A process of its own: this very program, started again, that does what it is told line by line.

use std::{collections::HashMap, process::ExitCode, time::Duration};

use cerrojo::{Instant, Result};
use cerrojo_testbed::Process;

use super::NAME;
use crate::site::{
    Held, LONG, Locks, Outcome, child_main, open, opened, runtime, say, talk, token_of, ttl,
};

/// The work of a child, if this process is one.
pub(crate) fn main() -> Option<ExitCode> {
    child_main(play)
}

/// What a child says of a grant.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) at: Instant,
    pub(crate) remaining: Duration,
    /// 0 where there are none.
    pub(crate) token: u64,
}

/// A child that has opened the store.
pub(crate) struct Child(pub(crate) Process);

impl Child {
    pub(crate) fn open(url: &str) -> Outcome<Self> {
        opened(&["talk", url]).map(Self)
    }

    /// Has it wait for the lock; what becomes of that is its next line.
    pub(crate) fn wait_for_lock(&mut self, ttl_ms: u64) -> Outcome {
        Ok(self.0.say(&format!("acquire {NAME} {ttl_ms}"))?)
    }

    pub(crate) fn granted(&self) -> Outcome<Granted> {
        let line = self.0.line(LONG)?;
        let parts: Vec<&str> = line.split(' ').collect();
        let ["granted", at, remaining, token] = parts[..] else { return Err(line.into()) };
        let remaining = Duration::from_nanos(remaining.parse()?);
        Ok(Granted { at: Instant::from_nanos(at.parse()?), remaining, token: token.parse()? })
    }

    pub(crate) fn release(&mut self) -> Outcome {
        self.ask(&format!("release {NAME}"), "released")
    }

    /// Has so many of its tasks wait, each for a name of its own.
    pub(crate) fn wait_for_many(&mut self, count: usize) -> Outcome {
        self.ask(&format!("wait {count}"), "waiting")
    }

    fn ask(&mut self, line: &str, done: &str) -> Outcome {
        match self.0.ask(line, LONG)? {
            answer if answer == done => Ok(()),
            other => Err(other.into()),
        }
    }
}

fn play(role: &str, url: &str, more: &[&str]) -> Result<()> {
    let ("talk", []) = (role, more) else { panic!("no role {role} {more:?}") };
    let runtime = runtime();
    let locks = runtime.block_on(open(url))?;
    let mut held = HashMap::new();
    say("open");
    talk(&runtime, async |words| obey(&locks, &mut held, words).await);
    Ok(())
}

async fn obey(locks: &Locks, held: &mut HashMap<String, Held>, words: &[&str]) -> Result<String> {
    match *words {
        ["acquire", name, ttl_ms] => {
            let ttl = ttl(ttl_ms.parse().unwrap());
            let guard = locks.acquire(name).ttl(ttl).wait(LONG * 2).await?;
            let (at, remaining) = (Instant::now(), guard.remaining());
            let token = token_of(&guard);
            held.insert(name.to_owned(), guard);
            Ok(format!("granted {} {} {token}", at.as_nanos(), remaining.as_nanos()))
        }
        ["release", name] => {
            let guard = held.remove(name).unwrap();
            guard.release().await.map(|()| "released".to_owned())
        }
        ["wait", count] => {
            for number in 0..count.parse().unwrap() {
                let locks = locks.clone();
                tokio::spawn(async move { locks.acquire(job(number).as_str()).await });
            }
            Ok("waiting".to_owned())
        }
        _ => panic!("no command {words:?}"),
    }
}

/// The name of one of many locks.
pub(crate) fn job(number: usize) -> String {
    format!("job/{number}")
}
