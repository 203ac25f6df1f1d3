//! `cerrojo acquire`: a lock that stands when the program has ended.

use std::time::Duration;

use cerrojo::{AnyLocker, BoundTo, clock};

use crate::{
    args::AcquireArgs,
    exit::{Exit, Failure},
    held::{Held, Wanted},
    keeper::{Answer, Keeper, Order},
    output::{self, Output},
    signals::Signals,
    store,
    waiting::{Waited, unless_interrupted, with_display},
};

/// How long the end of the program waits for a keeper to give back what it has.
const DISMISS_LIMIT: Duration = Duration::from_secs(5);

pub(crate) async fn run(args: AcquireArgs, store: &str, output: Output) -> Result<Exit, Failure> {
    let signals = Signals::catch()?;
    let code = args.asking.conflict_exit_code;
    let outcome = match args.pid {
        Some(pid) => keep(Order::new(args, pid, store, output), signals).await,
        None => leave(&args, store, signals, output).await,
    };
    outcome.map_err(|failure| failure.with_conflict_code(code))
}

/// Acquires, and lets the lease stand until its TTL ends.
async fn leave(
    args: &AcquireArgs,
    store: &str,
    mut signals: Signals,
    output: Output,
) -> Result<Exit, Failure> {
    // This process is gone in a moment; its parent is the script that has the lock.
    let store = store::connect_for(store, &args.asking, parent()).await?;
    let acquire = with_display(&store, &args.name, output, Held::acquire(&store, wanted(args)));
    // Dropping the acquisition makes it leave the store's queue.
    let outcome = match unless_interrupted(&mut signals, acquire).await {
        Waited::Interrupted(signal) => Ok(signal.into()),
        Waited::Ready(Ok(held)) => hand_out(held, &store, output).await,
        Waited::Ready(Err(error)) => Err(error.into()),
    };
    store::close(&store, output).await;
    outcome
}

/// Bound to nothing: whose end would end it, nobody has said.
fn wanted(args: &AcquireArgs) -> Wanted<'_> {
    let (name, ttl, asking) = (&args.name, args.ttl, &args.asking);
    Wanted { name, ttl, asking, bound_to: BoundTo::Nothing }
}

/// What nobody could read nobody can release: so it is released here.
async fn hand_out(held: Held, store: &AnyLocker, output: Output) -> Result<Exit, Failure> {
    let grant = held.detach().await?;
    let delivered = output::deliver(&grant.json().to_string());
    if delivered.is_err()
        && let Err(error) = store.release(grant.name(), grant.owner()).await
    {
        output.warning(&error);
    }
    delivered.map(|()| Exit::Success)
}

/// None: it lives in another pid namespace, or init is all that is left.
fn parent() -> Option<u32> {
    let parent = rustix::process::getppid()?;
    u32::try_from(parent.as_raw_nonzero().get()).ok()
}

/// Has a process in the background acquire the lock and keep it.
async fn keep(order: Order, mut signals: Signals) -> Result<Exit, Failure> {
    let mut keeper = Keeper::start(&order)?;
    match unless_interrupted(&mut signals, keeper.obey(&order)).await {
        Waited::Ready(answer) => conclude(answer?, keeper).await,
        Waited::Interrupted(signal) => {
            dismiss(keeper).await;
            Ok(signal.into())
        }
    }
}

/// The keeper keeps what it has only when it is told that somebody knows of it.
async fn conclude(answer: Answer, mut keeper: Keeper) -> Result<Exit, Failure> {
    if answer.code != Exit::Success.code() {
        output::complain(&answer.line);
        return Ok(Exit::Child(answer.code));
    }
    match output::deliver(&answer.line) {
        Ok(()) => keeper.confirm().await.map(|()| Exit::Success),
        Err(failure) => {
            dismiss(keeper).await;
            Err(failure)
        }
    }
}

/// Waits until the keeper has left the queue or released; if that takes long, it goes on without us.
async fn dismiss(keeper: Keeper) {
    let _ = clock::within(DISMISS_LIMIT, keeper.dismiss()).await;
}
