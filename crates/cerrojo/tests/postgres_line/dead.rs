//! Waiters that are dead, stopped or cut off when their turn comes.

use crate::{
    line::{
        PROVISIONAL, SLACK,
        dead::{enters_in_its_turn, hand_over, queued, same},
    },
    site::{Outcome, Site},
};

pub(crate) use crate::line::dead::{
    a_head_that_is_cut_off_delays_the_rest_by_two_seconds,
    a_stopped_head_delays_the_rest_by_two_seconds_and_enters_in_its_turn,
    two_stopped_heads_delay_the_rest_by_four_seconds,
};

pub(crate) async fn a_killed_head_delays_the_rest_by_two_seconds(site: Site) -> Outcome {
    let (guard, mut children) = queued(&site, &same(&site, 3)).await?;
    children[0].0.kill()?;
    let delay = hand_over(guard, &children[1]).await?;
    assert!(delay < PROVISIONAL + SLACK, "{delay:?}");
    children[1].release()?;
    children[2].granted()?;
    children[2].release()?;
    site.until_waiting(0).await
}

/// For as long as a place is kept; here the clock of its place is set ahead.
pub(crate) async fn a_head_of_whom_nothing_was_heard_for_long_has_left_the_line(
    site: Site,
) -> Outcome {
    let (guard, mut children) = queued(&site, &same(&site, 3)).await?;
    children[0].0.freeze()?;
    let older = "UPDATE LOCK_waiter SET alive_until = alive_until - interval '30 s' \
        WHERE place = (SELECT min(place) FROM LOCK_waiter)";
    site.look(older).await?;
    let delay = hand_over(guard, &children[1]).await?;
    assert!(delay < PROVISIONAL, "{delay:?}");
    site.until_waiting(1).await?;
    // It comes again, behind the others.
    children[0].0.thaw()?;
    enters_in_its_turn(&site, &mut children).await
}
