//! The files of a fresh cluster, made once in this process on each medium and copied for each server, and the folder in
//! which all of them are.

use std::{
    fs::{self, File},
    io::{self, Read},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::OnceLock,
};

use tempfile::TempDir;

use super::{APP, TESTBED, account, medium::Medium};

/// The cluster's own folder within.
const DATA: &str = "template";

/// A cluster that has never run, its superuser's password, and who removes its folder.
#[derive(Debug)]
pub(super) struct Template {
    folder: PathBuf,
    password: String,
    _sweeper: Child,
}

impl Template {
    /// The one of this process there. It is made by whoever asks first; all others wait.
    pub(super) fn on(medium: Medium) -> io::Result<&'static Self> {
        static DISK: OnceLock<Result<Template, String>> = OnceLock::new();
        static MEMORY: OnceLock<Result<Template, String>> = OnceLock::new();
        let place = match medium {
            Medium::Disk => &DISK,
            Medium::Memory => &MEMORY,
        };
        let made = place.get_or_init(|| Self::make(medium).map_err(|error| error.to_string()));
        made.as_ref().map_err(|error| io::Error::other(error.clone()))
    }

    /// A folder for one more server.
    pub(super) fn server_folder(&self) -> io::Result<TempDir> {
        account::folder(&self.folder, "server-")
    }

    /// Copies it to `data`, which must not be there yet; the password of `postgres`.
    pub(super) fn copy(&self, data: &Path) -> io::Result<&str> {
        run(Command::new("cp").arg("-a").arg(self.folder.join(DATA)).arg(data))?;
        Ok(&self.password)
    }

    fn make(medium: Medium) -> io::Result<Self> {
        let folder = account::folder(&medium.place(), "testbed-postgres-")?;
        let (_sweeper, password) = (sweeper(folder.path())?, password()?);
        initialize(folder.path(), &password)?;
        populate(folder.path())?;
        // From here on the sweeper's.
        Ok(Self { folder: folder.keep(), password, _sweeper })
    }
}

/// Removes the folder when this process has ended, however it ends: what is static is never dropped. A server whose
/// folder is gone ends by itself within a minute.
fn sweeper(folder: &Path) -> io::Result<Child> {
    let mut sweeper = Command::new("sh");
    sweeper.args(["-c", "cat; rm -rf -- \"$1\"", "testbed-sweeper"]).arg(folder);
    sweeper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // Not ended by the Ctrl-C that ends us.
    sweeper.process_group(0).spawn()
}

fn initialize(folder: &Path, password: &str) -> io::Result<()> {
    let file = folder.join("password");
    account::write(&file, password)?;
    let mut initdb = account::command(&account::program("initdb")?)?;
    initdb.arg("--pgdata").arg(folder.join(DATA)).arg("--pwfile").arg(file).arg("--no-sync");
    initdb.args(["--username=postgres", "--auth=scram-sha-256"]);
    run(initdb.args(["--no-locale", "--encoding=UTF8"]))
}

/// In the one mode that needs no connection: one statement a line.
fn populate(folder: &Path) -> io::Result<()> {
    let script = folder.join("script");
    let roles = format!("CREATE ROLE {TESTBED} SUPERUSER LOGIN REPLICATION\n");
    fs::write(&script, format!("{roles}CREATE DATABASE {APP}\n"))?;
    let mut postgres = account::command(&account::program("postgres")?)?;
    postgres.args(["--single", "-F", "-D"]).arg(folder.join(DATA)).arg("postgres");
    run(postgres.stdin(File::open(script)?))
}

/// Runs a program to its end.
pub(super) fn run(command: &mut Command) -> io::Result<()> {
    let Output { status, stdout, stderr } = command.output()?;
    if status.success() {
        return Ok(());
    }
    let said = [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    Err(io::Error::other(format!("{}: {status}\n{said}", command.get_program().display())))
}

fn password() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
