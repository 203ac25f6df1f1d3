//! `cerrojo show`: who holds a lock.

use cerrojo::AnyLocker;

use crate::{
    args::ShowArgs,
    exit::{Exit, Failure},
    output::Output,
};

pub(crate) async fn run(
    args: &ShowArgs,
    store: &AnyLocker,
    output: Output,
) -> Result<Exit, Failure> {
    match store.holder(&args.name).await? {
        Some(holder) => output.holder(&holder).map(|()| Exit::Success),
        None => output.free(&args.name).map(|()| Exit::Free),
    }
}
