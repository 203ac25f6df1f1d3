//! One file per command.

pub(crate) mod break_lock;
pub(crate) mod ls;
pub(crate) mod run;
pub(crate) mod show;
