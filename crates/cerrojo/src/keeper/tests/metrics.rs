//! What is counted, under which labels.

use std::collections::BTreeMap;

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

use super::script::{Call, Fails, Hangs, Script, Scripted, Works, secs};
use crate::{
    ErrorKind, Locker, Options, clock,
    spi::Wait,
    watched::{ACQUISITIONS, AT_RISK, HOLD, LOST, RENEWALS_FAILED, WAIT, WAITERS},
};

/// Runs `work` on one thread in paused time, and returns what was counted: `name{labels}` and its value.
fn counted<F: Future<Output = ()>>(work: impl FnOnce() -> F) -> BTreeMap<String, f64> {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    metrics::with_local_recorder(&recorder, || runtime.block_on(work()));
    read(&snapshotter)
}

fn read(snapshotter: &Snapshotter) -> BTreeMap<String, f64> {
    let entries = snapshotter.snapshot().into_vec().into_iter();
    entries
        .map(|(key, _, _, value)| {
            let labels =
                key.key().labels().map(|label| format!("{}={}", label.key(), label.value()));
            let labels = labels.collect::<Vec<_>>().join(",");
            (format!("{}{{{labels}}}", key.key().name()), number(&value))
        })
        .collect()
}

/// A counter's or gauge's value; how many values a histogram has.
fn number(value: &DebugValue) -> f64 {
    match value {
        DebugValue::Counter(count) => f64::from(u32::try_from(*count).unwrap()),
        DebugValue::Gauge(gauge) => gauge.into_inner(),
        DebugValue::Histogram(values) => f64::from(u32::try_from(values.len()).unwrap()),
    }
}

fn locker(script: &Script) -> Locker<Scripted> {
    Locker::new(Scripted(script.clone()))
}

#[test]
fn acquisitions_are_counted_by_outcome_and_reason() {
    let seen = counted(|| async {
        let script = Script::new();
        let answers = [Works, Fails(ErrorKind::Contended), Fails(ErrorKind::Unavailable), Works];
        script.plan(Call::Acquire, answers);
        let locker = locker(&script);
        for _ in 0..4 {
            drop(locker.try_acquire("job").await);
        }
        clock::sleep(secs(1)).await;
    });
    let of = |outcome, reason| {
        format!("{ACQUISITIONS}{{backend=scripted,outcome={outcome},reason={reason}}}")
    };
    assert_eq!(seen[&of("granted", "none")], 2.0);
    assert_eq!(seen[&of("failed", "contended")], 1.0);
    assert_eq!(seen[&of("failed", "unavailable")], 1.0);
    assert_eq!(seen[&format!("{WAIT}{{backend=scripted,outcome=granted}}")], 2.0);
    assert_eq!(seen[&format!("{WAIT}{{backend=scripted,outcome=failed}}")], 2.0);
    assert_eq!(seen[&format!("{HOLD}{{backend=scripted}}")], 2.0);
    assert_eq!(seen[&format!("{WAITERS}{{backend=scripted}}")], 0.0);
    assert!(seen.keys().all(|key| !key.contains("job")), "the name is a label unasked: {seen:?}");
}

#[test]
fn waiters_are_counted_while_they_wait() {
    let seen = counted(|| async {
        let script = Script::new();
        script.plan(Call::Acquire, [Hangs]);
        let locker = locker(&script);
        let waiting = [1, 2, 3].map(|number| {
            let locker = locker.clone();
            tokio::spawn(async move { locker.acquire(format!("job/{number}")).await.map(drop) })
        });
        clock::sleep(secs(1)).await;
        let [first, ..] = &waiting;
        first.abort();
        clock::sleep(secs(1)).await;
    });
    assert_eq!(seen[&format!("{WAITERS}{{backend=scripted}}")], 2.0);
}

#[test]
fn trouble_is_counted_by_what_it_was() {
    let seen = counted(|| async {
        let script = Script::new();
        let failed = Fails(ErrorKind::Unavailable);
        script.plan(Call::Renew, [failed, failed, Works, failed, Fails(ErrorKind::Lost)]);
        let guard = locker(&script).acquire("job").await.unwrap();
        guard.lost().await;
        let other = Script::new();
        let guard = locker(&other).acquire("job").await.unwrap();
        other.session.cancel();
        guard.lost().await;
        let hung = Script::new();
        hung.plan(Call::Renew, [Hangs]);
        let guard = locker(&hung).acquire("job").await.unwrap();
        guard.lost().await;
        clock::sleep(secs(1)).await;
    });
    let lost = |reason| seen[&format!("{LOST}{{backend=scripted,reason={reason}}}")];
    assert_eq!((lost("refused"), lost("session_ended"), lost("validity_ended")), (1.0, 1.0, 1.0));
    // Three failures in two runs, and the hung ones of the last lease in one.
    assert_eq!(seen[&format!("{AT_RISK}{{backend=scripted}}")], 3.0);
    assert!(seen[&format!("{RENEWALS_FAILED}{{backend=scripted}}")] >= 4.0, "{seen:?}");
    assert_eq!(seen[&format!("{HOLD}{{backend=scripted}}")], 3.0);
}

#[test]
fn the_lock_name_is_a_label_on_request() {
    let seen = counted(|| async {
        let options = Options { label_lock_name: true, ..Options::default() };
        let locker = Locker::with_options(Scripted(Script::new()), options);
        locker.acquire("job").wait(Wait::No).await.unwrap().release().await.unwrap();
    });
    assert_eq!(seen[&format!("{HOLD}{{backend=scripted,lock=job}}")], 1.0);
}
