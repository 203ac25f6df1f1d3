//! How long a client may be idle inside.

use tokio_postgres::Client;

use crate::site::{Outcome, Site, ttl};

/// The server shows the second in milliseconds, without saying so.
const LIMITS: [&str; 2] = ["idle_in_transaction_session_timeout", "tcp_user_timeout"];

async fn limits(client: &Client) -> Outcome<[String; 2]> {
    let mut shown = LIMITS.map(str::to_owned);
    for limit in &mut shown {
        let row = client.query_one(&format!("SHOW {limit}"), &[]).await?;
        *limit = row.get(0);
    }
    Ok(shown)
}

pub(crate) async fn the_shorter_limit_counts_and_none_stays(site: Site) -> Outcome {
    let (store, locks) = site.locks().await?;
    let long = locks.acquire("long").ttl(ttl(60_000)).await?;
    let short = locks.acquire("short").ttl(ttl(20_000)).await?;
    let mut client = site.client().await?;
    let before = limits(&client).await?;
    let transaction = store.transaction(&long, &mut client).await?;
    assert_eq!(limits(&transaction).await?, ["1min", "60000"]);
    transaction.commit().await?;
    assert_eq!(limits(&client).await?, before);

    let transaction = client.transaction().await?;
    store.enter(&short, &transaction).await?;
    store.enter(&long, &transaction).await?;
    assert_eq!(limits(transaction.client()).await?, ["20s", "20000"]);
    transaction.rollback().await?;

    client.batch_execute("SET idle_in_transaction_session_timeout = '500ms'").await?;
    let transaction = store.transaction(&long, &mut client).await?;
    assert_eq!(limits(&transaction).await?, ["500ms", "60000"]);
    Ok(transaction.commit().await?)
}
