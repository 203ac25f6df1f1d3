//! Waiters that are dead, stopped or cut off when their turn comes.

use crate::{
    line::{
        PROVISIONAL,
        dead::{hand_over, queued, same},
    },
    site::{Outcome, Site, eventually},
};

pub(crate) use crate::line::dead::{
    a_head_that_is_cut_off_delays_the_rest_by_two_seconds,
    a_stopped_head_delays_the_rest_by_two_seconds_and_enters_in_its_turn,
    two_stopped_heads_delay_the_rest_by_four_seconds,
};

pub(crate) async fn a_killed_head_delays_nobody(site: Site) -> Outcome {
    let (guard, mut children) = queued(&site, &same(&site, 3)).await?;
    children[0].0.kill()?;
    eventually("the server notices", || {
        Ok(site.ask(&["PUBSUB", "CHANNELS"])?.to_string().split(' ').count() == 3)
    })
    .await?;
    let delay = hand_over(guard, &children[1]).await?;
    assert!(delay < PROVISIONAL, "{delay:?}");
    children[1].release()?;
    children[2].granted()?;
    Ok(())
}
