//! Looks into the database, by one connection: a program started for each would keep a small machine busy.

use std::time::Duration;

use cerrojo::clock;
use tokio::sync::Mutex;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::site::{Outcome, client};

/// A server that is stopped answers nobody.
const LIMIT: Duration = Duration::from_secs(10);

pub(crate) struct Looks {
    url: String,
    client: Mutex<Option<Client>>,
}

impl Looks {
    pub(crate) fn new(url: String) -> Self {
        Self { url, client: Mutex::default() }
    }

    /// The one value that a query answers; by a new connection after one that failed.
    pub(crate) async fn ask(&self, query: &str) -> Outcome<String> {
        let mut kept = self.client.lock().await;
        let client = match kept.take() {
            Some(kept) => kept,
            None => clock::within(LIMIT, client(&self.url)).await??,
        };
        let answer = value(&clock::within(LIMIT, client.simple_query(query)).await??)?;
        *kept = Some(client);
        Ok(answer)
    }
}

fn value(messages: &[SimpleQueryMessage]) -> Outcome<String> {
    let value = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    });
    value.ok_or_else(|| "no value".into())
}
