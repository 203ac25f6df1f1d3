//! Files that are replaced whole: after a crash at any point there is the old one or the new one.

use std::{
    ffi::OsString,
    fs::{self, File, Metadata, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use super::FileError;

/// What the name of an unfinished file ends with.
const DRAFT: &str = ".cerrojo-draft";

/// The path with `suffix` at the end of its file name.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// What is known of the regular file at `path`; nothing if there is none.
///
/// A symbolic link is refused: a file that has two names would have two fences, and to rename onto a link would
/// leave the file behind it as it was.
pub(super) fn regular(path: &Path) -> Result<Option<Metadata>, FileError> {
    let metadata = match fs::symlink_metadata(path) {
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => return Ok(None),
        looked => looked.map_err(FileError::io("look at", path))?,
    };
    let what = match metadata.file_type() {
        kind if kind.is_file() => return Ok(Some(metadata)),
        kind if kind.is_symlink() => "a symbolic link",
        kind if kind.is_dir() => "a folder",
        _ => "a device, pipe or socket",
    };
    Err(FileError::NotAFile { path: path.to_owned(), what })
}

/// All that the file holds; nothing if there is none.
pub(super) fn contents(path: &Path) -> Result<Option<Vec<u8>>, FileError> {
    let read = |_| fs::read(path).map_err(FileError::io("read", path));
    regular(path)?.map(read).transpose()
}

/// Puts a file with these bytes in the place of the one at `path`, with its mode and owner, durably.
///
/// Only for who has the fence's turn: the draft has always the same name, so what a crash has left of it is in the way
/// of nobody.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let old = regular(path)?;
    let draft = beside(path, DRAFT);
    let written = write_draft(&draft, old.as_ref(), bytes)
        .and_then(|()| fs::rename(&draft, path).map_err(FileError::io("replace", path)));
    if written.is_err() {
        // Whatever was in the way is in the way here too; the next writer tries again.
        drop(remove(&draft));
    }
    written?;
    sync_folder(path)
}

fn write_draft(draft: &Path, old: Option<&Metadata>, bytes: &[u8]) -> Result<(), FileError> {
    remove(draft)?;
    let mut file = make_draft(draft, old).map_err(FileError::io("make", draft))?;
    file.write_all(bytes).map_err(FileError::io("write", draft))?;
    if let Some(old) = old {
        take_after(&file, old).map_err(FileError::io("give the old owner and mode to", draft))?;
    }
    file.sync_all().map_err(FileError::io("sync", draft))
}

fn remove(draft: &Path) -> Result<(), FileError> {
    match fs::remove_file(draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(FileError::io("remove", draft)(error))
        }
        _ => Ok(()),
    }
}

/// Makes the names in the folder of `path` durable.
#[cfg(unix)]
pub(super) fn sync_folder(path: &Path) -> Result<(), FileError> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(FileError::io("sync", folder))
}

/// Elsewhere a folder cannot be synced.
#[cfg(not(unix))]
pub(super) fn sync_folder(_: &Path) -> Result<(), FileError> {
    Ok(())
}

/// What replaces a file that others may not read is at no time readable to them.
#[cfg(unix)]
fn make_draft(draft: &Path, old: Option<&Metadata>) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let mode = old.map_or(0o666, |_| 0o600);
    OpenOptions::new().write(true).create_new(true).mode(mode).open(draft)
}

#[cfg(not(unix))]
fn make_draft(draft: &Path, _: Option<&Metadata>) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(draft)
}

/// The owner first: to change it takes special bits of the mode away.
#[cfg(unix)]
fn take_after(file: &File, old: &Metadata) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, fchown};
    let new = file.metadata()?;
    if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
        fchown(file, Some(old.uid()), Some(old.gid()))?;
    }
    file.set_permissions(old.permissions())
}

#[cfg(not(unix))]
fn take_after(file: &File, old: &Metadata) -> io::Result<()> {
    file.set_permissions(old.permissions())
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_replaced_file_keeps_its_mode_and_a_crashed_writers_draft_is_in_nobodys_way() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        for mode in [0o600, 0o644, 0o640, 0o755] {
            fs::write(&path, "old").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            fs::write(beside(&path, DRAFT), "half of what was to").unwrap();
            replace(&path, b"new").unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, mode);
            assert_eq!(fs::read(&path).unwrap(), b"new");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_no_regular_file_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("target"), folder.path().join("link"));
        symlink(&target, &link).unwrap();
        for path in [link.as_path(), folder.path(), Path::new("/dev/null")] {
            assert!(matches!(replace(path, b"new"), Err(FileError::NotAFile { .. })), "{path:?}");
            assert!(matches!(contents(path), Err(FileError::NotAFile { .. })), "{path:?}");
        }
        assert!(link.is_symlink() && !target.exists());
    }

    #[test]
    fn a_draft_that_is_a_link_is_not_written_through() {
        let folder = tempfile::tempdir().unwrap();
        let (path, target) = (folder.path().join("data"), folder.path().join("target"));
        fs::write(&target, "precious").unwrap();
        symlink(&target, beside(&path, DRAFT)).unwrap();
        replace(&path, b"new").unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"precious");
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }
}
