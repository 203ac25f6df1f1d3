//! What the set-ups of stores on servers have in common.

use std::{io, process::ExitCode, sync::Arc};

use cerrojo::{Error, ErrorKind, conformance::Severed};
use cerrojo_testbed::{Direction, Proxy};
use libtest_mimic::Trial;

/// The trials that `add` adds, which are ignored where something is missing.
pub(super) fn ignored_if(
    is_ignored: bool,
    all: &mut Vec<Trial>,
    add: impl FnOnce(&mut Vec<Trial>) -> Option<ExitCode>,
) -> Option<ExitCode> {
    let mut trials = Vec::new();
    let code = add(&mut trials);
    all.extend(trials.into_iter().map(|trial| trial.with_ignored_flag(is_ignored)));
    code
}

pub(super) fn broken(error: io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "the servers did not start").with_source(error)
}

/// A network that delivers nothing, as long as it lasts.
pub(super) fn severed(proxies: &[Arc<Proxy>]) -> Option<Severed> {
    for proxy in proxies {
        proxy.hold(Direction::ToServer).ok()?;
        proxy.hold(Direction::ToClient).ok()?;
    }
    Some(Severed::new(Heals(proxies.to_vec())))
}

struct Heals(Vec<Arc<Proxy>>);

impl Drop for Heals {
    fn drop(&mut self) {
        self.0.iter().for_each(|proxy| proxy.heal().expect("a proxy that heals"));
    }
}
