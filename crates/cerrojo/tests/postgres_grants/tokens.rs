//! Tokens of a name rise, whatever becomes of its row between the request and the grant.

use cerrojo::Instant;

use crate::{
    session::{Ask, acquire, prune, release},
    site::{Outcome, Site, soon, ttl},
};

const NAME: &str = "a";
const EARLIER: Ask = Ask { name: NAME, owner: 1, ttl_ms: 60_000, waits: false };
const LATER: Ask = Ask { owner: 2, ..EARLIER };

pub(crate) async fn a_grant_that_met_a_new_row_has_the_greater_token(site: Site) -> Outcome {
    overtaken(&site, "INSERT INTO \"cerrojo\".\"lock\" (name) VALUES ('a')").await
}

pub(crate) async fn a_grant_that_met_a_taken_row_has_the_greater_token(site: Site) -> Outcome {
    make_free(&site).await?;
    overtaken(&site, "SELECT FROM \"cerrojo\".\"lock\" FOR UPDATE").await
}

pub(crate) async fn a_grant_that_met_a_pruned_row_has_the_greater_token(site: Site) -> Outcome {
    make_free(&site).await?;
    overtaken(&site, &prune()).await
}

/// Somebody's transaction has the row before the later request comes, and is granted the lock, and gives it back, after that has come.
async fn overtaken(site: &Site, take_row: &str) -> Outcome {
    let (somebody, later, observer) =
        (site.session().await?, site.client().await?, site.session().await?);
    somebody.ask("BEGIN").await?;
    somebody.ask(take_row).await?;
    let call = later.call(&acquire(&[LATER]));
    call.settle(&observer).await?;
    assert_eq!(somebody.ask(&acquire(&[EARLIER])).await?, "granted");
    let token = somebody.token(NAME).await?;
    assert_eq!(somebody.ask(&release(&[EARLIER])).await?, "released");
    somebody.ask("COMMIT").await?;
    if call.answer().await? == "busy" {
        assert_eq!(later.until_not_busy(&acquire(&[LATER])).await?, "granted");
    }
    assert!(observer.token(NAME).await? > token);
    Ok(())
}

/// By a late request of its owner, say.
pub(crate) async fn a_grant_whose_owner_was_granted_anew_is_lost_at_its_next_renewal(
    site: Site,
) -> Outcome {
    let guard = site.locks().await?.acquire(NAME).ttl(ttl(9_000)).await?;
    let session = site.session().await?;
    session
        .ask("UPDATE \"cerrojo\".\"lock\" SET token = \"cerrojo\".\"lock_next_token\"()")
        .await?;
    let end = guard.valid_until().ok_or("it is lost already")?;
    soon("a loss", guard.lost()).await?;
    assert!(Instant::now() < end, "nobody looked at the token");
    Ok(())
}

async fn make_free(site: &Site) -> Outcome {
    let session = site.client().await?;
    assert_eq!(session.ask(&acquire(&[EARLIER])).await?, "granted");
    assert_eq!(session.ask(&release(&[EARLIER])).await?, "released");
    Ok(())
}
