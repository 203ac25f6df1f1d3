//! Before a guard is handed out: refusals, errors, outages and grants that come late.

use super::script::{
    Call, Fails, Hangs, Script, TIMER, VALIDITY, Works, WorksAfter, WorksSince, secs,
};
use crate::{
    Deadline, ErrorKind, LeaseState,
    clock::{self, Instant},
    spi::Wait,
};

fn within(length: std::time::Duration) -> Wait {
    Wait::Until(Deadline::after(length))
}

#[tokio::test(start_paused = true)]
async fn a_refusal_says_who_holds_it_and_nothing_is_given_back() {
    let script = Script::new();
    script.plan(Call::Acquire, [Fails(ErrorKind::Contended)]);
    let (keeper, answer) = script.serve(Wait::No, None);
    let error = answer.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended);
    assert!(error.holder().is_some());
    keeper.await.unwrap();
    assert_eq!((script.count(Call::GiveBack), script.count(Call::Release)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_unknown_acquire_is_asked_again_by_the_same_owner() {
    let script = Script::new();
    let failures = [Fails(ErrorKind::Indeterminate), Fails(ErrorKind::Unavailable), Works];
    script.plan(Call::Acquire, failures);
    let (_keeper, answer) = script.serve(within(secs(10)), None);
    let guard = answer.await.unwrap().unwrap();
    let owners = script.owners_of(Call::Acquire);
    assert_eq!(owners, [owners[0]; 3]);
    assert_eq!(script.count(Call::GiveBack), 0);
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_acquire_that_does_not_wait_is_given_back_at_once() {
    let script = Script::new();
    script.plan(Call::Acquire, [Fails(ErrorKind::Indeterminate)]);
    let (_keeper, answer) = script.serve(Wait::No, None);
    assert_eq!(answer.await.unwrap().unwrap_err().kind(), ErrorKind::Indeterminate);
    assert_eq!(script.owners_of(Call::GiveBack), script.owners_of(Call::Acquire));
}

#[tokio::test(start_paused = true)]
async fn an_outage_ends_at_the_deadline() {
    let script = Script::new();
    script.plan(Call::Acquire, [Fails(ErrorKind::Unavailable)]);
    let start = Instant::now();
    let (_keeper, answer) = script.serve(within(secs(20)), None);
    assert_eq!(answer.await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
    let took = Instant::now().since(start);
    assert!(took >= secs(20) && took <= secs(20) + TIMER, "{took:?}");
    assert_eq!(script.count(Call::GiveBack), 1);
    let asked = script.times_of(Call::Acquire);
    assert!((20..=60).contains(&asked.len()), "asked {} times", asked.len());
    assert!(asked.windows(2).all(|pair| pair[1].since(pair[0]) <= secs(1) + TIMER));
}

#[tokio::test(start_paused = true)]
async fn an_outage_without_a_deadline_ends_with_patience() {
    let script = Script::new();
    script.plan(Call::Acquire, [Fails(ErrorKind::Unavailable)]);
    let start = Instant::now();
    let (_keeper, answer) = script.serve(Wait::Forever, None);
    assert_eq!(answer.await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
    let took = Instant::now().since(start);
    assert!(took >= secs(30) && took <= secs(31) + TIMER, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn what_asking_again_cannot_help_is_not_asked_again() {
    for kind in [ErrorKind::Invalid, ErrorKind::Corrupt] {
        let script = Script::new();
        script.plan(Call::Acquire, [Fails(kind)]);
        let (_keeper, answer) = script.serve(Wait::Forever, None);
        assert_eq!(answer.await.unwrap().unwrap_err().kind(), kind);
        assert_eq!(script.count(Call::Acquire), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn giving_back_that_hangs_does_not_keep_the_caller_for_ever() {
    let script = Script::new();
    script.plan(Call::Acquire, [Fails(ErrorKind::Indeterminate)]).plan(Call::GiveBack, [Hangs]);
    let (_keeper, answer) = script.serve(Wait::No, None);
    let answer = clock::within(secs(6), answer).await;
    assert_eq!(answer.unwrap().unwrap().unwrap_err().kind(), ErrorKind::Indeterminate);
}

#[tokio::test(start_paused = true)]
async fn late_handover_is_renewed_before_it_is_handed_out() {
    let script = Script::new();
    script.plan(Call::Acquire, [WorksSince(secs(16))]);
    let start = Instant::now();
    let (_keeper, answer) = script.serve(Wait::Forever, None);
    let guard = answer.await.unwrap().unwrap();
    assert_eq!(script.times_of(Call::Renew), [start]);
    assert_eq!(guard.valid_until(), Some(start + VALIDITY));
    assert_eq!(guard.state(), LeaseState::Held);
}

#[tokio::test(start_paused = true)]
async fn a_handover_with_most_of_its_ttl_is_handed_out_as_it_is() {
    let script = Script::new();
    script.plan(Call::Acquire, [WorksSince(secs(9))]);
    let (_keeper, answer) = script.serve(Wait::Forever, None);
    let guard = answer.await.unwrap().unwrap();
    assert_eq!(script.count(Call::Renew), 0);
    assert!(guard.remaining() <= secs(21));
}

#[tokio::test(start_paused = true)]
async fn a_late_handover_that_cannot_be_renewed_is_asked_for_anew_by_another_owner() {
    let script = Script::new();
    script.plan(Call::Acquire, [WorksSince(secs(29)), Works]);
    script.plan(Call::Renew, [Fails(ErrorKind::Lost)]);
    let (_keeper, answer) = script.serve(Wait::Forever, None);
    let guard = answer.await.unwrap().unwrap();
    let owners = script.owners_of(Call::Acquire);
    assert_eq!(owners.len(), 2);
    assert_ne!(owners[0], owners[1]);
    assert_eq!(script.owners_of(Call::Release), [owners[0]]);
    assert_eq!(guard.state(), LeaseState::Held);
}

#[tokio::test(start_paused = true)]
async fn grants_that_always_come_too_late_are_an_error_and_given_back() {
    let script = Script::new();
    script.plan(Call::Acquire, [WorksSince(secs(31))]);
    script.plan(Call::Renew, [Fails(ErrorKind::Unavailable)]);
    let (keeper, answer) = script.serve(Wait::Forever, None);
    assert_eq!(answer.await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
    keeper.await.unwrap();
    assert_eq!(script.owners_of(Call::Release), script.owners_of(Call::Acquire));
    assert_eq!(script.count(Call::Release), 3);
}

#[tokio::test(start_paused = true)]
async fn a_slow_answer_counts_from_its_request() {
    let script = Script::new();
    script.plan(Call::Acquire, [WorksAfter(secs(4))]);
    let start = Instant::now();
    let (guard, _keeper) = script.hold().await;
    assert_eq!(guard.valid_until(), Some(start + VALIDITY));
    assert!(guard.remaining() <= VALIDITY - secs(4));
    // And so it is renewed a third after the request, not after the answer.
    clock::sleep(secs(6) + TIMER).await;
    assert_eq!(guard.renewals(), 1);
}
