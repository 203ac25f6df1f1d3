//! Other processes: this very program, started again as `--child ROLE URL CLIENT_URL ACCOUNT ...`. They talk by lines.

use std::{io, process::ExitCode};

use cerrojo::{Error, ErrorKind, FencedGuard, Locker, Result, backend::postgres::Postgres};
use cerrojo_testbed::Process;
use tokio_postgres::{Client, GenericClient, IsolationLevel};

use crate::site::{
    LONG, NAME, Outcome, Site, child_main, client, complaint, connect, eventually, opened, runtime,
    say, ttl,
};

/// What a child works with.
struct Part {
    store: Postgres,
    client: Client,
    client_url: String,
    account: String,
}

fn start(role: &str, site: &Site, more: &str) -> Outcome<Process> {
    let port = site.server.port();
    opened(&[role, &site.url_at(port), &site.client_url_at(port), &site.account(), more])
}

/// Has taken the lock, begun a guarded transaction, and added one in it. Told to, it commits, once it has learnt that its
/// session was ended: before, it could not know what became of the commit.
pub(crate) fn adder(site: &Site, ttl_ms: u64) -> Outcome<Process> {
    let child = start("add", site, &ttl_ms.to_string())?;
    assert_eq!(child.line(LONG)?, "inside");
    Ok(child)
}

/// Has taken the lock, begun a guarded transaction, and read a little of a great deal.
pub(crate) fn reader(site: &Site, ttl_ms: u64) -> Outcome<Process> {
    let child = start("read", site, &ttl_ms.to_string())?;
    assert_eq!(child.line(LONG)?, "inside");
    Ok(child)
}

/// Adds one again and again, until its input ends: see [`count`].
pub(crate) fn counter(site: &Site, number: usize) -> Outcome<Process> {
    start("count", site, &number.to_string())
}

/// Plays a child's part, if this process is one.
pub(crate) fn main() -> Option<ExitCode> {
    child_main(play)
}

fn play(role: &str, url: &str, more: &[&str]) -> Result<()> {
    let [client_url, account, last] = more else { panic!("no role {role} {more:?}") };
    let runtime = runtime();
    runtime.block_on(async {
        let store = connect(url).await?;
        let client_url = format!("{client_url}?application_name=child-{}", std::process::id());
        let client = client(&client_url).await.map_err(broken)?;
        let part = Part { store, client, client_url, account: (*account).to_owned() };
        say("open");
        match role {
            "add" => add(part, last.parse().unwrap()).await,
            "read" => read(part, last.parse().unwrap()).await,
            "count" => count(part, last.parse().unwrap()).await,
            other => panic!("no role {other}"),
        }
    })
}

fn broken(error: tokio_postgres::Error) -> Error {
    Error::new(ErrorKind::Unavailable, error.to_string()).with_source(error)
}

fn await_line() {
    io::stdin().read_line(&mut String::new()).unwrap();
}

async fn add(mut part: Part, ttl_ms: u64) -> Result<()> {
    let locks = Locker::new(part.store.clone());
    let guard = locks.acquire(NAME).ttl(ttl(ttl_ms)).await?;
    let transaction = part.store.transaction(&guard, &mut part.client).await?;
    let add_one = format!("UPDATE {} SET balance = balance + 1", part.account);
    transaction.execute(&add_one, &[]).await.map_err(broken)?;
    say("inside");
    await_line();
    eventually("the end of the session", || Ok(transaction.is_closed())).await.unwrap();
    transaction.commit().await?;
    say("committed");
    Ok(())
}

async fn read(mut part: Part, ttl_ms: u64) -> Result<()> {
    let locks = Locker::new(part.store.clone());
    let guard = locks.acquire(NAME).ttl(ttl(ttl_ms)).await?;
    let transaction = part.store.transaction(&guard, &mut part.client).await?;
    let much = "COPY (SELECT repeat('x', 1000) FROM generate_series(1, 10000000)) TO STDOUT";
    let _rows = transaction.copy_out(much).await.map_err(broken)?;
    say("inside");
    await_line();
    Ok(())
}

/// Says for each of its rounds `done N` when it was committed, `undone N` when it was not, `unsure N` when it does not know.
///
/// Processes with an even number use a guarded transaction, the others enter one of their own, REPEATABLE READ.
async fn count(mut part: Part, number: usize) -> Result<()> {
    let locks = Locker::new(part.store.clone());
    let (ended, mut end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        drop(io::copy(&mut io::stdin(), &mut io::sink()));
        let _ = ended.send(());
    });
    for round in 0.. {
        if end.try_recv().is_ok() {
            return Ok(());
        }
        let Ok(guard) = locks.acquire(NAME).ttl(ttl(500)).wait(LONG).await else { continue };
        let entry = format!("{number}-{round}");
        let counted = match number.is_multiple_of(2) {
            true => count_guarded(&mut part, &guard, &entry).await,
            false => count_entered(&mut part, &guard, &entry).await,
        };
        let word = match counted {
            Ok(()) => "done",
            Err(error) if error.kind() == ErrorKind::Indeterminate => "unsure",
            Err(error) if error.kind() == ErrorKind::Invalid => panic!("{}", complaint(&error)),
            Err(_) => "undone",
        };
        say(&format!("{word} {entry}"));
        if part.client.is_closed() {
            part.client = client(&part.client_url).await.map_err(broken)?;
        }
        drop(guard.release().await);
    }
    Ok(())
}

async fn count_guarded(part: &mut Part, guard: &FencedGuard, entry: &str) -> Result<()> {
    let transaction = part.store.transaction(guard, &mut part.client).await?;
    add_entry(&*transaction, &part.account, entry).await.map_err(broken)?;
    transaction.commit().await
}

async fn count_entered(part: &mut Part, guard: &FencedGuard, entry: &str) -> Result<()> {
    let level = IsolationLevel::RepeatableRead;
    let transaction = part.client.build_transaction().isolation_level(level).start().await;
    let transaction = transaction.map_err(broken)?;
    part.store.enter(guard, &transaction).await?;
    add_entry(&transaction, &part.account, entry).await.map_err(broken)?;
    transaction.commit().await.map_err(|error| match error.code() {
        Some(_) => broken(error),
        None => Error::new(ErrorKind::Indeterminate, error.to_string()),
    })
}

/// Reads, and writes what it makes of that: a lost update is one entry too many.
async fn add_entry(
    client: &impl GenericClient,
    account: &str,
    entry: &str,
) -> std::result::Result<(), tokio_postgres::Error> {
    let row = client.query_one(&format!("SELECT balance FROM {account}"), &[]).await?;
    let balance = row.get::<_, i64>(0) + 1;
    client.execute(&format!("INSERT INTO {account}_log VALUES ($1)"), &[&entry]).await?;
    client.execute(&format!("UPDATE {account} SET balance = $1"), &[&balance]).await?;
    Ok(())
}
