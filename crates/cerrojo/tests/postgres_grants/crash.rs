//! A server that is killed amid grants: none that was answered is forgotten, and no token is given twice. Also where a role has asked for less
//! than the locks need.

use std::{collections::HashMap, sync::Arc, time::Duration};

use cerrojo::{ErrorKind, Result, clock};
use cerrojo_testbed::PostgresServer;
use tokio::{sync::mpsc, task::JoinSet};

use crate::site::{
    LONG, Locks, OnServer, Outcome, ROLE, Site, TRUST, connect, rounds, soon, start, ttl,
};

/// Two tasks each take and give back so many locks, again and again.
const CYCLED: usize = 3;
/// So many tasks take one new lock after the other, and leave them.
const LEAVING: usize = 3;
/// After so many answers the server is killed.
const ANSWERS: usize = 60;

/// What was answered to a task.
enum Granted {
    /// The lock was given back after that.
    Cycled(String, u64),
    /// Its TTL runs.
    Left(String, u64),
}

pub(crate) async fn a_server_killed_amid_grants_forgets_none_and_repeats_no_token(
    _: Site,
) -> Outcome {
    let site = site_that_forgets().await?;
    let mut tokens = HashMap::new();
    for round in 0..rounds(4, 40) {
        let locks = site.locks().await?;
        let mut left = Vec::new();
        let (mut tasks, mut answers) = work(&locks, round);
        for _ in 0..ANSWERS {
            let granted = soon("a grant", answers.recv()).await?;
            note(granted.ok_or("the tasks have ended")?, &mut tokens, &mut left);
        }
        site.server.kill()?;
        tasks.shutdown().await;
        while let Some(granted) = answers.recv().await {
            note(granted, &mut tokens, &mut left);
        }
        drop(locks);
        site.server.restart()?;
        are_held(&site, &left).await?;
    }
    assert!(tokens.len() > CYCLED);
    Ok(())
}

/// Where nothing is written by itself within a round, and the role asks for no more.
async fn site_that_forgets() -> Outcome<Site> {
    let builder = PostgresServer::builder().hba(TRUST);
    let lazy = builder.option("wal_writer_delay", "10s").option("wal_writer_flush_after", "1GB");
    let server = start(&lazy)?;
    server.superuser_sql(&format!("ALTER ROLE {ROLE} SET synchronous_commit = off"))?;
    Site::on(Arc::new(server)).await
}

fn work(locks: &Locks, round: u64) -> (JoinSet<Result<()>>, mpsc::UnboundedReceiver<Granted>) {
    let (says, answers) = mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    for number in 0..CYCLED {
        tasks.spawn(cycle(locks.clone(), format!("cycled {number}"), says.clone()));
        tasks.spawn(cycle(locks.clone(), format!("cycled {number}"), says.clone()));
    }
    for number in 0..LEAVING {
        tasks.spawn(leave(locks.clone(), format!("left {round} {number}"), says.clone()));
    }
    (tasks, answers)
}

async fn cycle(locks: Locks, name: String, says: mpsc::UnboundedSender<Granted>) -> Result<()> {
    loop {
        let guard = locks.acquire(name.as_str()).ttl(ttl(1_000)).wait(LONG).await?;
        drop(says.send(Granted::Cycled(name.clone(), guard.token().get())));
        guard.release().await?;
    }
}

async fn leave(locks: Locks, name: String, says: mpsc::UnboundedSender<Granted>) -> Result<()> {
    for number in 0.. {
        let name = format!("{name} {number}");
        let guard = locks.acquire(name.as_str()).ttl(ttl(120_000)).wait(LONG).await?;
        let token = guard.token().get();
        guard.detach().await?;
        drop(says.send(Granted::Left(name, token)));
        clock::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}

/// Each greater than all before it of the same name, also of earlier rounds.
fn note(granted: Granted, tokens: &mut HashMap<String, u64>, left: &mut Vec<(String, u64)>) {
    let (Granted::Cycled(name, token) | Granted::Left(name, token)) = &granted;
    let before = tokens.insert(name.clone(), *token).unwrap_or(0);
    assert!(*token > before, "{name}: {token} was granted after {before}");
    if let Granted::Left(name, token) = granted {
        left.push((name, token));
    }
}

/// Nobody else gets them.
async fn are_held(site: &Site, left: &[(String, u64)]) -> Outcome {
    assert!(!left.is_empty());
    let locks = site.locks().await?;
    for (name, token) in left {
        let holder = locks.holder(&name.parse()?).await?;
        let holder = holder.ok_or(format!("{name} with token {token} was forgotten"))?;
        assert_eq!(holder.token, Some(*token));
    }
    let refused = locks.try_acquire(left[0].0.as_str()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Contended);
    Ok(())
}

pub(crate) async fn a_role_with_another_isolation_level_is_told_which_the_locks_need(
    site: Site,
) -> Outcome {
    for level in ["serializable", "repeatable read"] {
        let role = site.new_role()?;
        site.grant_to(&role)?;
        let set = format!("ALTER ROLE {role} SET default_transaction_isolation = '{level}'");
        site.server.superuser_sql(&set)?;
        let locks = cerrojo::Locker::new(connect(&site.url_of(&role)).await?);
        for wait in [Duration::ZERO, LONG] {
            let error = locks.acquire("a").wait(wait).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            let said = error.to_string();
            assert!(said.contains("READ COMMITTED") && said.contains("ALTER ROLE"), "{said}");
        }
    }
    Ok(())
}
