//! While a lease is held: renewed, failed, refused, session ended, validity ended.

use std::sync::Arc;

use super::{
    super::{Backoff, Keeper, KeeperOptions},
    script::{
        Call, Fails, Hangs, Script, ScriptedLease, TIMER, VALIDITY, Works, WorksAfter, millis,
        name, secs,
    },
};
use crate::{
    Drift, ErrorKind, LeaseState, OwnerId,
    clock::{self, Instant},
    spi::CALL_LIMIT,
    status::Published,
    watched::Labels,
};

const TICK_MS: u64 = 20;

#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_at_each_third_for_as_long_as_it_is_held() {
    let script = Script::new();
    let (guard, _keeper) = script.hold().await;
    clock::sleep(secs(301)).await;
    let renewals = script.times_of(Call::Renew);
    assert_eq!(guard.state(), LeaseState::Held);
    assert_eq!(guard.renewals(), renewals.len() as u64);
    assert!((30..=31).contains(&renewals.len()), "{} renewals", renewals.len());
    for pair in renewals.windows(2) {
        let apart = pair[1].since(pair[0]);
        assert!(
            apart <= secs(10) + TIMER && apart >= secs(10) - millis(TICK_MS) - TIMER,
            "{apart:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn validity_counts_from_the_request_of_the_renewal_not_from_its_answer() {
    let script = Script::new();
    script.plan(Call::Renew, [WorksAfter(secs(2))]);
    let (guard, _keeper) = script.hold().await;
    clock::sleep(secs(13)).await;
    let asked = script.times_of(Call::Renew)[0];
    assert_eq!(guard.renewals(), 1);
    assert_eq!(guard.valid_until(), Some(asked + VALIDITY));
}

#[tokio::test(start_paused = true)]
async fn hung_renewal_signals_lost_at_end_of_validity() {
    let script = Script::new();
    script.plan(Call::Renew, [Hangs]);
    let (guard, _keeper) = script.hold().await;
    let until = guard.valid_until().unwrap();
    guard.lost().await;
    let now = Instant::now();
    assert!(now >= until && now <= until + TIMER, "{:?} late", now.since(until));
    assert_eq!(guard.state(), LeaseState::Lost);
    assert_eq!(guard.renewals(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_hung_renewal_is_given_up_and_tried_again() {
    let script = Script::new();
    script.plan(Call::Renew, [Hangs, Works]);
    let (guard, _keeper) = script.hold().await;
    clock::sleep(secs(10) + CALL_LIMIT + millis(100)).await;
    assert_eq!((guard.state(), guard.renewals()), (LeaseState::AtRisk, 0));
    clock::sleep(secs(1)).await;
    assert_eq!((guard.state(), guard.renewals()), (LeaseState::Held, 1));
}

#[tokio::test(start_paused = true)]
async fn a_failed_renewal_is_at_risk_until_one_works() {
    let script = Script::new();
    script
        .plan(Call::Renew, [Fails(ErrorKind::Unavailable), Fails(ErrorKind::Indeterminate), Works]);
    let (guard, _keeper) = script.hold().await;
    let until = guard.valid_until().unwrap();
    clock::sleep(secs(10) + TIMER).await;
    assert_eq!(guard.state(), LeaseState::AtRisk);
    assert_eq!(guard.valid_until(), Some(until));
    clock::sleep(secs(4)).await;
    assert_eq!((guard.state(), guard.renewals()), (LeaseState::Held, 1));
    assert!(guard.valid_until() > Some(until));
}

#[tokio::test(start_paused = true)]
async fn failing_renewals_are_tried_with_backoff_until_the_validity_ends() {
    let script = Script::new();
    script.plan(Call::Renew, [Fails(ErrorKind::Unavailable)]);
    let (guard, _keeper) = script.hold().await;
    let until = guard.valid_until().unwrap();
    guard.lost().await;
    let now = Instant::now();
    assert!(now >= until && now <= until + TIMER, "{:?} late", now.since(until));
    // 1, 2, 4 and then 5 s, each between half of that and all of it, in 20 s.
    let tries = script.count(Call::Renew);
    assert!((6..=11).contains(&tries), "{tries} tries");
}

#[tokio::test(start_paused = true)]
async fn a_refused_renewal_is_lost_at_once() {
    let script = Script::new();
    script.plan(Call::Renew, [Works, Fails(ErrorKind::Lost)]);
    let (guard, _keeper) = script.hold().await;
    guard.lost().await;
    assert_eq!(guard.state(), LeaseState::Lost);
    assert_eq!((guard.renewals(), script.count(Call::Renew)), (1, 2));
    assert_eq!(guard.valid_until(), None);
}

#[tokio::test(start_paused = true)]
async fn a_refused_renewal_is_lost_at_once_also_at_risk() {
    let script = Script::new();
    script.plan(Call::Renew, [Fails(ErrorKind::Unavailable), Fails(ErrorKind::Lost)]);
    let (guard, _keeper) = script.hold().await;
    let until = guard.valid_until().unwrap();
    guard.lost().await;
    assert!(Instant::now() < until - secs(15));
    assert_eq!(script.count(Call::Renew), 2);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_ends_is_lost_at_once() {
    let script = Script::new();
    let (guard, _keeper) = script.hold().await;
    let start = Instant::now();
    script.session.cancel();
    guard.lost().await;
    assert!(Instant::now().since(start) <= TIMER);
    assert_eq!(guard.state(), LeaseState::Lost);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_ends_is_lost_at_once_also_at_risk() {
    let script = Script::new();
    script.plan(Call::Renew, [Fails(ErrorKind::Unavailable)]);
    let (guard, _keeper) = script.hold().await;
    clock::sleep(secs(10) + TIMER).await;
    assert_eq!(guard.state(), LeaseState::AtRisk);
    let start = Instant::now();
    script.session.cancel();
    guard.lost().await;
    assert!(Instant::now().since(start) <= TIMER);
}

#[tokio::test(start_paused = true)]
async fn lost_is_final() {
    let script = Script::new();
    script.plan(Call::Renew, [Fails(ErrorKind::Lost), Works]);
    let (guard, _keeper) = script.hold().await;
    guard.lost().await;
    clock::sleep(secs(120)).await;
    assert_eq!(guard.state(), LeaseState::Lost);
    assert_eq!(script.count(Call::Renew), 1);
    guard.lost().await;
}

/// A keeper that nobody runs, of a lease that began now.
fn idle_keeper(script: &Script) -> Keeper<ScriptedLease> {
    let (owner, counted_from) = (OwnerId::random(), Instant::now());
    let lease = ScriptedLease { script: script.clone(), owner, counted_from, provisional: None };
    let valid_until = counted_from + VALIDITY;
    Keeper {
        lease,
        name: name(),
        options: KeeperOptions { drift: Drift::default(), tick: millis(TICK_MS) },
        published: Arc::new(Published::new(valid_until)),
        labels: Labels::new("scripted", None),
        granted_at: counted_from,
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_answered_after_the_end_is_not_published() {
    let mut keeper = idle_keeper(&Script::new());
    keeper.lease.counted_from = Instant::now() + secs(20);
    tokio::time::advance(VALIDITY + millis(1)).await;
    assert!(!keeper.publish_renewal());
    assert!(!keeper.publish_release());
    let status = keeper.published.read();
    assert_eq!(status.state, LeaseState::Lost);
    assert_eq!(status.renewals, 0);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_answered_in_time_is_published() {
    let mut keeper = idle_keeper(&Script::new());
    tokio::time::advance(VALIDITY - millis(1)).await;
    keeper.lease.counted_from = Instant::now() - secs(1);
    assert!(keeper.publish_renewal());
    assert_eq!(keeper.published.read().valid_until, Instant::now() - secs(1) + VALIDITY);
}

#[tokio::test(start_paused = true)]
async fn renewals_of_many_leases_fall_on_one_tick() {
    let script = Script::new();
    let mut held = Vec::new();
    for _ in 0..12 {
        held.push(script.hold().await);
        clock::sleep(millis(1)).await;
    }
    clock::sleep(secs(12)).await;
    let renewals = script.times_of(Call::Renew);
    assert_eq!(renewals.len(), 12);
    let mut ticks: Vec<_> = renewals.iter().map(|at| at.floor_to(millis(TICK_MS))).collect();
    for (at, tick) in renewals.iter().zip(&ticks) {
        assert!(at.since(*tick) <= TIMER, "{:?} beside the tick", at.since(*tick));
    }
    ticks.dedup();
    assert!(ticks.len() <= 2, "{} wake-ups for what was acquired within one tick", ticks.len());
}

#[test]
fn backoff_grows_from_a_thirtieth_to_a_sixth_and_never_beyond_five_seconds() {
    for (ttl, most) in [(millis(600), millis(100)), (secs(30), secs(5)), (secs(86_400), secs(5))] {
        let mut backoff = Backoff::default();
        let first = backoff.next(ttl);
        assert!(
            first <= (ttl / 30).min(most) && first >= (ttl / 30).min(most) / 2,
            "{first:?} of {ttl:?}"
        );
        for _ in 0..100 {
            assert!(backoff.next(ttl) <= most);
        }
        assert!(backoff.next(ttl) >= most / 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_provisional_grant_is_handed_out_at_once_and_renewed_soon() {
    let script = Script::handing_over();
    let start = Instant::now();
    let (guard, _keeper) = script.hold().await;
    assert_eq!(script.count(Call::Renew), 0);
    clock::sleep(millis(20) + TIMER).await;
    assert_eq!(script.count(Call::Renew), 1);
    assert!(guard.valid_until().unwrap() >= start + VALIDITY);
    clock::sleep(secs(9)).await;
    assert_eq!(script.count(Call::Renew), 1);
}

#[tokio::test(start_paused = true)]
async fn a_provisional_grant_that_is_given_back_soon_is_never_renewed() {
    let script = Script::handing_over();
    let (guard, _keeper) = script.hold().await;
    clock::sleep(millis(5)).await;
    guard.release().await.unwrap();
    assert_eq!((script.count(Call::Renew), script.count(Call::Release)), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_provisional_grant_that_cannot_be_renewed_ends_with_its_own_ttl() {
    let script = Script::handing_over();
    script.plan(Call::Renew, [Hangs]);
    let start = Instant::now();
    let (guard, _keeper) = script.hold().await;
    guard.lost().await;
    let lost = Instant::now().since(start);
    assert!(lost <= secs(2), "{lost:?}");
    assert!(lost >= millis(1_900), "{lost:?}");
}

#[tokio::test(start_paused = true)]
async fn a_provisional_grant_that_is_detached_has_its_whole_ttl_first() {
    let script = Script::handing_over();
    script.plan(Call::Renew, [Works]);
    let (guard, keeper) = script.hold().await;
    guard.detach().await.unwrap();
    keeper.await.unwrap();
    assert_eq!(script.count(Call::Renew), 1);
    assert_eq!(script.count(Call::Release), 0);
}

#[tokio::test(start_paused = true)]
async fn a_provisional_grant_that_cannot_be_renewed_is_not_left_standing() {
    for kind in [ErrorKind::Lost, ErrorKind::Unavailable] {
        let script = Script::handing_over();
        script.plan(Call::Renew, [Fails(kind)]);
        let (guard, keeper) = script.hold().await;
        assert_eq!(guard.detach().await.unwrap_err().kind(), kind);
        keeper.await.unwrap();
        assert!(script.count(Call::Release) >= 1);
    }
}
