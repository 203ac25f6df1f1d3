//! Many at once, while connections are ended at random, locks are broken and rows are pruned: tokens rise in the order of commits, nobody waits
//! on a free lock, and in the end nothing is held.

use std::{sync::Arc, time::Duration};

use cerrojo::{
    Break, Deadline, Error, ErrorKind, FencedGuard, LockName, Locker, Result,
    backend::postgres::Postgres, clock,
};
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls};
use tokio_util::sync::CancellationToken;

use crate::{
    session::Session,
    site::{LONG, Locks, Outcome, Site, rounds, soon, ttl, until},
};

/// How many stores contend for one name, each with connections of its own.
const SESSIONS: usize = 64;
/// For so many names so many tasks of each of so many stores contend.
const NAMES: usize = 11;
const TASKS: usize = 12;
const STORES: usize = 4;

/// One row for each token that was used. The numbers of rows are given out in the order of commits, as those who write them exclude each other.
const JOURNAL: &str =
    "CREATE TABLE \"cerrojo\".\"lock_journal\" (at bigserial, name text, token bigint);
    GRANT INSERT ON \"cerrojo\".\"lock_journal\" TO client;
    GRANT USAGE ON SEQUENCE \"cerrojo\".\"lock_journal_at_seq\" TO client";
/// Writes it at each grant, while that has the name's row.
const TRIGGER: &str = "CREATE FUNCTION \"cerrojo\".\"lock_note\"() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO \"cerrojo\".\"lock_journal\" (name, token) VALUES (NEW.name, NEW.token); RETURN NULL; END $$;
    CREATE TRIGGER noted AFTER UPDATE ON \"cerrojo\".\"lock\" FOR EACH ROW
        WHEN (NEW.token IS DISTINCT FROM OLD.token) EXECUTE FUNCTION \"cerrojo\".\"lock_note\"()";
const FALLEN: &str = "SELECT count(*) FROM (
        SELECT token, lag(token) OVER (PARTITION BY name ORDER BY at) AS before FROM \"cerrojo\".\"lock_journal\") j
    WHERE token <= before";
