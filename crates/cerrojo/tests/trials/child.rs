//! Child processes of trials: this program again, which says a line for each thing that it has done.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use cerrojo::{Error, Result};
use cerrojo_testbed::Process;
use tokio::runtime::Runtime;

use super::{LONG, Outcome};

const CHILD: &str = "--child";

/// Starts this program again for this part, and waits until it has connected.
pub(crate) fn opened(words: &[&str]) -> Outcome<Process> {
    let child = Process::again([CHILD].iter().chain(words))?;
    match child.line(LONG)? {
        line if line == "open" => Ok(child),
        line => Err(line.into()),
    }
}

/// Plays a child's part, if this process is one.
pub(crate) fn child_main(play: fn(&str, &str, &[&str]) -> Result<()>) -> Option<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [CHILD, role, url, more @ ..] = words.as_slice() else { return None };
    if let Err(error) = play(role, url, more) {
        say(&complaint(&error));
        return Some(ExitCode::FAILURE);
    }
    Some(ExitCode::SUCCESS)
}

/// Does what it is told, line by line, until its input ends; what it says to each is a line too.
pub(crate) fn talk(runtime: &Runtime, mut obey: impl AsyncFnMut(&[&str]) -> Result<String>) {
    for line in io::stdin().lines().map_while(io::Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        let answer = runtime.block_on(obey(&words));
        say(&answer.unwrap_or_else(|error| complaint(&error)));
    }
}

/// One line, in one write.
pub(crate) fn say(line: &str) {
    io::stdout().write_all(format!("{line}\n").as_bytes()).unwrap();
}

pub(crate) fn complaint(error: &Error) -> String {
    format!("error {} {}", error.kind().as_str(), error.to_string().replace('\n', " "))
}
