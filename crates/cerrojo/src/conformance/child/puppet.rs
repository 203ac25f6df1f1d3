//! The puppet's side: reads a line, does it, answers with a line.

use std::{
    future::Future,
    io::{BufRead, Write},
    path::Path,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use tokio::{runtime::Builder, sync::mpsc};

use super::{
    super::{
        Harness,
        case::{Failure, Verdict},
        cases::count_up,
        faulty::{Faults, Faulty},
        site::{FaultyLocker, GuardOf, PATIENCE, job},
    },
    BETWEEN_POLLS,
};
use crate::{BoundTo, Instant, LeaseState, Locker, Ttl, clock};

/// Opens the store and obeys until standard input ends.
pub(super) fn serve<H: Harness>(harness: &H, url: &str) -> Verdict {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let verdict = runtime.block_on(async {
        let (backend, faults) = Faulty::new(harness.open(url).await?);
        let (locker, polled_at) = (Locker::new(backend), Arc::default());
        let mut puppet = Puppet::<H> { locker, faults, guard: None, polled_at };
        puppet.obey(lines()).await
    });
    // What is held is left to the TTL, as after a crash.
    runtime.shutdown_background();
    verdict
}

/// The lines of standard input, which blocks a thread of its own.
fn lines() -> mpsc::UnboundedReceiver<String> {
    let (sender, lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let lines = std::io::stdin().lock().lines().map_while(Result::ok);
        lines.for_each(|line| drop(sender.send(line)));
    });
    lines
}

struct Puppet<H: Harness> {
    locker: FaultyLocker<H>,
    faults: Faults,
    guard: Option<Arc<GuardOf<H>>>,
    /// When the work was last polled, in nanoseconds of the clock.
    polled_at: Arc<AtomicU64>,
}

impl<H: Harness> Puppet<H> {
    async fn obey(&mut self, mut lines: mpsc::UnboundedReceiver<String>) -> Verdict {
        say("open")?;
        while let Some(line) = lines.recv().await {
            let answer = self.act(&line).await?;
            say(&answer)?;
        }
        Ok(())
    }

    async fn act(&mut self, line: &str) -> Result<String, Failure> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "acquire" => self.acquire(rest).await,
            "tell" => Ok(self.tell()),
            "work" => self.work(),
            "release" => self.release().await,
            "count" => self.count(rest).await,
            _ => Err(Failure::new(format!("unknown: {line:?}"))),
        }
    }

    async fn acquire(&mut self, rest: &str) -> Result<String, Failure> {
        let (ttl, bound) = two(rest)?;
        let bound = if bound == "nothing" { BoundTo::Nothing } else { BoundTo::ThisProcess };
        let ttl = Ttl::millis(ttl.parse()?)?;
        let acquire = self.locker.acquire(job()?).ttl(ttl).wait(PATIENCE).bound_to(bound);
        self.guard = Some(Arc::new(acquire.await?));
        Ok("acquired".to_owned())
    }

    fn tell(&self) -> String {
        let state = self.guard.as_ref().map_or(LeaseState::Released, |guard| guard.state());
        let until = self.guard.as_ref().and_then(|guard| guard.valid_until());
        let until = until.map_or(0, Instant::as_nanos);
        let token = self.faults.last_token().unwrap_or(0);
        let polled_at = self.polled_at.load(Ordering::SeqCst);
        format!("told {} {until} {token} {polled_at}", word_for(state))
    }

    fn work(&self) -> Result<String, Failure> {
        let guard = self.guard.clone().ok_or_else(|| Failure::new("nothing is held"))?;
        let work = Restless { polled_at: Arc::clone(&self.polled_at), nap: nap() };
        tokio::spawn(async move { guard.run(work).await.map(drop) });
        Ok("working".to_owned())
    }

    async fn release(&mut self) -> Result<String, Failure> {
        let guard = self.guard.take().and_then(Arc::into_inner);
        let guard =
            guard.ok_or_else(|| Failure::new("nothing is held, or it is being worked under"))?;
        Ok(match guard.release().await {
            Ok(()) => "release released".to_owned(),
            Err(error) => format!("release {}", error.kind().as_str()),
        })
    }

    async fn count(&self, rest: &str) -> Result<String, Failure> {
        let (rounds, file) = two(rest)?;
        count_up(&self.locker, Path::new(file), rounds.parse()?).await?;
        Ok("counted".to_owned())
    }
}

fn say(line: &str) -> Verdict {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}")?;
    output.flush()?;
    Ok(())
}

fn two(text: &str) -> Result<(&str, &str), Failure> {
    text.split_once(' ').ok_or_else(|| Failure::new(format!("two words were expected: {text:?}")))
}

fn word_for(state: LeaseState) -> &'static str {
    match state {
        LeaseState::Held => "held",
        LeaseState::AtRisk => "at_risk",
        LeaseState::Lost => "lost",
        LeaseState::Released => "released",
    }
}

/// Work that never ends and notes when it is polled.
struct Restless {
    polled_at: Arc<AtomicU64>,
    nap: Pin<Box<dyn Future<Output = ()> + Send>>,
}

fn nap() -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(clock::sleep(BETWEEN_POLLS))
}

impl Future for Restless {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.polled_at.store(Instant::now().as_nanos(), Ordering::SeqCst);
        if self.nap.as_mut().poll(context).is_ready() {
            self.nap = nap();
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}
