//! `cerrojo run NAME` without a command: holds the lock until a signal comes.

use cerrojo::{AnyLocker, BoundTo, Error, ErrorKind, LockName};

use crate::{
    args::RunArgs,
    exit::{Exit, Failure},
    held::{Held, Wanted},
    output::Output,
    signals::Signals,
    store,
    waiting::{Waited, unless_interrupted, with_display},
};

pub(super) async fn run(args: &RunArgs, store: &str, output: Output) -> Result<Exit, Failure> {
    let mut signals = Signals::catch()?;
    let connect = store::connect_to_ask(store, &args.asking);
    let store = match unless_interrupted(&mut signals, connect).await {
        Waited::Ready(store) => store?,
        Waited::Interrupted(signal) => return Ok(signal.into()),
    };
    let outcome = under_lock(args, &store, &mut signals, output).await;
    store::close(&store, output).await;
    outcome
}

async fn under_lock(
    args: &RunArgs,
    store: &AnyLocker,
    signals: &mut Signals,
    output: Output,
) -> Result<Exit, Failure> {
    let RunArgs { name, ttl, asking, .. } = args;
    let wanted = Wanted { name, ttl: *ttl, asking, bound_to: BoundTo::ThisProcess };
    let acquire = with_display(store, name, output, Held::acquire(store, wanted));
    let held = match unless_interrupted(signals, acquire).await {
        Waited::Ready(held) => held?,
        Waited::Interrupted(signal) => return Ok(signal.into()),
    };
    let told = output.held(held.grant());
    let kept = match told {
        Ok(()) => until_interrupted(name, &held, signals).await,
        Err(failure) => Err(failure),
    };
    held.release().await?;
    kept.map(|()| Exit::Success)
}

/// A signal is how its user ends it, so it is no failure.
async fn until_interrupted(
    name: &LockName,
    held: &Held,
    signals: &mut Signals,
) -> Result<(), Failure> {
    match unless_interrupted(signals, held.lost()).await {
        Waited::Interrupted(_) => Ok(()),
        Waited::Ready(()) => {
            let message = format!("the lease of `{name}` is lost: someone else may hold the lock");
            Err(Error::new(ErrorKind::Lost, message).into())
        }
    }
}
