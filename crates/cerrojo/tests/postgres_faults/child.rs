//! Other processes: this very program, started again as `--child talk URL`. They talk by lines.

use std::{collections::HashMap, process::ExitCode};

use cerrojo::{FencedGuard, Result, Ttl};

use crate::site::{Locks, child_main, connect, millis, runtime, say, talk};

/// Plays a child's part, if this process is one.
pub(crate) fn main() -> Option<ExitCode> {
    child_main(play)
}

fn play(_: &str, url: &str, _: &[&str]) -> Result<()> {
    let runtime = runtime();
    let locks = runtime.block_on(connect(url))?;
    say("open");
    let mut held = HashMap::new();
    talk(&runtime, async |words| obey(&locks, &mut held, words).await);
    Ok(())
}

async fn obey(
    locks: &Locks,
    held: &mut HashMap<String, FencedGuard>,
    words: &[&str],
) -> Result<String> {
    match *words {
        ["acquire", name, ttl_ms, wait_ms] => {
            let wait = millis(wait_ms.parse().unwrap());
            let ttl = Ttl::millis(ttl_ms.parse().unwrap())?;
            let guard = locks.acquire(name).ttl(ttl).wait(wait).await?;
            let token = guard.token().get();
            held.insert(name.to_owned(), guard);
            Ok(token.to_string())
        }
        ["release", name] => {
            held.remove(name).unwrap().release().await?;
            Ok("released".to_owned())
        }
        ["state", name] => Ok(format!("{:?} {}", held[name].state(), held[name].renewals())),
        ["wall"] => Ok(wall_seconds().to_string()),
        _ => panic!("no command {words:?}"),
    }
}

#[allow(clippy::disallowed_methods, reason = "shows what the wall clock of this process says")]
fn wall_seconds() -> u64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs()
}
