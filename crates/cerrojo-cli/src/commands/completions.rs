//! `cerrojo completions`: the command line, as shells want it to complete words.

use clap::CommandFactory;

use crate::{
    args::{Args, CompletionsArgs},
    exit::{Exit, Failure},
    output,
};

pub(crate) fn run(args: &CompletionsArgs) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "cerrojo", &mut script);
    output::text(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Success)
}
