//! What is left to do when the runner is gone and the command too: the lock is given back.

use std::{
    io::{Write, stderr},
    process::ExitCode,
};

use cerrojo::{ErrorKind, OwnerId};

use super::message::Lease;
use crate::{exit::Failure, store};

/// By the owner id, since the runner's guard died with it. It is the one thing that the guardian has a runtime for.
pub(super) fn give_back(lease: &Lease) -> ExitCode {
    let name = &lease.name;
    complain(&format!("the runner of `{name}` is gone, and now its command is gone too"));
    match release(lease) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("`{name}` could not be given back, its TTL frees it: {error}"))
        }
    }
}

fn release(lease: &Lease) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::system("cannot start", error))?;
    let released = runtime.block_on(ask(lease));
    runtime.shutdown_background();
    released
}

async fn ask(lease: &Lease) -> Result<(), Failure> {
    let name = lease.name.parse().map_err(cerrojo::Error::from)?;
    let owner = OwnerId::from_bytes(lease.owner);
    match store::connect(&lease.store).await?.release(&name, owner).await {
        // It was not held any more: that is as good.
        Err(error) if error.kind() == ErrorKind::Lost => Ok(()),
        released => Ok(released?),
    }
}

/// When stderr is gone there is nowhere left to say so.
pub(super) fn complain(message: &str) -> ExitCode {
    drop(writeln!(stderr(), "cerrojo: {message}"));
    ExitCode::FAILURE
}
