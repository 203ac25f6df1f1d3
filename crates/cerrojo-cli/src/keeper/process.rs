//! The keeper itself.

use std::{
    io,
    os::{fd::AsFd, unix::net::UnixStream},
    process::ExitCode,
};

use cerrojo::{AnyLocker, BoundTo, Deadline, LockName, Ttl};
use nix::unistd;
use serde_json::Value;

use super::{
    Answer, Order,
    line::Line,
    watch::{self, Watch},
};
use crate::{
    exit::{Exit, Failure},
    held::{Held, Wanted},
    store,
};

/// Runs as a keeper, to the end of the program.
pub(super) fn main() -> ExitCode {
    let outcome = leave_everything().and_then(|()| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let served = runtime.block_on(serve());
        runtime.shutdown_background();
        served
    });
    // There is nobody to tell: who reads the answer finds that none came.
    ExitCode::from(if outcome.is_ok() { Exit::Success.code() } else { Exit::System.code() })
}

/// A session of its own, which no terminal's signals reach, and none of the descriptors that whoever
/// called had open: a reader of a pipe would wait for us.
fn leave_everything() -> io::Result<()> {
    rustix::process::setsid()?;
    let names: Vec<_> =
        std::fs::read_dir("/proc/self/fd")?.flatten().map(|e| e.file_name()).collect();
    let inherited = names.iter().filter_map(|name| name.to_str()?.parse::<i32>().ok());
    for descriptor in inherited.filter(|descriptor| *descriptor > 2) {
        // The one by which the folder was read is closed already.
        let _ = unistd::close(descriptor);
    }
    Ok(())
}

async fn serve() -> io::Result<()> {
    let mut line = Line::new(UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?))?;
    let mut watch = Watch::new(io::stdout().as_fd().try_clone_to_owned()?)?;
    let Some(order) = line.receive::<Order>().await? else {
        return Ok(());
    };
    match connect(&order).await {
        Ok(store) => {
            acquire_and_keep(&order, &store, &mut line, &mut watch).await?;
            // As long as a release can still be of use.
            drop(store.close(Deadline::after(order.ttl()?.get())).await);
            Ok(())
        }
        Err(failure) => line.send(&order.refusal(failure)).await,
    }
}

async fn connect(order: &Order) -> Result<AnyLocker, Failure> {
    store::connect_for(&order.store, &order.asking, u32::try_from(order.pid).ok()).await
}

async fn acquire_and_keep(
    order: &Order,
    store: &AnyLocker,
    line: &mut Line,
    watch: &mut Watch,
) -> io::Result<()> {
    let name = order.name()?;
    // Whatever comes first: dropping the acquisition makes it leave the store's queue.
    let held = tokio::select! {
        biased;
        () = watch.ended() => Err(watch::gone(order.pid)),
        () = line.hung_up() => return Ok(()),
        held = Held::acquire(store, order.wanted(&name)?) => held.map_err(Failure::from),
    };
    match held {
        Ok(held) => hand_out_and_keep(order, held, line, watch).await,
        Err(failure) => line.send(&order.refusal(failure)).await,
    }
}

/// What nobody hears of is not kept.
async fn hand_out_and_keep(
    order: &Order,
    held: Held,
    line: &mut Line,
    watch: &mut Watch,
) -> io::Result<()> {
    let answered = line.send(&order.grant(&held)).await;
    if answered.is_ok() && matches!(line.receive::<bool>().await, Ok(Some(true))) {
        tokio::select! {
            () = watch.ended() => {}
            () = held.lost() => {}
        }
    }
    // What it answers nobody can be told any more; unknown is asked again until the store is closed.
    drop(held.release().await);
    Ok(())
}

impl Order {
    fn name(&self) -> io::Result<LockName> {
        self.name.as_str().try_into().map_err(io::Error::other)
    }

    fn ttl(&self) -> io::Result<Ttl> {
        Ttl::millis(self.ttl_ms).map_err(io::Error::other)
    }

    /// Bound to both: while the process runs without us, only the TTL passes the lock on.
    fn wanted<'a>(&'a self, name: &'a LockName) -> io::Result<Wanted<'a>> {
        let watched = u32::try_from(self.pid).map_err(io::Error::other)?;
        let processes = vec![watched, std::process::id()];
        let bound_to = BoundTo::All { processes, groups: Vec::new() };
        Ok(Wanted { name, ttl: self.ttl()?, asking: &self.asking, bound_to })
    }

    fn grant(&self, held: &Held) -> Answer {
        let mut grant = held.grant().json();
        if let Value::Object(grant) = &mut grant {
            grant.insert("kept_until_pid".to_owned(), self.pid.into());
            grant.insert("keeper_pid".to_owned(), std::process::id().into());
        }
        Answer { line: grant.to_string(), code: Exit::Success.code() }
    }

    fn refusal(&self, failure: Failure) -> Answer {
        let failure = failure.with_conflict_code(self.asking.conflict_exit_code);
        Answer { line: self.output.complaint(&failure), code: failure.exit().code() }
    }
}
