//! Who a server runs as that refuses to be root.

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

use crate::need::find;

/// Ids of the user and its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Account {
    user: u32,
    group: u32,
}

/// A command that runs `program` as somebody who is not root.
pub(super) fn command(program: &Path) -> io::Result<Command> {
    let Some(account) = account()? else { return Ok(Command::new(program)) };
    let mut command = Command::new("setpriv");
    command.arg(format!("--reuid={}", account.user));
    command.arg(format!("--regid={}", account.group));
    command.args(["--clear-groups", "--"]).arg(program);
    Ok(command)
}

/// Gives `path` to whoever [`command`] runs programs as.
pub(super) fn own(path: &Path) -> io::Result<()> {
    let Some(account) = account()? else { return Ok(()) };
    chown(path, Some(account.user), Some(account.group))
}

/// Writes a file that only they can read.
pub(super) fn write(path: &Path, contents: impl AsRef<[u8]>) -> io::Result<()> {
    fs::write(path, contents)?;
    fs::set_permissions(path, PermissionsExt::from_mode(0o600))?;
    own(path)
}

/// A temporary folder of theirs.
pub(super) fn folder(place: &Path, prefix: &str) -> io::Result<TempDir> {
    let folder = tempfile::Builder::new().prefix(prefix).tempdir_in(place)?;
    own(folder.path())?;
    Ok(folder)
}

/// A program of the installation whose `postgres` is found first.
pub(super) fn program(name: &str) -> io::Result<PathBuf> {
    let missing = || io::Error::new(io::ErrorKind::NotFound, "postgres is not installed");
    Ok(find("postgres").ok_or_else(missing)?.canonicalize()?.with_file_name(name))
}

/// Nobody, if we are not root: then programs run as ourselves.
fn account() -> io::Result<Option<Account>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd")?;
    let found = ["postgres", "nobody"].iter().find_map(|name| entry(&users, name));
    found.map(Some).ok_or_else(|| io::Error::other("no user to run servers as"))
}

fn entry(users: &str, name: &str) -> Option<Account> {
    let mut fields = users.lines().map(|line| line.split(':'));
    let mut fields = fields.find_map(|mut line| (line.next() == Some(name)).then_some(line))?;
    let user = fields.nth(1)?.parse().ok()?;
    Some(Account { user, group: fields.next()?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_its_whole_name() {
        let users = "postgresql:x:1:2::/:\npostgres:x:101:104:Admin,,,:/var:/bin/sh\n";
        assert_eq!(entry(users, "postgres"), Some(Account { user: 101, group: 104 }));
        assert_eq!(entry(users, "nobody"), None);
    }
}
