//! `cerrojo run`: a command under a lock.

use std::time::Duration;

use cerrojo::{
    AnyLocker, ApproximateGuard, BoundTo, Deadline, Erased, Error, ErrorKind, Guard, LockName,
    Locker, Result, Token,
};
use rustix::process::Signal;

use crate::{
    args::RunArgs,
    child::{self, ChildGroup, Environment},
    ending::{Ended, Watch},
    exit::{Exit, Failure},
    output::Output,
    signals::Signals,
    store,
};

/// How long the end of the program waits for what still has to be given back.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// What waiting came to.
enum Waited<T> {
    Ready(T),
    Interrupted(Signal),
}

/// A lock that is held, and what the child is told about it.
struct Held {
    guard: ApproximateGuard,
    environment: Environment,
}

pub(crate) async fn run(args: RunArgs, store: &str, output: Output) -> Result<Exit, Failure> {
    let mut signals = Signals::catch()?;
    let store = match unless_signalled(&mut signals, store::connect_to_ask(store, &args.asking)).await {
        Waited::Ready(store) => store?,
        Waited::Interrupted(signal) => return Ok(signal.into()),
    };
    let outcome = under_lock(&args, &store, &mut signals, output).await;
    if let Err(error) = store.close(Deadline::after(CLOSE_LIMIT)).await {
        output.warning(&error);
    }
    outcome.map_err(|failure| failure.with_conflict_code(args.asking.conflict_exit_code))
}

async fn under_lock(
    args: &RunArgs,
    store: &AnyLocker,
    signals: &mut Signals,
    output: Output,
) -> Result<Exit, Failure> {
    // When a signal comes first, dropping the acquisition makes it leave the store's queue.
    let held = match unless_signalled(signals, acquire(args, store)).await {
        Waited::Ready(held) => held?,
        Waited::Interrupted(signal) => return Ok(signal.into()),
    };
    let ended = run_child(args, &held, signals).await;
    // The child is gone by now, so the next holder may come.
    let released = held.guard.release().await;
    conclude(ended, released, &args.name, output)
}

async fn unless_signalled<T>(signals: &mut Signals, work: impl Future<Output = T>) -> Waited<T> {
    tokio::select! {
        biased;
        signal = signals.next() => Waited::Interrupted(signal),
        ready = work => Waited::Ready(ready),
    }
}

async fn acquire(args: &RunArgs, store: &AnyLocker) -> Result<Held> {
    match store {
        AnyLocker::Fenced(locker) => {
            let guard = ask(args, locker).await?;
            let environment = environment(args)
                .set("CERROJO_TOKEN", &guard.token())
                .set("CERROJO_STORE_ID", &guard.store_id());
            Ok(Held { guard: guard.into_approximate(), environment })
        }
        AnyLocker::Approximate(locker) => {
            // What an outer `cerrojo run` has set is not about this lock.
            let environment =
                environment(args).without("CERROJO_TOKEN").without("CERROJO_STORE_ID");
            Ok(Held { guard: ask(args, locker).await?, environment })
        }
        _ => Err(Error::new(ErrorKind::Invalid, "this kind of store is not known here")),
    }
}

/// Bound to nothing: this program's death says nothing about the child's, so only the TTL passes the lock on.
async fn ask<T: Token>(args: &RunArgs, locker: &Locker<Erased<T>>) -> Result<Guard<T>> {
    let acquire = locker.acquire(&args.name).ttl(args.ttl).wait(args.asking.waiting());
    acquire.bound_to(BoundTo::Nothing).await
}

/// The store's URL may hold a password, which is none of the child's business.
fn environment(args: &RunArgs) -> Environment {
    Environment::default().set("CERROJO_LOCK", &args.name).without("CERROJO_STORE")
}

async fn run_child(args: &RunArgs, held: &Held, signals: &mut Signals) -> Result<Ended, Failure> {
    let child = ChildGroup::spawn(&args.command, &held.environment)?;
    let watch = Watch::new(child, held.guard.signal(), args.ttl);
    watch
        .until_gone(signals)
        .await
        .map_err(|error| Failure::system("cannot wait for the command", error))
}

/// A loss is the outcome, whatever the child said; an unknown release is worth a warning.
fn conclude(
    ended: Result<Ended, Failure>,
    released: Result<()>,
    name: &LockName,
    output: Output,
) -> Result<Exit, Failure> {
    let is_loss = |error: &Error| error.kind() == ErrorKind::Lost;
    if let Err(error) = released.as_ref()
        && !is_loss(error)
    {
        output.warning(error);
    }
    match (ended?, released) {
        (Ended::ByUs, _) => Err(ended_early(name)),
        (Ended::ByItself(_), Err(error)) if is_loss(&error) => Err(lost_unnoticed(name, error)),
        (Ended::ByItself(status), _) => Ok(child::exit_of(status)),
    }
}

fn ended_early(name: &LockName) -> Failure {
    let message = format!("the lease of `{name}` could not be kept, so the command was ended");
    Error::new(ErrorKind::Lost, message).into()
}

fn lost_unnoticed(name: &LockName, error: Error) -> Failure {
    let message = format!(
        "the lease of `{name}` was lost before the command ended: someone else may have been at work beside it"
    );
    Error::new(ErrorKind::Lost, message).with_source(error).into()
}
