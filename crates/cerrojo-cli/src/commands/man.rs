//! `cerrojo man`: the command line as man pages.

use std::{fs, io, path::Path};

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use crate::{
    args::{Args, ManArgs},
    exit::{self, Exit, Failure},
    output,
};

/// What every page is a part of.
const SOURCE: &str = concat!("cerrojo ", env!("CARGO_PKG_VERSION"));

pub(crate) fn run(args: &ManArgs) -> Result<Exit, Failure> {
    let mut command = Args::command().disable_help_subcommand(true);
    command.build();
    match &args.out {
        Some(folder) => {
            write_all(&command, folder).map_err(|error| Failure::output_to(folder, error))?;
        }
        None => output::text(&page(&command).map_err(Failure::output)?)?,
    }
    Ok(Exit::Success)
}

/// A page for the command and for each below it; the folder is made if it is not there.
fn write_all(command: &Command, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let shown = |command: &&Command| !command.is_hide_set();
    for below in command.get_subcommands().filter(shown) {
        write_all(below, folder)?;
    }
    let file = folder.join(Man::new(command.clone()).get_filename());
    fs::write(file, page(command)?)
}

/// Instead of what stands after the help, the exit codes are a section of their own.
fn page(command: &Command) -> io::Result<String> {
    let man = Man::new(command.clone()).source(SOURCE);
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let page = String::from_utf8_lossy(&page);
    Ok(format!("{page}{}", exit_status()))
}

fn exit_status() -> String {
    let row = |exit: &Exit| format!(".TP\n{}\n{}\n", plain(&exit.label()), plain(exit.meaning()));
    ".SH \"EXIT STATUS\"\n".to_owned() + &exit::ALL.iter().map(row).collect::<String>()
}

/// As typed: roff has its own idea of backquotes and dashes.
fn plain(text: &str) -> String {
    text.replace('`', "\\(ga").replace('-', "\\-")
}
