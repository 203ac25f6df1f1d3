//! The end of a lease: asked for by its guard, in every state, and answered in every way.

use std::sync::Arc;

use super::script::{
    Call, Fails, Hangs, Script, TIMER, VALIDITY, Works, WorksAfter, millis, name, secs,
};
use crate::{
    ErrorKind, LeaseState,
    clock::{self, Instant},
    queue::Queue,
    spi::{CALL_LIMIT, Wait},
};

#[tokio::test(start_paused = true)]
async fn release_while_held_is_sent_once_and_answered() {
    let script = Script::new();
    let (guard, keeper) = script.hold().await;
    let signal = guard.signal();
    guard.release().await.unwrap();
    assert_eq!(signal.state(), LeaseState::Released);
    keeper.await.unwrap();
    assert_eq!((script.count(Call::Release), script.count(Call::Renew)), (1, 0));
    assert!(clock::within(secs(3600), signal.lost()).await.is_err(), "lost after a release");
}

#[tokio::test(start_paused = true)]
async fn release_at_risk_is_sent_and_answered() {
    let script = Script::new();
    script.plan(Call::Renew, [Fails(ErrorKind::Unavailable)]);
    let (guard, keeper) = script.hold().await;
    clock::sleep(secs(10) + TIMER).await;
    assert_eq!(guard.state(), LeaseState::AtRisk);
    guard.release().await.unwrap();
    keeper.await.unwrap();
    assert_eq!(script.count(Call::Release), 1);
}

#[tokio::test(start_paused = true)]
async fn release_does_not_wait_for_a_renewal_that_hangs() {
    let script = Script::new();
    script.plan(Call::Renew, [Hangs]);
    let (guard, _keeper) = script.hold().await;
    clock::sleep(secs(11)).await;
    let start = Instant::now();
    guard.release().await.unwrap();
    assert!(Instant::now().since(start) <= TIMER);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_guard_is_released() {
    let script = Script::new();
    let (guard, keeper) = script.hold().await;
    let signal = guard.signal();
    drop(guard);
    keeper.await.unwrap();
    assert_eq!(script.count(Call::Release), 1);
    assert_eq!(signal.state(), LeaseState::Released);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_is_dropped_goes_on() {
    let script = Script::new();
    script.plan(Call::Release, [WorksAfter(secs(2))]);
    let (guard, keeper) = script.hold().await;
    let start = Instant::now();
    assert!(clock::within(secs(1), guard.release()).await.is_err());
    keeper.await.unwrap();
    assert_eq!(script.count(Call::Release), 1);
    assert!(Instant::now().since(start) >= secs(2));
}

#[tokio::test(start_paused = true)]
async fn release_of_what_is_not_held_says_lost() {
    let script = Script::new();
    script.plan(Call::Release, [Fails(ErrorKind::Lost)]);
    let (guard, keeper) = script.hold().await;
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    keeper.await.unwrap();
    assert_eq!(script.count(Call::Release), 1);
}

#[tokio::test(start_paused = true)]
async fn release_is_asked_again_while_unknown() {
    for kind in [ErrorKind::Indeterminate, ErrorKind::Unavailable] {
        let script = Script::new();
        script.plan(Call::Release, [Fails(kind), Fails(kind), Works]);
        let (guard, keeper) = script.hold().await;
        assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Indeterminate);
        keeper.await.unwrap();
        assert_eq!(script.count(Call::Release), 3);
        assert_eq!(script.owners_of(Call::Release), [script.owners_of(Call::Acquire)[0]; 3]);
    }
}

#[tokio::test(start_paused = true)]
async fn release_is_not_asked_again_after_the_ttl() {
    let script = Script::new();
    script.plan(Call::Release, [Fails(ErrorKind::Unavailable)]);
    let (guard, keeper) = script.hold().await;
    let granted = Instant::now();
    guard.release().await.unwrap_err();
    keeper.await.unwrap();
    let took = Instant::now().since(granted);
    assert!(took >= VALIDITY && took <= VALIDITY + secs(5) + TIMER, "{took:?}");
    let tries = script.count(Call::Release);
    assert!((7..=17).contains(&tries), "{tries} tries");
}

#[tokio::test(start_paused = true)]
async fn a_release_that_hangs_is_unknown_at_the_call_limit() {
    let script = Script::new();
    script.plan(Call::Release, [Hangs, Works]);
    let (guard, keeper) = script.hold().await;
    let start = Instant::now();
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Indeterminate);
    assert!(Instant::now().since(start) <= CALL_LIMIT + TIMER);
    keeper.await.unwrap();
    assert_eq!(script.count(Call::Release), 2);
}

