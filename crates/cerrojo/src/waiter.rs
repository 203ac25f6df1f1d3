//! Waiting for stores that cannot wake a waiter: polling with jitter.

use std::{future::Future, time::Duration};

use crate::{
    HolderInfo, Result,
    clock::{self, Instant},
    rng,
    spi::{Acquired, Request},
};

/// How often to ask: the pause starts at `first`, grows by half each time, and is never above `most`.
///
/// Each pause is between half of that and all of it, at random, so that waiters spread out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poll {
    /// The first pause.
    pub first: Duration,
    /// The longest pause.
    pub most: Duration,
}

/// 5 ms, growing to 250 ms.
impl Default for Poll {
    fn default() -> Self {
        Self { first: Duration::from_millis(5), most: Duration::from_millis(250) }
    }
}

/// Asks `attempt` until it grants, waiting is over, or the request is cancelled.
///
/// The last attempt is made when waiting is over, so a lock that becomes free in the last pause is not missed.
///
/// # Errors
///
/// The first that an attempt answers.
///
/// # Cancel safety
///
/// As cancel safe as `attempt`.
pub async fn poll_until_granted<L, A, F>(
    request: &Request,
    poll: Poll,
    mut attempt: A,
) -> Result<Acquired<L>>
where
    A: FnMut() -> F,
    F: Future<Output = Result<Acquired<L>>>,
{
    let mut pause = poll.first;
    loop {
        let last = request.wait().is_over() || request.is_cancelled();
        match attempt().await? {
            Acquired::Refused(refusal) if !last => {
                pause_before_next(request, pause, refusal.holder()).await;
            }
            answer => return Ok(answer),
        }
        pause = (pause * 3 / 2).min(poll.most);
    }
}

/// Sleeps for a jittered `pause`, but not past the end of the holder's TTL or of waiting.
async fn pause_before_next(request: &Request, pause: Duration, holder: Option<&HolderInfo>) {
    let ends_in = holder.and_then(|holder| holder.ends_in).unwrap_or(Duration::MAX);
    let due = Instant::now() + rng::jitter(pause).min(ends_in.max(Duration::from_millis(1)));
    tokio::select! {
        () = request.cancelled() => {}
        _ = request.wait().bound(clock::sleep_until(due)) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ttl, spi::Refusal};

    fn request() -> Request {
        Request::new("x".parse().unwrap(), Ttl::default())
    }

    async fn attempts(request: &Request) -> (u32, Duration) {
        let (mut count, start) = (0, Instant::now());
        let answer = poll_until_granted::<(), _, _>(request, Poll::default(), || {
            count += 1;
            async { Ok(Acquired::Refused(Refusal::default())) }
        });
        assert!(matches!(answer.await, Ok(Acquired::Refused(_))));
        (count, Instant::now().since(start))
    }

    #[tokio::test(start_paused = true)]
    async fn no_wait_is_one_attempt() {
        assert_eq!(attempts(&request()).await.0, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_rate_is_bounded_and_the_deadline_is_kept() {
        let (count, took) = attempts(&request().with_wait(Duration::from_secs(60))).await;
        assert!((240..520).contains(&count), "{count} attempts");
        assert!((60_000..60_010).contains(&took.as_millis()), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn cancelling_ends_the_wait() {
        let request = request().with_wait(crate::spi::Wait::Forever);
        let cancel = request.cancel_handle();
        let (polled, ()) = tokio::join!(attempts(&request), async {
            clock::sleep(Duration::from_secs(1)).await;
            cancel.cancel();
        });
        assert!(polled.1 <= Duration::from_millis(1_010));
    }
}
