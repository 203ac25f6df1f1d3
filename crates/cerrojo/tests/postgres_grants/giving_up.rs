//! Who gives up a request takes back what comes of it, also when the request's transaction is not over: its connection was lost, and the server's
//! commit takes long.

use crate::{
    session::{Ask, acquire, release},
    site::{Outcome, Site},
};

const ASK: Ask = Ask { name: "a", owner: 1, ttl_ms: 60_000, waits: false };
/// Whose request comes before.
const OTHER: Ask = Ask { owner: 2, ..ASK };

pub(crate) async fn a_grant_of_a_new_row_that_is_not_committed_yet_is_taken_back(
    site: Site,
) -> Outcome {
    is_taken_back(&site, (ASK, "granted"), "released").await
}

pub(crate) async fn a_grant_of_a_free_row_that_is_not_committed_yet_is_taken_back(
    site: Site,
) -> Outcome {
    let client = site.client().await?;
    client.ask(&acquire(&[OTHER])).await?;
    assert_eq!(client.ask(&release(&[OTHER])).await?, "released");
    is_taken_back(&site, (ASK, "granted"), "released").await
}

pub(crate) async fn a_place_in_line_that_is_not_committed_yet_is_taken_back(site: Site) -> Outcome {
    site.client().await?.ask(&acquire(&[OTHER])).await?;
    is_taken_back(&site, (Ask { waits: true, ..ASK }, "held"), "gone").await
}

async fn is_taken_back(site: &Site, (asked, answer): (Ask, &str), taken_back: &str) -> Outcome {
    let (slow, client, observer) =
        (site.client().await?, site.client().await?, site.session().await?);
    slow.ask("BEGIN").await?;
    assert_eq!(slow.ask(&acquire(&[asked])).await?, answer);
    let call = client.call(&release(&[asked]));
    call.settle(&observer).await?;
    slow.ask("COMMIT").await?;
    let mut said = call.answer().await?;
    if said == "busy" {
        said = client.until_not_busy(&release(&[asked])).await?;
    }
    assert_eq!(said, taken_back);
    assert_ne!(observer.owner(ASK.name).await?, Some(ASK.owner));
    assert_eq!(observer.waiting(ASK.name).await?, 0);
    Ok(())
}

pub(crate) async fn a_release_of_what_never_was_leaves_nothing(site: Site) -> Outcome {
    assert_eq!(site.client().await?.ask(&release(&[ASK])).await?, "gone");
    let rows = site.session().await?.number("SELECT count(*) FROM \"cerrojo\".\"lock\"").await?;
    assert_eq!(rows, 0);
    Ok(())
}
