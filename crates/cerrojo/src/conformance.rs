//! The public suite that every backend passes: one trial for each backend and case.
//!
//! A backend brings a [`Harness`]: how to make an empty store, how to reach it again as another process would,
//! and what it [can do](Capability). A case is left out only for want of a named capability, and
//! [`left_out`] says which. No case knows any backend.
//!
//! The suite starts processes: the test program again, with other arguments. So the program is one
//! with `harness = false` whose `main` begins with [`child_main`] for each of its harnesses:
//!
//! ```no_run
//! # use cerrojo::conformance::{Harness, child_main, left_out, trials};
//! # fn suite<H: Harness>(mine: H) -> std::process::ExitCode {
//! if let Some(code) = child_main(&mine) {
//!     return code;
//! }
//! eprint!("{}", left_out(&mine));
//! libtest_mimic::run(&libtest_mimic::Arguments::from_args(), trials(&mine)).exit_code()
//! # }
//! ```
//!
//! Most cases wait for TTLs to end and use little of the processor: let more of them run at once than there are
//! cores. Cases assert safety and order, and liveness with limits that are generous for a busy machine.

mod capability;
mod case;
mod cases;
mod child;
mod faulty;
mod site;
mod twin;

use std::{any::Any, fmt, future::Future};

pub use capability::{Capabilities, Capability};
pub use case::{left_out, trials};
pub use child::child_main;
pub use faulty::{Call, Fault, Faults, Faulty, FaultyLease, Grant};
pub use twin::ErasedTwin;

use crate::{Result, spi::Backend};

/// One set-up of one backend: how to make stores for the suite.
pub trait Harness: Clone + Send + Sync + 'static {
    /// What is tested.
    type Backend: Backend;
    /// One store.
    type Instance: Instance<Backend = Self::Backend>;

    /// The set-up's name, the first half of its trials' names: `memory`, `local`.
    fn name(&self) -> String;

    /// What the backend can do; the cases that need more are left out.
    fn capabilities(&self) -> Capabilities;

    /// A store that is empty and that nobody else uses. It is removed when the instance is dropped.
    ///
    /// # Errors
    ///
    /// When the store cannot be made: the trial fails.
    ///
    /// # Cancel safety
    ///
    /// Is not dropped before it ends.
    fn fresh(&self) -> impl Future<Output = Result<Self::Instance>> + Send;

    /// Opens the store that [`Instance::url`] named in another process.
    ///
    /// # Errors
    ///
    /// When the store cannot be opened, or never can from another process.
    ///
    /// # Cancel safety
    ///
    /// Is not dropped before it ends.
    fn open(&self, url: &str) -> impl Future<Output = Result<Self::Backend>> + Send;
}

/// One store that the suite uses alone.
pub trait Instance: Send + Sync + 'static {
    /// What is tested.
    type Backend: Backend;

    /// Another backend value on this store, sharing nothing with the others that another process would not.
    ///
    /// # Errors
    ///
    /// When the store cannot be reached: the trial fails.
    ///
    /// # Cancel safety
    ///
    /// Is not dropped before it ends.
    fn connect(&self) -> impl Future<Output = Result<Self::Backend>> + Send;

    /// The text by which [`Harness::open`] finds this store from another process.
    ///
    /// `None` where a store lives inside one process, which then has no [`Capability::Processes`].
    fn url(&self) -> Option<String> {
        None
    }

    /// Cuts the store off until the answer is dropped: nobody is answered meanwhile.
    ///
    /// `None` where that cannot be done, which then has no [`Capability::Sever`].
    fn sever(&self) -> Option<Severed> {
        None
    }
}

/// While it lives, the store answers nobody.
#[must_use = "the store answers again when this is dropped"]
pub struct Severed(#[expect(dead_code, reason = "kept for its drop")] Box<dyn Any + Send>);

impl Severed {
    /// `healed_by_drop` heals the store when it is dropped.
    pub fn new(healed_by_drop: impl Send + 'static) -> Self {
        Self(Box::new(healed_by_drop))
    }
}

impl fmt::Debug for Severed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Severed")
    }
}
