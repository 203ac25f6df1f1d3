//! `cerrojo renew`: sets the TTL of a lock anew that `acquire` left standing.

use crate::{
    args::RenewArgs,
    exit::{Exit, Failure},
    held::Held,
    output, store,
};

pub(crate) async fn run(args: &RenewArgs, store: &str) -> Result<Exit, Failure> {
    let owner = args.owner.read()?;
    let store = store::connect(store).await?;
    let held = Held::resume(&store, &args.name, owner, args.ttl).await?;
    let grant = held.detach().await?;
    output::deliver(&grant.json().to_string())?;
    Ok(Exit::Success)
}
