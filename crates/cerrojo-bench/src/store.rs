//! Lockers to measure.

use std::path::Path;

use cerrojo::{AnyLocker, Erased, FencingToken, Locker, Options};
use tokio::runtime::{Builder, Runtime};

use crate::Result;

/// A locker as a program gets it that takes its store's URL from a setting.
pub(crate) type AnyFenced = Locker<Erased<FencingToken>>;

pub(crate) async fn open(url: &str) -> Result<AnyFenced> {
    match cerrojo::connect(url, Options::default()).await? {
        AnyLocker::Fenced(locks) => Ok(locks),
        _ => Err(format!("{url} is not a fenced store").into()),
    }
}

pub(crate) fn local_url(folder: &Path) -> String {
    format!("local:{}", folder.display())
}

/// A runtime on the calling thread alone.
pub(crate) fn one_thread() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// A runtime of two workers, as on a small machine.
pub(crate) fn two_workers() -> Result<Runtime> {
    Ok(Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}
