//! `cerrojo release`: gives back a lock that `acquire` left standing.

use serde_json::json;

use crate::{
    args::ReleaseArgs,
    exit::{Exit, Failure},
    output::Output,
    store,
};

pub(crate) async fn run(args: &ReleaseArgs, store: &str, output: Output) -> Result<Exit, Failure> {
    let owner = args.owner.read()?;
    let (name, store) = (&args.name, store::connect(store).await?);
    store.release(name, owner).await?;
    let released = || json!({"name": name.as_str(), "released": true});
    output.answer(|| format!("{name} is released"), released)?;
    Ok(Exit::Success)
}
