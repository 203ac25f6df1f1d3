//! What this machine and this process are: boot, namespaces.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use super::error::LocalError;

/// What must be the same for two processes to compare clocks and process ids.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    /// Changes with each boot: no lease outlives it.
    pub(super) boot_id: String,
    /// `CLOCK_BOOTTIME` has an offset for each time namespace.
    pub(super) time_namespace: u64,
    /// Process ids mean something only within it.
    pub(super) pid_namespace: u64,
}

impl Machine {
    pub(super) fn this() -> Result<Self, LocalError> {
        let boot_id = read("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
        Ok(Self {
            boot_id,
            // Kernels without time namespaces have the one.
            time_namespace: inode("/proc/self/ns/time").unwrap_or(0),
            pid_namespace: inode("/proc/self/ns/pid")?,
        })
    }
}

fn read(path: &str) -> Result<String, LocalError> {
    fs::read_to_string(path).map_err(|error| LocalError::Io {
        what: "read",
        path: path.into(),
        error,
    })
}

fn inode(path: &str) -> Result<u64, LocalError> {
    let metadata = fs::metadata(Path::new(path));
    metadata.map(|metadata| metadata.ino()).map_err(|error| LocalError::Io {
        what: "look at",
        path: path.into(),
        error,
    })
}
