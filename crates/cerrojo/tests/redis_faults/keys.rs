//! What stands in the database at any instant, and scripts that the server forgets.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use cerrojo::{LeaseState, clock, spi::Break};
use cerrojo_testbed::RedisServer;
use libtest_mimic::{Failed, Trial};

use crate::{
    child,
    site::{LONG, Locks, Outcome, Site, eventually, goes_on, millis, trial, ttl},
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("no_key_is_ever_without_an_expiry_and_all_of_them_go", expiries),
        trial("scripts_that_the_server_forgets_are_not_missed", forgotten_scripts),
    ]
}

/// The keys without an expiry, in one step of the server.
const ETERNAL: &str = "local eternal = {} \
    for _, key in ipairs(redis.call('KEYS', '*')) do \
      if redis.call('PTTL', key) == -1 then table.insert(eternal, key) end \
    end \
    return eternal";

/// Looks again and again until told to stop; how often it has looked.
struct Watcher {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<std::io::Result<u64>>,
}

impl Watcher {
    fn start(server: &RedisServer) -> std::io::Result<Self> {
        let (stop, mut client) = (Arc::new(AtomicBool::new(false)), server.client()?);
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut looks = 0;
            while !stopped.load(Ordering::Relaxed) {
                let eternal = client.command(&["EVAL", ETERNAL, "0"])?;
                if eternal != "" {
                    return Err(std::io::Error::other(format!("without an expiry: {eternal}")));
                }
                looks += 1;
            }
            Ok(looks)
        });
        Ok(Self { stop, thread })
    }

    fn finish(self) -> Result<u64, Failed> {
        self.stop.store(true, Ordering::Relaxed);
        Ok(self.thread.join().unwrap()?)
    }
}

/// Processes that acquire, wait, renew and release, of which some are killed, while connections are cut and locks broken.
async fn expiries() -> Outcome {
    let site = Site::start()?;
    let watcher = Watcher::start(&site.server)?;
    let locks = site.locks().await?;
    for round in 0..4 {
        let mut children =
            [child::churner(&site.url(""))?, child::churner(&site.url("overtake=yes"))?];
        for name in 0..6 {
            clock::sleep(millis(100)).await;
            let when = if round % 2 == 0 { Break::Now } else { Break::AtExpiry };
            drop(locks.break_lock(&format!("n{name}").parse()?, when).await);
        }
        site.proxy.cut()?;
        clock::sleep(millis(300)).await;
        children.iter_mut().try_for_each(|child| child.kill().map(drop))?;
    }
    // The longest expiry is that of a waiter's place, 30 s.
    let end = clock::within(LONG + millis(5_000), async {
        while site.server.command(&["DBSIZE"])? != "0" {
            clock::sleep(millis(100)).await;
        }
        Ok::<_, Failed>(())
    });
    end.await.map_err(|_| format!("left: {:?}", site.server.command(&["KEYS", "*"])))??;
    let looks = watcher.finish()?;
    assert!(looks > 500, "looked {looks} times only");
    Ok(())
}

async fn forgotten_scripts() -> Outcome {
    let site = Site::start()?;
    let locks = site.locks().await?;
    let held = locks.acquire("held").ttl(ttl(3_000)).await?;
    let mut flusher = site.server.client()?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let thread = std::thread::spawn(move || {
        let mut flushes = 0;
        while !stopped.load(Ordering::Relaxed) {
            flusher.command(&["SCRIPT", "FLUSH"])?;
            flushes += 1;
        }
        Ok::<u64, std::io::Error>(flushes)
    });
    let tasks = (0..8).map(|task| tokio::spawn(cycle(locks.clone(), format!("n{}", task % 4))));
    for task in tasks.collect::<Vec<_>>() {
        task.await??;
    }
    goes_on(&held).await?;
    assert_eq!(held.state(), LeaseState::Held);
    stop.store(true, Ordering::Relaxed);
    assert!(thread.join().unwrap()? > 100);
    held.release().await?;
    eventually("an empty database", || Ok(site.server.command(&["DBSIZE"])? == "0")).await
}

/// Nothing here may fail.
async fn cycle(locks: Locks, name: String) -> cerrojo::Result<()> {
    for _ in 0..50 {
        let guard = locks.acquire(name.as_str()).wait(LONG).await?;
        locks.holder(guard.name()).await?;
        guard.release().await?;
    }
    Ok(())
}
