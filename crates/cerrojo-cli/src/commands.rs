//! One file per command.

pub(crate) mod acquire;
pub(crate) mod break_lock;
pub(crate) mod completions;
pub(crate) mod fence;
pub(crate) mod ls;
pub(crate) mod man;
pub(crate) mod prune;
pub(crate) mod release;
pub(crate) mod renew;
pub(crate) mod run;
pub(crate) mod show;
pub(crate) mod store;
