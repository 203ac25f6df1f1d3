//! What the files of a server stand on.

use std::path::{Path, PathBuf};

/// A filesystem in memory, on every Linux; in containers it is often small.
const MEMORY: &str = "/dev/shm";

/// Room for some servers of several tests at once.
const MEMORY_BYTES_MIN: u64 = 1 << 30;

/// The kernel takes at most 107 bytes for the name of a unix socket; the rest is for what comes below the usual place.
const PLACE_BYTES_MAX: usize = 45;

/// Where temporary folders go if the usual place has too long a name.
const SHORT: &str = "/tmp";

/// What the files of a server stand on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Medium {
    /// Where temporary folders are.
    #[default]
    Disk,
    /// Memory, if it has room. A cluster is a thousand small files: they cost a filesystem much to make and remove.
    Memory,
}

impl Medium {
    /// Where its folders go.
    pub(super) fn place(self) -> PathBuf {
        let usual = std::env::temp_dir();
        if self == Self::Memory && room_bytes(Path::new(MEMORY)) >= MEMORY_BYTES_MIN {
            PathBuf::from(MEMORY)
        } else if usual.as_os_str().len() <= PLACE_BYTES_MAX {
            usual
        } else {
            PathBuf::from(SHORT)
        }
    }
}

/// None where it cannot be told.
fn room_bytes(place: &Path) -> u64 {
    rustix::fs::statvfs(place).map_or(0, |it| it.f_bavail.saturating_mul(it.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_is_missing_has_no_room() {
        assert_eq!(room_bytes(Path::new("/no/such/folder")), 0);
        assert_ne!(room_bytes(Path::new("/tmp")), 0);
    }
}
