//! Small C libraries that are preloaded into a child, compiled with `cc` when they are needed.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

/// A compiled shim in a temporary folder of its own.
#[derive(Debug)]
struct Shim {
    folder: TempDir,
}

impl Shim {
    fn compile(source: &str) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("testbed-shim-").tempdir()?;
        let shim = Self { folder };
        let written = shim.path("shim.c");
        fs::write(&written, source)?;
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]);
        let output = cc.arg(shim.library()).arg(&written).output()?;
        if output.status.success() {
            return Ok(shim);
        }
        Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn library(&self) -> PathBuf {
        self.path("shim.so")
    }

    /// Preloads it, beside another one that is preloaded already.
    fn preload<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let library = self.library().into_os_string();
        let earlier = command.get_envs().find(|(name, _)| *name == "LD_PRELOAD");
        let libraries = match earlier.and_then(|(_, libraries)| libraries) {
            Some(earlier) => [earlier, library.as_os_str()].join(OsStr::new(":")),
            None => library,
        };
        command.env("LD_PRELOAD", libraries)
    }
}

/// Shows what a power loss leaves of a folder.
///
/// A child that runs [under it](PowerLoss::apply) has a whole copy kept of each regular file in the folder as of
/// each fsync and fdatasync of that file; a rename lasts from the sync of its folder on. Kill the child with
/// SIGKILL, then [`restore`](PowerLoss::restore).
///
/// What is modelled, and what not, stands at the head of `shims/power_loss.c`. All processes
/// that write to the folder must run under the shim.
#[derive(Debug)]
pub struct PowerLoss {
    shim: Shim,
    target: PathBuf,
}

impl PowerLoss {
    const FILES: &str = "copies/files";
    const RENAMED: &str = "copies/renamed";
    const COPIES: [&str; 2] = [Self::FILES, Self::RENAMED];

    /// For an existing folder.
    ///
    /// # Errors
    ///
    /// When the folder is not there, or `cc` is missing or fails.
    pub fn new(folder: impl AsRef<Path>) -> io::Result<Self> {
        let target = folder.as_ref().canonicalize()?;
        let shim = Shim::compile(include_str!("../shims/power_loss.c"))?;
        fs::create_dir(shim.path("copies"))?;
        for folder in Self::COPIES {
            fs::create_dir(shim.path(folder))?;
        }
        Ok(Self { shim, target })
    }

    /// Forgets all that was ever synced: for a folder that was emptied by somebody who is not under the shim.
    ///
    /// # Errors
    ///
    /// When a copy cannot be removed.
    pub fn forget(&self) -> io::Result<()> {
        Self::COPIES.iter().try_for_each(|folder| self.forget_copies(folder))
    }

    /// Makes `command` run under the shim.
    pub fn apply<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        self.shim
            .preload(command)
            .env("DUR_DIR", &self.target)
            .env("DUR_COPY_DIR", self.shim.path("copies"))
    }

    /// The power comes back: every file is as it was last synced, and what never was is gone.
    ///
    /// Nobody may have files of the folder open.
    ///
    /// # Errors
    ///
    /// When a file cannot be put back.
    pub fn restore(&self) -> io::Result<()> {
        self.restore_except(|_| false)
    }

    /// As [`restore`](PowerLoss::restore), but the files for which `written_back` says so had reached the disk in
    /// time although nobody synced them: a power loss may leave those too. It is asked with paths relative
    /// to the folder.
    ///
    /// # Errors
    ///
    /// When a file cannot be put back.
    pub fn restore_except(&self, written_back: impl Fn(&Path) -> bool) -> io::Result<()> {
        let copies = self.shim.path(Self::FILES);
        for name in files_under(&self.target)? {
            if !written_back(&name) {
                fs::remove_file(self.target.join(name))?;
            } else {
                // What reached the disk stays there, whatever becomes of the next power loss.
                put(&self.target.join(&name), &copies.join(&name))?;
            }
        }
        for name in files_under(&copies)? {
            put(&copies.join(&name), &self.target.join(&name))?;
        }
        // A rename whose folder was not synced has never been.
        self.forget_copies(Self::RENAMED)
    }

    fn forget_copies(&self, folder: &str) -> io::Result<()> {
        let folder = self.shim.path(folder);
        fs::remove_dir_all(&folder)?;
        fs::create_dir(folder)
    }
}

fn put(from: &Path, to: &Path) -> io::Result<()> {
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::copy(from, to).map(drop)
}

/// The regular files below `top`, as paths relative to it.
fn files_under(top: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut found, mut folders) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(top.join(&folder))? {
            let entry = entry?;
            let (name, kind) = (folder.join(entry.file_name()), entry.file_type()?);
            if kind.is_dir() {
                folders.push(name);
            } else if kind.is_file() {
                found.push(name);
            }
        }
    }
    Ok(found)
}

/// A wall clock that is wrong for the processes that run under it, by an amount that may change while they run.
///
/// The clocks that count from the machine's start stay right. It reaches what reads the time through the C
/// library (the standard library, SQLite), not a program that makes the system call itself.
#[derive(Debug)]
pub struct ClockSkew {
    shim: Shim,
    skew: File,
}

impl ClockSkew {
    /// A clock that is right so far.
    ///
    /// # Errors
    ///
    /// When `cc` is missing or fails.
    pub fn new() -> io::Result<Self> {
        let shim = Shim::compile(include_str!("../shims/clock_skew.c"))?;
        let skew = File::create(shim.path("skew"))?;
        skew.write_all_at(&[0; 8], 0)?;
        Ok(Self { shim, skew })
    }

    /// The folder that whoever runs under the shim must be able to enter.
    pub(crate) fn folder(&self) -> &Path {
        self.shim.folder.path()
    }

    /// Makes `command` run under the shim.
    pub fn apply<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        self.shim.preload(command).env("SKEW_FILE", self.shim.path("skew"))
    }

    /// Sets the wall clock that many nanoseconds ahead of the right time (behind, if negative).
    ///
    /// # Errors
    ///
    /// When the amount cannot be written.
    pub fn set_nanos(&self, ahead: i64) -> io::Result<()> {
        self.skew.write_all_at(&ahead.to_ne_bytes(), 0)
    }
}
