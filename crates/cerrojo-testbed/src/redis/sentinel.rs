//! A master, its replica, and three sentinels who decide which of the two is the master.

use std::{io, time::Duration};

use super::{RedisBuilder, RedisServer};
use crate::time::await_that;

/// How long agreement may take.
const LIMIT: Duration = Duration::from_secs(30);

/// Sentinels do all things more often than in the field, so that a test need not wait for them.
const PERIODS_MS: [&str; 8] =
    ["info-period", "300", "publish-period", "200", "ask-period", "200", "ping-period", "100"];

/// Three sentinels over a master and a replica.
#[derive(Debug)]
pub struct Sentinels {
    servers: [RedisServer; 2],
    sentinels: [RedisServer; 3],
}

impl Sentinels {
    /// The name that the sentinels have for the master.
    pub const NAME: &str = "main";

    /// Starts all, and waits until the sentinels know each other and the replica.
    ///
    /// # Errors
    ///
    /// When one does not start, or they do not find each other in time.
    pub fn start() -> io::Result<Self> {
        Self::over(&RedisServer::builder())
    }

    /// As [`start`](Self::start), with servers like this.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn over(server: &RedisBuilder) -> io::Result<Self> {
        let servers = [server.start()?, server.start()?];
        let [master, replica] = &servers;
        replica.replica_of(master)?;
        let sentinels = [sentinel(master)?, sentinel(master)?, sentinel(master)?];
        let all = Self { servers, sentinels };
        all.sentinels.iter().try_for_each(await_complete)?;
        Ok(all)
    }

    /// The two servers; the first one is the master at first.
    #[must_use]
    pub fn servers(&self) -> &[RedisServer; 2] {
        &self.servers
    }

    /// The sentinels.
    #[must_use]
    pub fn sentinels(&self) -> &[RedisServer; 3] {
        &self.sentinels
    }

    /// The address of the master, as the first sentinel that answers says.
    ///
    /// # Errors
    ///
    /// When none answers.
    pub fn master_address(&self) -> io::Result<String> {
        let mut answers = self.sentinels.iter().map(master_of);
        let nobody = || Err(io::Error::other("no sentinel answers"));
        answers.find(Result::is_ok).unwrap_or_else(nobody)
    }

    /// Waits until all sentinels name another master than `former`, and that one is a master; its address.
    ///
    /// # Errors
    ///
    /// When they do not within 30 s, or a sentinel is down.
    pub fn await_failover(&self, former: &str) -> io::Result<String> {
        await_that("a failover", LIMIT, || {
            let named: Vec<_> = self.sentinels.iter().map(master_of).collect::<io::Result<_>>()?;
            let chosen = self.servers.iter().find(|server| server.address() != former);
            let is_done = |server: &&RedisServer| named.iter().all(|it| *it == server.address());
            let Some(server) = chosen.filter(is_done) else { return Ok(None) };
            Ok((server.info("role")? == "master").then(|| server.address()))
        })
    }
}

fn sentinel(master: &RedisServer) -> io::Result<RedisServer> {
    let name = Sentinels::NAME;
    let (user, password) = super::TESTBED;
    let sentinel = RedisServer::builder()
        .sentinel()
        .option("sentinel monitor", &format!("{name} 127.0.0.1 {} 2", master.port()))
        .option("sentinel down-after-milliseconds", &format!("{name} 500"))
        .option("sentinel failover-timeout", &format!("{name} 3000"))
        .option("sentinel auth-user", &format!("{name} {user}"))
        .option("sentinel auth-pass", &format!("{name} {password}"))
        .start()?;
    sentinel.command(&[&["SENTINEL", "DEBUG"], &PERIODS_MS[..]].concat())?;
    Ok(sentinel)
}

fn await_complete(sentinel: &RedisServer) -> io::Result<()> {
    await_that("three sentinels and a replica", LIMIT, || {
        let seen = sentinel.info("master0")?;
        Ok(seen.ends_with("slaves=1,sentinels=3").then_some(()))
    })
}

fn master_of(sentinel: &RedisServer) -> io::Result<String> {
    let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Sentinels::NAME];
    Ok(sentinel.command(&words)?.to_string().replace(' ', ":"))
}
