//! SQL through `psql`.

use std::{
    io::{self, Write},
    path::Path,
    process::{Command, Output, Stdio},
};

use super::account::program;

/// How long a script may take; more than any lock that a test holds on purpose.
const LIMIT_S: &str = "60";

/// Whom to speak to.
#[derive(Debug)]
pub(super) struct Psql<'a> {
    /// The folder of its unix socket.
    pub(super) folder: &'a Path,
    pub(super) port: u16,
    pub(super) user: &'a str,
    pub(super) password: &'a str,
    pub(super) database: &'a str,
}

impl Psql<'_> {
    /// Runs statements up to the first that fails; their rows, with `|` between columns.
    pub(super) fn run(&self, text: &str) -> io::Result<String> {
        let mut psql = self.command()?.spawn()?;
        if let Some(mut stdin) = psql.stdin.take() {
            // One that ended early says itself why.
            drop(stdin.write_all(text.as_bytes()));
        }
        rows(&psql.wait_with_output()?)
    }

    /// Nothing of our own environment or home folder takes part.
    fn command(&self) -> io::Result<Command> {
        let mut command = Command::new("timeout");
        command.arg(LIMIT_S).arg(program("psql")?);
        command.args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "--file=-"]);
        command.arg("--set=ON_ERROR_STOP=1").arg("--host").arg(self.folder);
        command.args(["--port", &self.port.to_string()]);
        command.args(["--username", self.user, "--dbname", self.database]);
        command.env_clear().env("PGPASSWORD", self.password);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(command)
    }
}

fn rows(output: &Output) -> io::Result<String> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("psql: {}: {}", output.status, said.trim_end())))
}
