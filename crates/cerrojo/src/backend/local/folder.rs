//! The store's folder: made private, and refused where a lock file cannot be trusted.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use super::error::LocalError;

/// Filesystems that several machines may have mounted: a foreign boot id there would free live leases.
///
/// The numbers are the kernel's, from `linux/magic.h` and statfs(2).
const SHARED_FILESYSTEMS: &[(u64, &str)] = &[
    (0x6969, "NFS"),
    (0x517B, "SMB"),
    (0xFE53_4D42, "SMB2"),
    (0xFF53_4D42, "CIFS"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "FUSE or virtiofs"),
    (0x00C3_6400, "Ceph"),
    (0x0BD0_0BD0, "Lustre"),
    (0x0116_1970, "GFS2"),
    (0x7461_636F, "OCFS2"),
    (0x5346_414F, "AFS"),
    (0x6B41_4653, "kAFS"),
    (0x7375_7245, "Coda"),
    (0x786F_4256, "VirtualBox shared folder"),
    (0x2003_0528, "OrangeFS"),
    (0x1983_0326, "FhGFS/BeeGFS"),
];

/// The folder of one store.
#[derive(Clone, Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Makes the folder where it is not there, for this user alone, and checks what it stands on.
    pub(super) fn prepare(path: PathBuf) -> Result<Self, LocalError> {
        let made = make_private(&path)?;
        check_filesystem(&path)?;
        let folder = Self(path);
        folder.check_owner()?;
        make_private(&folder.wake())?;
        if made {
            folder.sync()?;
            folder.sync_parent()?;
        }
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn database(&self) -> PathBuf {
        self.0.join("locks.db")
    }

    pub(super) fn wake(&self) -> PathBuf {
        self.0.join("wake")
    }

    /// The file by whose lock writers take turns.
    pub(super) fn open_turn(&self) -> Result<File, LocalError> {
        let path = self.0.join("turn");
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
        file.map_err(|error| LocalError::Io { what: "open", path, error })
    }

    /// Makes the database file as an empty one of mode 0600, if there is none. True: made.
    ///
    /// Only a file that did not exist is opened here: closing a second descriptor of a database that SQLite has
    /// open in this process would drop SQLite's locks.
    pub(super) fn make_database(&self) -> Result<bool, LocalError> {
        let path = self.database();
        match OpenOptions::new().create_new(true).write(true).mode(0o600).open(&path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(LocalError::Io { what: "make", path, error }),
        }
    }

    /// Takes away a database that could not be made whole.
    pub(super) fn remove_database(&self) {
        for suffix in ["", "-wal", "-shm"] {
            let mut path = self.database().into_os_string();
            path.push(suffix);
            if let Err(error) = fs::remove_file(&path)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(?path, %error, "a database that could not be made stays behind");
            }
        }
    }

    /// The size of the write-ahead log, 0 if there is none.
    pub(super) fn log_bytes(&self) -> u64 {
        fs::metadata(self.0.join("locks.db-wal")).map_or(0, |metadata| metadata.len())
    }

    /// Which file stands at the database's path now.
    pub(super) fn database_identity(&self) -> Result<(u64, u64), LocalError> {
        let path = self.database();
        match fs::metadata(&path) {
            Ok(metadata) => Ok((metadata.dev(), metadata.ino())),
            Err(error) => Err(LocalError::Io { what: "look at", path, error }),
        }
    }

    /// Makes the names in the folder durable.
    pub(super) fn sync(&self) -> Result<(), LocalError> {
        sync(&self.0)
    }

    fn sync_parent(&self) -> Result<(), LocalError> {
        let absolute = std::path::absolute(&self.0).map_err(|error| LocalError::Io {
            what: "find",
            path: self.0.clone(),
            error,
        })?;
        absolute.parent().map_or(Ok(()), sync)
    }

    fn check_owner(&self) -> Result<(), LocalError> {
        let metadata = metadata(&self.0)?;
        let (owner, user) = (metadata.uid(), rustix::process::geteuid().as_raw());
        if owner != user {
            return Err(LocalError::NotOurs { path: self.0.clone(), owner, user });
        }
        let mode = metadata.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(LocalError::NotPrivate { path: self.0.clone(), mode });
        }
        Ok(())
    }
}

/// Makes a folder of mode 0700, whatever the umask. True: it was not there.
fn make_private(path: &Path) -> Result<bool, LocalError> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => return Ok(false),
        Ok(_) => return Err(LocalError::NotAFolder(path.to_owned())),
        // Making it says what is wrong, if anything is.
        Err(_) => {}
    }
    let failed = |error| LocalError::Io { what: "make the folder", path: path.to_owned(), error };
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
    fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(failed)?;
    Ok(true)
}

fn metadata(path: &Path) -> Result<fs::Metadata, LocalError> {
    fs::metadata(path).map_err(|error| LocalError::Io {
        what: "look at",
        path: path.to_owned(),
        error,
    })
}

fn sync(path: &Path) -> Result<(), LocalError> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(|error| LocalError::Io {
        what: "sync",
        path: path.to_owned(),
        error,
    })
}

fn check_filesystem(path: &Path) -> Result<(), LocalError> {
    let stat = rustix::fs::statfs(path).map_err(|error| LocalError::Io {
        what: "look at the filesystem of",
        path: path.to_owned(),
        error: error.into(),
    })?;
    // The kernel's number has 32 bits; its type here is signed on some machines.
    let magic = u64::try_from(stat.f_type).unwrap_or_default() & 0xFFFF_FFFF;
    match shared_filesystem(magic) {
        Some(filesystem) => Err(LocalError::Shared { path: path.to_owned(), filesystem }),
        None => Ok(()),
    }
}

fn shared_filesystem(magic: u64) -> Option<&'static str> {
    SHARED_FILESYSTEMS.iter().find(|(number, _)| *number == magic).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filesystems_of_several_machines_are_refused_by_name() {
        let cases = [
            (0x6969, "NFS"),
            (0xFF53_4D42, "CIFS"),
            (0x0102_1997, "9p"),
            (0x6573_5546, "FUSE or virtiofs"),
            (0x0BD0_0BD0, "Lustre"),
            (0x7461_636F, "OCFS2"),
        ];
        for (magic, name) in cases {
            assert_eq!(shared_filesystem(magic), Some(name));
        }
        for local in [0xEF53_u64, 0x5846_5342, 0x9123_683E, 0x0102_1994, 0x794C_7630] {
            assert_eq!(shared_filesystem(local), None);
        }
    }
}
