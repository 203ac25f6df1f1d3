//! The embedded store needs Linux (boot ids, pidfds, `CLOCK_BOOTTIME`). Elsewhere opening it says so.

use crate::{Error, ErrorKind, Result, backend::memory::Memory};

/// Stands in for the embedded store where there is none.
#[derive(Debug)]
pub enum Local {}

impl Local {
    /// Answers that there is no embedded store here.
    ///
    /// # Errors
    ///
    /// Always [`ErrorKind::Invalid`].
    pub(crate) async fn connect_url(_path: &str) -> Result<Memory> {
        Err(Error::new(
            ErrorKind::Invalid,
            "local: works on Linux only; use a store on a server",
        ))
    }
}
