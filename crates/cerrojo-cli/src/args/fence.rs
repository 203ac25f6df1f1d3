//! The resource's side: what refuses a holder that was overtaken.

use std::{path::PathBuf, time::Duration};

use cerrojo::{StoreId, fence::PresentedToken};
use clap::Subcommand;

use super::duration;
use crate::exit;

/// Refuse whoever was overtaken: files that check the fencing token
#[derive(Debug, Subcommand)]
pub(crate) enum FenceCommand {
    Admit(AdmitArgs),
    Write(WriteArgs),
    Show(FenceShowArgs),
    Adopt(AdoptArgs),
}

/// Ask a fence whether to let a token pass; exits with 73 when a newer one has passed already
///
/// The fence is a file, made with the first token. Ask at the first access under a lock, also when that only reads.
#[derive(Debug, clap::Args)]
#[command(after_help = exit::table())]
pub(crate) struct AdmitArgs {
    /// The file with the fence's state; of a file that `fence write` writes it is FILE.fence
    pub(crate) state: PathBuf,

    /// The token, as in "$CERROJO_TOKEN"
    pub(crate) token: PresentedToken,

    /// The store that granted the token: tokens of another are refused
    #[arg(long, value_name = "ID", env = "CERROJO_STORE_ID", hide_env_values = true)]
    pub(crate) store_id: Option<StoreId>,

    #[command(flatten)]
    pub(crate) turn: TurnArgs,
}

/// Replace a file by what comes from stdin, if the token may pass
///
/// Under `cerrojo run` the token and the store's id come from the environment. All of stdin is read into memory
/// before anything else is done. The file is then the old one or the new one, whatever happens, and the new one is
/// durable when this ends.
///
/// FILE.fence keeps the greatest token, FILE.fence.lock the others out meanwhile.
#[derive(Debug, clap::Args)]
#[command(after_help = exit::table())]
pub(crate) struct WriteArgs {
    /// The file; a symbolic link is refused
    pub(crate) file: PathBuf,

    /// The token
    #[arg(long, env = "CERROJO_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<PresentedToken>,

    /// The store that granted the token: tokens of another are refused
    #[arg(long, value_name = "ID", env = "CERROJO_STORE_ID", hide_env_values = true)]
    pub(crate) store_id: Option<StoreId>,

    #[command(flatten)]
    pub(crate) turn: TurnArgs,
}

/// Show the greatest token that a fence has let pass, and the store it came from
#[derive(Debug, clap::Args)]
#[command(after_help = exit::table())]
pub(crate) struct FenceShowArgs {
    /// A file that is fenced, or the file with a fence's state
    pub(crate) path: PathBuf,
}

/// Make a fence count the tokens of another store, after the store was replaced
///
/// The fence forgets the greatest token of the store before, so make sure that nobody who holds one is still at work.
#[derive(Debug, clap::Args)]
#[command(after_help = exit::table())]
pub(crate) struct AdoptArgs {
    /// A file that is fenced, or the file with a fence's state
    pub(crate) path: PathBuf,

    /// The store to adopt
    #[arg(long, value_name = "ID", env = "CERROJO_STORE_ID", hide_env_values = true)]
    pub(crate) store_id: StoreId,

    #[command(flatten)]
    pub(crate) turn: TurnArgs,
}

/// How long to wait for those who are at the same fence.
#[derive(Debug, clap::Args)]
pub(crate) struct TurnArgs {
    /// Wait no longer than this while someone else is at the fence, then exit with 75
    #[arg(short, long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub(crate) wait: Duration,
}