#[tokio::test(start_paused = true)]
async fn after_a_loss_release_is_sent_once_and_not_before_the_validity_ends() {
    let script = Script::new();
    script.plan(Call::Renew, [Fails(ErrorKind::Lost)]);
    script.plan(Call::Release, [Fails(ErrorKind::Unavailable)]);
    let (guard, keeper) = script.hold().await;
    let until = guard.valid_until().unwrap();
    guard.lost().await;
    assert!(Instant::now() < until);
    keeper.await.unwrap();
    let released = script.times_of(Call::Release);
    assert_eq!(released.len(), 1);
    assert!(released[0] >= until && released[0] <= until + TIMER);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test(start_paused = true)]
async fn after_a_loss_release_is_sent_as_soon_as_the_guard_goes() {
    let script = Script::new();
    script.plan(Call::Renew, [Fails(ErrorKind::Lost)]);
    let (guard, keeper) = script.hold().await;
    guard.lost().await;
    clock::sleep(secs(1)).await;
    let dropped = Instant::now();
    drop(guard);
    keeper.await.unwrap();
    let released = script.times_of(Call::Release);
    assert_eq!(released.len(), 1);
    assert!(released[0].since(dropped) <= TIMER);
}

#[tokio::test(start_paused = true)]
async fn release_after_a_loss_says_lost_whatever_the_store_says() {
    for answer in [Works, Fails(ErrorKind::Lost), Fails(ErrorKind::Unavailable), Hangs] {
        let script = Script::new();
        script.plan(Call::Renew, [Fails(ErrorKind::Lost)]);
        script.plan(Call::Release, [answer]);
        let (guard, keeper) = script.hold().await;
        guard.lost().await;
        assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
        keeper.await.unwrap();
        assert_eq!(script.count(Call::Release), 1, "{answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn release_after_the_validity_says_lost_and_is_sent_once() {
    let script = Script::new();
    script.plan(Call::Renew, [Hangs]);
    let (guard, keeper) = script.hold().await;
    guard.lost().await;
    keeper.await.unwrap();
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(script.count(Call::Release), 1);
}

#[tokio::test(start_paused = true)]
async fn a_grant_whose_caller_is_gone_is_given_back() {
    let script = Script::new();
    script.plan(Call::Acquire, [WorksAfter(secs(1))]);
    let (keeper, answer) = script.serve(Wait::No, None);
    drop(answer);
    keeper.await.unwrap();
    assert_eq!(script.owners_of(Call::Release), script.owners_of(Call::Acquire));
    assert_eq!(script.count(Call::Renew), 0);
}

#[tokio::test(start_paused = true)]
async fn a_turn_is_kept_until_the_lease_has_been_given_back() {
    let script = Script::new();
    script.plan(Call::Release, [WorksAfter(secs(2))]);
    let queue = Arc::new(Queue::default());
    let turn = queue.turn(&name()).await;
    let (_keeper, answer) = script.serve(Wait::Forever, Some(turn));
    let guard = answer.await.unwrap().unwrap();
    assert!(
        clock::within(secs(60), queue.turn(&name())).await.is_err(),
        "two of one process at the store"
    );
    drop(guard);
    assert!(
        clock::within(millis(1_900), queue.turn(&name())).await.is_err(),
        "asked before the release"
    );
    assert!(clock::within(millis(200), queue.turn(&name())).await.is_ok());
}
