//! Clients that stand still inside: others are held off for the TTL at most, and nothing is committed.

use cerrojo::{FencedGuard, clock};
use cerrojo_testbed::{Direction, Process, Proxy};

use crate::{
    child,
    site::{LONG, NAME, Outcome, Site, client, millis, soon, ttl, until},
};

/// Enters behind the child, adds one, and says what it found.
async fn enter_after(site: &Site, inside: &Process) -> Outcome<FencedGuard> {
    let ((store, locks), mut client) = (site.locks().await?, site.client().await?);
    let guard = soon("a grant", locks.acquire(NAME).wait(LONG).into_future()).await??;
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'child-PID'";
    let sessions = sessions.replace("PID", &inside.id().to_string());
    until("the end of the session", async || Ok(site.server.superuser_sql(&sessions)? == "0"))
        .await?;
    assert_eq!(site.balance()?, 0);
    let transaction = store.transaction(&guard, &mut client).await?;
    transaction.execute(&site.add_one(), &[]).await?;
    transaction.commit().await?;
    Ok(guard)
}

pub(crate) async fn a_client_frozen_inside_holds_others_off_for_its_ttl_and_commits_nothing(
    site: Site,
) -> Outcome {
    let mut inside = child::adder(&site, 1_500)?;
    inside.freeze()?;
    let guard = enter_after(&site, &inside).await?;
    inside.thaw()?;
    let said = inside.ask("commit", LONG)?;
    assert!(said.starts_with("error lost"), "{said}");
    assert_eq!(site.balance()?, 1);
    Ok(guard.release().await?)
}

/// The server cannot send, so it is not idle.
pub(crate) async fn a_client_frozen_while_it_reads_is_ended_too(site: Site) -> Outcome {
    let mut inside = child::reader(&site, 1_500)?;
    inside.freeze()?;
    let guard = enter_after(&site, &inside).await?;
    inside.kill()?;
    Ok(guard.release().await?)
}

pub(crate) async fn a_client_killed_inside_changes_nothing(site: Site) -> Outcome {
    let mut inside = child::adder(&site, 1_500)?;
    inside.kill()?;
    Ok(enter_after(&site, &inside).await?.release().await?)
}

/// Its lease goes on, since only the user's own connection is cut off.
pub(crate) async fn a_client_cut_off_inside_changes_nothing(site: Site) -> Outcome {
    let (store, locks) = site.locks().await?;
    let proxy = Proxy::start(site.server.port())?;
    let mut client = client(&site.client_url_at(proxy.port())).await?;
    let guard = locks.acquire(NAME).ttl(ttl(1_500)).await?;
    let transaction = store.transaction(&guard, &mut client).await?;
    transaction.execute(&site.add_one(), &[]).await?;
    proxy.hold(Direction::ToServer)?;
    proxy.hold(Direction::ToClient)?;
    let committing = clock::within(millis(3_000), transaction.commit()).await;
    assert!(committing.is_err(), "an answer came through");
    proxy.cut()?;
    // A release waits for the transaction, and so for its end.
    soon("a release", guard.release()).await??;
    assert_eq!(site.balance()?, 0);
    let guard = soon("a grant", locks.acquire(NAME).wait(LONG).into_future()).await??;
    Ok(guard.release().await?)
}
