//! A small filesystem of its own.

use std::{ffi::CString, io, path::Path};

use rustix::mount::{MountFlags, UnmountFlags};
use tempfile::TempDir;

/// A tmpfs of a given size on a temporary folder, unmounted when dropped.
#[derive(Debug)]
pub struct Disk {
    folder: TempDir,
}

impl Disk {
    /// Why there can be no disk here, if there can be none.
    #[must_use]
    pub fn unavailable() -> Option<String> {
        let why = |error| format!("a tmpfs cannot be mounted here (needs root): {error}");
        Self::new(64 * 1024).err().map(why)
    }

    /// An empty disk of `size_bytes`, rounded up to whole pages.
    ///
    /// # Errors
    ///
    /// When mounting is not allowed: see [`Disk::unavailable`].
    pub fn new(size_bytes: u64) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("testbed-disk-").tempdir()?;
        let size = CString::new(format!("size={size_bytes},mode=0755"))?;
        rustix::mount::mount(
            "tmpfs",
            folder.path(),
            "tmpfs",
            MountFlags::empty(),
            size.as_c_str(),
        )?;
        Ok(Self { folder })
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Gives it another size.
    ///
    /// # Errors
    ///
    /// When more than that is in use.
    pub fn resize(&self, size_bytes: u64) -> io::Result<()> {
        self.remount(MountFlags::empty(), &format!("size={size_bytes}"))
    }

    /// Makes it read-only.
    ///
    /// # Errors
    ///
    /// When a file on it is open for writing.
    pub fn set_read_only(&self) -> io::Result<()> {
        self.remount(MountFlags::RDONLY, "")
    }

    /// Makes it writable again.
    ///
    /// # Errors
    ///
    /// When mounting is not allowed any more.
    pub fn set_writable(&self) -> io::Result<()> {
        self.remount(MountFlags::empty(), "")
    }

    /// Fills all room that is left with a file of that name; returns how many bytes that took.
    ///
    /// # Errors
    ///
    /// When writing fails for another reason than a full disk.
    pub fn fill(&self, name: &str) -> io::Result<u64> {
        let mut file = std::fs::File::create(self.path().join(name))?;
        match io::copy(&mut io::repeat(0x5a), &mut file) {
            Err(full) if full.kind() == io::ErrorKind::StorageFull => Ok(file.metadata()?.len()),
            Err(error) => Err(error),
            Ok(written) => Ok(written),
        }
    }

    fn remount(&self, flags: MountFlags, options: &str) -> io::Result<()> {
        Ok(rustix::mount::mount_remount(self.path(), flags, options)?)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Detached, so that a file still open does not keep the folder; an error has nobody to go to.
        let _ = rustix::mount::unmount(self.path(), UnmountFlags::DETACH);
    }
}
