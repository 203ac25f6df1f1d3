//! How large tokens are, and what happens when there are no more.

use cerrojo::ErrorKind;

use crate::site::{LONG, Outcome, Site};

/// The sequence of a table ends here: 40 bits.
const LAST: i64 = (1 << 40) - 1;

pub(crate) async fn a_token_is_the_timeline_times_2_to_the_40_plus_a_count(site: Site) -> Outcome {
    let (locks, session) = (site.locks().await?, site.session().await?);
    let timeline = session.number("SELECT timeline_id FROM pg_control_checkpoint()").await?;
    for count in 1..=3 {
        let guard = locks.acquire("a").wait(LONG).await?;
        assert_eq!(guard.token().get(), u64::try_from((timeline << 40) + count)?);
        guard.release().await?;
    }
    Ok(())
}

pub(crate) async fn a_store_without_further_tokens_grants_nothing_and_says_so(
    site: Site,
) -> Outcome {
    let (locks, session) = (site.locks().await?, site.session().await?);
    session.ask(&format!("SELECT setval('\"cerrojo\".\"lock_token\"', {})", LAST - 1)).await?;
    let last = locks.acquire("a").await?;
    assert_eq!(last.token().get() & u64::try_from(LAST)?, u64::try_from(LAST)?);
    for wait in [std::time::Duration::ZERO, LONG] {
        let error = locks.acquire("b").wait(wait).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("reached maximum value of sequence"), "{error}");
    }
    assert_eq!(session.owner("b").await?, None);
    assert_eq!(locks.list(None, 10).await?.len(), 1);
    Ok(last.release().await?)
}
