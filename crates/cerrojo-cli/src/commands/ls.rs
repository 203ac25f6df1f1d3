//! `cerrojo ls`: the locks that are held.

use cerrojo::{AnyLocker, HolderInfo, LockName};

use crate::{
    args::LsArgs,
    exit::{Exit, Failure},
    output::Output,
};

/// Holders asked for at once: memory is bounded, however many locks there are.
const PAGE: usize = 500;

pub(crate) async fn run(args: &LsArgs, store: &AnyLocker, output: Output) -> Result<Exit, Failure> {
    // A listing starts after a name, and all names with a prefix come right after the prefix itself.
    if let Some(prefix) = &args.prefix
        && let Some(holder) = store.holder(prefix).await?
    {
        output.holder(&holder)?;
    }
    let mut after = args.prefix.clone();
    loop {
        let page = store.list(after.as_ref(), PAGE).await?;
        let wanted = page.iter().take_while(|holder| matches(args.prefix.as_ref(), holder));
        let shown = print(wanted, output)?;
        if page.is_empty() || shown < page.len() {
            return Ok(Exit::Success);
        }
        after = page.last().map(|holder| holder.name.clone());
    }
}

fn print<'a>(
    holders: impl Iterator<Item = &'a HolderInfo>,
    output: Output,
) -> Result<usize, Failure> {
    let mut shown = 0;
    for holder in holders {
        output.holder(holder)?;
        shown += 1;
    }
    Ok(shown)
}

fn matches(prefix: Option<&LockName>, holder: &HolderInfo) -> bool {
    prefix.is_none_or(|prefix| holder.name.as_str().starts_with(prefix.as_str()))
}
