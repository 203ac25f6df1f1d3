//! Copies of a running server's files.

use std::{
    io,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

use super::{PostgresServer, TESTBED, account, medium::Medium, template::run};

/// The files of a server as they were, and where the WAL stands that it has written since: what a restore to a point in time needs.
/// Made by [`PostgresServer::back_up`].
#[derive(Debug)]
pub struct PostgresBackup {
    folder: TempDir,
    wal: PathBuf,
    password: String,
}

/// Where the testbed reaches a primary.
#[derive(Clone, Debug)]
pub(super) struct Primary {
    socket_dir: PathBuf,
    port: u16,
    password: String,
}

/// A backup, and up to where its server's changes are made again.
#[derive(Clone, Debug)]
pub(super) struct Restore {
    data: PathBuf,
    wal: PathBuf,
    password: String,
    point: String,
}

impl PostgresBackup {
    pub(super) fn of(server: &PostgresServer, wal: PathBuf) -> io::Result<Self> {
        let folder = account::folder(&Medium::Disk.place(), "testbed-backup-")?;
        let primary = Primary::of(server);
        run(&mut primary.backup(&folder.path().join("data"))?)?;
        Ok(Self { folder, wal, password: primary.password })
    }

    pub(super) fn up_to(&self, point: &str) -> Restore {
        let (data, wal) = (self.folder.path().join("data"), self.wal.clone());
        Restore { data, wal, password: self.password.clone(), point: point.to_owned() }
    }
}

impl Primary {
    pub(super) fn of(server: &PostgresServer) -> Self {
        let (socket_dir, port) = (server.socket_dir().to_owned(), server.port());
        Self { socket_dir, port, password: server.password().to_owned() }
    }

    /// Copies it to `data`, with a note of whose standby that is; its password.
    pub(super) fn copy(&self, data: &Path) -> io::Result<&str> {
        run(self.backup(data)?.arg("--write-recovery-conf"))?;
        Ok(&self.password)
    }

    fn backup(&self, data: &Path) -> io::Result<Command> {
        let mut backup = account::command(&account::program("pg_basebackup")?)?;
        backup.arg("--pgdata").arg(data).arg("--host").arg(&self.socket_dir);
        backup.args(["--port", &self.port.to_string(), "--username", TESTBED, "--no-password"]);
        backup.args(["--checkpoint=fast", "--no-sync"]);
        Ok(backup)
    }
}

impl Restore {
    /// Copies the backup to `data`, with a note that it is to be restored; its server's password.
    pub(super) fn copy(&self, data: &Path) -> io::Result<&str> {
        run(Command::new("cp").arg("-a").arg(&self.data).arg(data))?;
        account::write(&data.join("recovery.signal"), "")?;
        Ok(&self.password)
    }

    /// What it has to be told.
    pub(super) fn options(&self) -> [(String, String); 3] {
        let wal = self.wal.display();
        [
            ("restore_command", format!("cp \"{wal}/%f\" \"%p\"")),
            ("recovery_target_name", self.point.clone()),
            ("recovery_target_action", "promote".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
    }
}
