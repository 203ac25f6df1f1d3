//! What a guarded transaction costs beside the same transaction without a guard.

use std::{rc::Rc, time::Duration};

use cerrojo::{Instant, Locker, backend::postgres::Postgres};
use tokio_postgres::{Client, GenericClient, NoTls, Statement};

use super::{Database, Server, length};
use crate::{
    Result,
    aim::{Aim, Wanted},
    args::Args,
    harness::{Played, Question},
    store,
};

const FIGURE: &str = "transaction";
const BARE: &str = "bare";
const GUARDED: &str = "ours, guarded";

const ROUNDS: u32 = 7;
const LENGTH_MS: u64 = 500;

const TABLE: &str = "
    CREATE TABLE account (id int PRIMARY KEY, balance bigint NOT NULL);
    INSERT INTO account VALUES (1, 0);";
const UPDATE: &str = "UPDATE account SET balance = balance + 1 WHERE id = 1";

/// One connection, and what each transaction does on it.
struct Account {
    client: Client,
    update: Statement,
}

pub(in super::super) fn ask(args: &Args) -> Result<Question> {
    let asks = "begin, update of one row, commit, one after the other on one connection";
    let mut question =
        Question::new(args, "postgres-transaction", asks)?.compared_with(BARE, ROUNDS);
    let (server, length) = (Rc::<Server>::default(), length(args, LENGTH_MS));
    let same = Rc::clone(&server);
    question.add(BARE, move || store::two_workers()?.block_on(bare(&server.database()?, length)));
    question
        .add(GUARDED, move || store::two_workers()?.block_on(guarded(&same.database()?, length)));
    question.aims = vec![Aim::new(FIGURE, GUARDED, Wanted::AtMost(1.3)).by(BARE)];
    Ok(question)
}

async fn bare(database: &Database, length: Duration) -> Result<Played> {
    let Account { mut client, update } = Account::open(database).await?;
    let (end, mut took) = (Instant::now() + length, Vec::new());
    while Instant::now() < end {
        let begun = Instant::now();
        let transaction = client.transaction().await?;
        change(&transaction, &update).await?;
        transaction.commit().await?;
        took.push(milliseconds_since(begun));
    }
    Ok(Played::default().figure(FIGURE, "ms", took))
}

/// The lock is held all the time, as by a program that works under it.
async fn guarded(database: &Database, length: Duration) -> Result<Played> {
    let Account { mut client, update } = Account::open(database).await?;
    let postgres = Postgres::connect(&database.url()).await?;
    let guard = Locker::new(postgres.clone()).acquire("bench").await?;
    let (end, mut took) = (Instant::now() + length, Vec::new());
    while Instant::now() < end {
        let begun = Instant::now();
        let transaction = postgres.transaction(&guard, &mut client).await?;
        change(&*transaction, &update).await?;
        transaction.commit().await?;
        took.push(milliseconds_since(begun));
    }
    guard.release().await?;
    Ok(Played::default().figure(FIGURE, "ms", took))
}

impl Account {
    async fn open(database: &Database) -> Result<Self> {
        let (client, connection) = tokio_postgres::connect(&database.url(), NoTls).await?;
        // It ends with the client, and its errors are those of the client's calls.
        tokio::spawn(connection);
        client.batch_execute(TABLE).await?;
        let update = client.prepare(UPDATE).await?;
        Ok(Self { client, update })
    }
}

async fn change(transaction: &impl GenericClient, update: &Statement) -> Result<()> {
    match transaction.execute(update, &[]).await? {
        1 => Ok(()),
        rows => Err(format!("{rows} rows were changed").into()),
    }
}

fn milliseconds_since(begun: Instant) -> f64 {
    Instant::now().since(begun).as_secs_f64() * 1e3
}
