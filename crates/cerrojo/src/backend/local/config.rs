//! How to find and open a store.

use std::path::{Path, PathBuf};

use super::{Local, error::LocalError, machine::Machine};
use crate::{Error, ErrorKind, Result};

/// Opens a store in a folder.
#[derive(Clone, Debug)]
pub struct Builder {
    folder: PathBuf,
    boot_id: Option<String>,
    time_namespace: Option<u64>,
}

impl Builder {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, boot_id: None, time_namespace: None }
    }

    /// For tests: what a reboot would change.
    #[doc(hidden)]
    #[must_use]
    pub fn boot_id(mut self, id: impl Into<String>) -> Self {
        self.boot_id = Some(id.into());
        self
    }

    /// For tests: what another time namespace would have.
    #[doc(hidden)]
    #[must_use]
    pub fn time_namespace(mut self, namespace: u64) -> Self {
        self.time_namespace = Some(namespace);
        self
    }

    /// Opens the store, creating folder and database where they are not there yet.
    ///
    /// # Errors
    ///
    /// As [`Local::connect`].
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time; opening ends in the background.
    pub async fn connect(self) -> Result<Local> {
        let mut machine = Machine::this().map_err(|why| error(&self.folder, why))?;
        machine.boot_id = self.boot_id.unwrap_or(machine.boot_id);
        machine.time_namespace = self.time_namespace.unwrap_or(machine.time_namespace);
        Local::open(self.folder, machine).await
    }
}

/// The folder that a URL names after `local:`.
///
/// There is no default here: the place by the XDG convention depends on the environment, which the library does not
/// read. The command line does.
pub(super) fn folder_of(path: &str) -> Result<PathBuf> {
    if path.is_empty() {
        return Err(Error::new(
            ErrorKind::Invalid,
            "local: needs a folder, as in local:/var/lib/app/locks",
        ));
    }
    Ok(PathBuf::from(path))
}

fn error(folder: &Path, why: LocalError) -> Error {
    why.at(folder)
}
