//! A fence is as durable as what it guards.

use cerrojo::fence::postgres::TableError;

use crate::site::{OnServer, Outcome, Site};

pub(crate) async fn a_killed_server_keeps_what_was_admitted(_: Site) -> Outcome {
    let site = Site::alone().await?;
    let mut client = site.client().await?;
    site.pass(&mut client, 34).await?;
    let transaction = client.transaction().await?;
    site.admit(&transaction, 36).await?;
    site.server.kill()?;
    drop(transaction);
    site.server.restart()?;
    let mut client = site.client().await?;
    assert!(matches!(site.pass(&mut client, 33).await, Err(TableError::Stale(_))));
    // What had not been committed raised nothing.
    Ok(site.pass(&mut client, 35).await?)
}
