//! Speaking to servers by `etcdctl`.

use std::{
    io,
    process::{Command, Output, Stdio},
};

use super::EtcdServer;
use crate::need::find;

/// How long a command may take; more than `etcdctl` waits for an answer of its own accord.
const LIMIT_S: &str = "60";

/// Runs one command.
type Run<'a> = dyn Fn(&[&str]) -> io::Result<String> + 'a;

/// Who may speak to a server.
#[derive(Clone, Debug, Default)]
pub(super) struct Access {
    pub(super) is_demanded: bool,
    users: Vec<User>,
}

#[derive(Clone, Debug)]
struct User {
    name: String,
    password: String,
    prefix: String,
}

impl Access {
    pub(super) fn add(&mut self, name: &str, password: &str, prefix: &str) {
        let [name, password, prefix] = [name, password, prefix].map(ToOwned::to_owned);
        self.users.push(User { name, password, prefix });
    }

    /// Makes the users and demands them; nothing if nobody need be one.
    pub(super) fn demand(&self, run: &Run<'_>) -> io::Result<()> {
        if !self.is_demanded {
            return Ok(());
        }
        // `root` may not yet be demanded of whoever makes it.
        let run = |words: &[&str]| run(&[&["--user", ""], words].concat());
        run(&["user", "add", &format!("root:{}", EtcdServer::ROOT_PASSWORD)])?;
        run(&["user", "grant-role", "root", "root"])?;
        self.users.iter().try_for_each(|user| user.make(&run))?;
        run(&["auth", "enable"]).map(drop)
    }
}

impl User {
    /// With a role of the same name.
    fn make(&self, run: &Run<'_>) -> io::Result<()> {
        let Self { name, password, prefix } = self;
        run(&["role", "add", name])?;
        run(&["role", "grant-permission", name, "readwrite", "--prefix=true", prefix])?;
        run(&["user", "add", &format!("{name}:{password}")])?;
        run(&["user", "grant-role", name, name]).map(drop)
    }
}

/// An `etcdctl` that speaks to `endpoints`, as root if that is demanded, unless `words` say otherwise. Nothing of our
/// own environment takes part.
pub(super) fn command(endpoints: &str, access: &Access, words: &[&str]) -> io::Result<Command> {
    let missing = || io::Error::new(io::ErrorKind::NotFound, "etcdctl is not installed");
    let mut command = Command::new(find("etcdctl").ok_or_else(missing)?);
    command.env_clear().env("ETCDCTL_API", "3");
    // Of endpoints that are said twice it would take all.
    if !words.contains(&"--endpoints") {
        command.args(["--endpoints", endpoints]);
    }
    if access.is_demanded && !words.contains(&"--user") {
        command.args(["--user", &format!("root:{}", EtcdServer::ROOT_PASSWORD)]);
    }
    command.args(words);
    Ok(command)
}

/// Runs it to its end, within a minute; what it says, without its last line's end.
pub(super) fn run(command: &Command) -> io::Result<String> {
    let mut limited = Command::new("timeout");
    limited.arg(LIMIT_S).arg(command.get_program()).args(command.get_args());
    limited.env_clear();
    limited.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    said(&limited.stdin(Stdio::null()).output()?)
}

fn said(output: &Output) -> io::Result<String> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("etcdctl: {}: {}", output.status, errors.trim_end())))
}