/// Whoever frees a lock with a waiter hands it over, in one commit; one that has expired is taken within a waiter's tick of 10 s.
const WAITED_FOR_BUT_FREE: &str = "SELECT count(*) FROM \"cerrojo\".\"lock\" l
    WHERE (l.owner IS NULL OR l.expires_at < clock_timestamp() - interval '20 s') AND EXISTS (
        SELECT FROM \"cerrojo\".\"lock_waiter\" w WHERE w.name = l.name AND w.alive_until > clock_timestamp())";

pub(crate) async fn sixty_four_sessions_on_one_name_whose_connections_are_ended(
    site: Site,
) -> Outcome {
    let (site, observer) = journaled(site).await?;
    let ends = CancellationToken::new();
    let mut all = JoinSet::new();
    for _ in 0..SESSIONS {
        all.spawn(contend(Arc::clone(&site), ends.clone()));
    }
    end_connections(&site, &observer, Duration::from_secs(rounds(6, 60))).await?;
    ends.cancel();
    soon("all contenders", join(&mut all)).await??;
    assert!(observer.number("SELECT count(*) FROM \"cerrojo\".\"lock_journal\"").await? >= 64);
    is_over(&site, &observer).await
}

/// A table with a journal, and a session that looks on.
async fn journaled(site: Site) -> Outcome<(Arc<Site>, Session)> {
    let site = Arc::new(site);
    let observer = site.session().await?;
    observer.ask(JOURNAL).await?;
    Ok((site, observer))
}

/// About every tenth connection ten times a second.
async fn end_connections(site: &Site, observer: &Session, length: Duration) -> Outcome {
    let end = format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
         WHERE application_name = '{}' AND random() < 0.1",
        site.table
    );
    let until = cerrojo::Instant::now() + length;
    while cerrojo::Instant::now() < until {
        assert_eq!(observer.number(WAITED_FOR_BUT_FREE).await?, 0);
        observer.ask(&end).await?;
        clock::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

async fn join(all: &mut JoinSet<Outcome>) -> Outcome {
    while let Some(ended) = all.join_next().await {
        ended??;
    }
    Ok(())
}

/// All have gone: nothing is held, tokens have risen, and so does the next.
async fn is_over(site: &Site, observer: &Session) -> Outcome {
    let held = "SELECT count(*) FROM \"cerrojo\".\"lock\" WHERE owner IS NOT NULL AND expires_at > clock_timestamp()";
    until("nothing is held", async || Ok(observer.number(held).await? == 0)).await?;
    assert_eq!(observer.number(WAITED_FOR_BUT_FREE).await?, 0);
    assert_eq!(observer.number(FALLEN).await?, 0);
    let last = observer.number("SELECT max(token) FROM \"cerrojo\".\"lock_journal\"").await?;
    let next = site.locks().await?.acquire("a").wait(LONG).await?;
    assert!(next.token().get() > u64::try_from(last)?);
    Ok(next.release().await?)
}

/// Acquires, writes and releases, whatever becomes of its connections.
async fn contend(site: Arc<Site>, ends: CancellationToken) -> Outcome {
    let store = site.store().await?;
    let locks = Locker::new(store.clone());
    let mut client = client(&site).await?;
    while !ends.is_cancelled() {
        let guard = match locks.acquire("a").ttl(ttl(5_000)).wait(LONG * 2).await {
            Ok(guard) => guard,
            Err(error) => {
                passes(&error)?;
                continue;
            }
        };
        if client.is_closed() {
            client = self::client(&site).await?;
        }
        write(&site, (&store, &guard), &mut client).await.or_else(|error| passes(&error))?;
        guard.release().await.or_else(|error| passes(&error))?;
    }
    Ok(locks.close(Deadline::after(LONG)).await?)
}

async fn client(site: &Site) -> Outcome<Client> {
    loop {
        // What is ended while it connects is tried again.
        if let Ok((client, connection)) = tokio_postgres::connect(&site.driver_url(), NoTls).await {
            tokio::spawn(connection);
            return Ok(client);
        }
    }
}

async fn write(
    site: &Site,
    (store, guard): (&Postgres, &FencedGuard),
    client: &mut Client,
) -> Result<()> {
    let (table, token) = (&site.table, guard.token().get());
    let note = format!("INSERT INTO cerrojo.{table}_journal (name, token) VALUES ('a', {token})");
    let transaction = store.transaction(guard, client).await?;
    // One that failed is not committed.
    drop(transaction.batch_execute(&note).await);
    transaction.commit().await
}

/// What ended connections, and others' breaks, may do to a call.
fn passes(error: &Error) -> Result<(), String> {
    match error.kind() {
        ErrorKind::Unavailable | ErrorKind::Indeterminate | ErrorKind::Lost => Ok(()),
        _ => Err(error.to_string()),
    }
}

pub(crate) async fn names_in_different_orders_while_all_are_broken_and_pruned(
    site: Site,
) -> Outcome {
    let (site, observer) = journaled(site).await?;
    observer.ask(TRIGGER).await?;
    let ends = CancellationToken::new();
    let mut all = JoinSet::new();
    for store in 0..STORES {
        let locks = site.locks().await?;
        all.spawn(prune(locks.clone(), ends.clone()));
        for task in 0..TASKS {
            all.spawn(go_round(locks.clone(), (store * TASKS + task, ends.clone())));
        }
    }
    let end = cerrojo::Instant::now() + Duration::from_secs(rounds(6, 60));
    while cerrojo::Instant::now() < end {
        assert_eq!(observer.number(WAITED_FOR_BUT_FREE).await?, 0);
        clock::sleep(Duration::from_millis(20)).await;
    }
    ends.cancel();
    soon("all contenders", join(&mut all)).await??;
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = 'app'";
    assert_eq!(observer.number(deadlocks).await?, 0);
    is_over(&site, &observer).await
}

/// Rows go as soon as they are free, and locks are taken from their holders.
async fn prune(locks: Locks, ends: CancellationToken) -> Outcome {
    for step in 0.. {
        if ends.is_cancelled() {
            break;
        }
        let name: LockName = name(step).parse()?;
        let when = if step % 2 == 0 { Break::Now } else { Break::AtExpiry };
        locks.break_lock(&name, when).await?;
        locks.prune().await?;
        clock::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Takes one name after the other, in an order that few others have; some it leaves to expire.
async fn go_round(locks: Locks, (number, ends): (usize, CancellationToken)) -> Outcome {
    let stride = number % (NAMES - 1) + 1;
    for step in 0.. {
        if ends.is_cancelled() {
            break;
        }
        let name = name(number + step * stride);
        match locks.acquire(name).ttl(ttl(200)).wait(LONG * 2).await {
            Err(error) => passes(&error)?,
            Ok(guard) if step % 5 == 0 => guard.detach().await.or_else(|error| passes(&error))?,
            Ok(guard) => guard.release().await.or_else(|error| passes(&error))?,
        }
    }
    Ok(())
}

fn name(number: usize) -> String {
    format!("n{}", number % NAMES)
}
