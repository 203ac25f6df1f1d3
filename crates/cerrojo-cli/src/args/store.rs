//! The store itself: what it needs before it can be used.

use clap::Subcommand;

use crate::exit;

/// Make what a store needs
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    Init(InitArgs),
}

/// Make the tables of a store, or bring them up to date
///
/// For `postgres://`: the role in the URL makes the schema, its tables and functions in one transaction, and owns them. May be
/// run again at any time, beside anything else. Other stores need nothing: they are opened, which makes the
/// folder of `local:`.
#[derive(Debug, clap::Args)]
#[command(after_help = exit::table())]
pub(crate) struct InitArgs {
    /// Let this role use the locks, with no more rights than that takes; may be repeated
    #[arg(long, value_name = "ROLE")]
    pub(crate) grant: Vec<String>,

    /// Print the SQL instead of running it; nothing is connected to
    #[arg(long)]
    pub(crate) print: bool,
}
