//! Guarded transactions on PostgreSQL: only the holder makes them, and nobody else is granted the lock before they have ended, whatever is frozen,
//! killed or cut off. One server is shared, with tables for each trial.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failed step fails the test"
)]

mod child;
mod crowd;
mod ending;
mod entering;
mod frozen;
mod grants;
mod limits;
mod site;

use std::{process::ExitCode, sync::Arc};

use cerrojo_testbed::need;
use libtest_mimic::{Arguments, Trial};
use site::{Shared, trial};

/// Trials by the names of their functions.
macro_rules! trials {
    ($shared:expr; $($module:ident :: $name:ident,)*) => {
        vec![$(trial(stringify!($name), $shared, $module::$name)),*]
    };
}

fn all(shared: &Arc<Shared>) -> Vec<Trial> {
    trials![shared;
        entering::a_holder_that_was_overtaken_is_told_both_tokens_and_changes_nothing,
        entering::a_lock_that_has_ended_is_lost_and_nothing_is_changed,
        entering::a_claim_of_another_store_is_refused,
        entering::what_is_sent_together_with_a_refused_guard_is_refused_with_it,
        entering::a_guarded_transaction_may_be_repeatable_read_or_serializable,
        entering::a_guard_that_meets_a_grant_under_way_is_refused,
        entering::two_names_in_opposite_order_never_deadlock,
        grants::an_acquire_after_the_expiry_waits_for_the_transaction,
        grants::a_hand_over_waits_for_the_transaction,
        grants::a_break_waits_for_the_transaction,
        grants::a_transaction_of_three_ttls_keeps_its_lease,
        ending::a_transaction_that_is_dropped_changes_nothing_and_leaves_the_connection_fit,
        ending::a_transaction_dropped_while_it_begins_leaves_the_connection_fit,
        ending::a_transaction_with_a_failed_statement_is_not_committed,
        ending::a_commit_after_the_server_ended_the_session_says_that_nothing_was_done,
        ending::a_commit_after_the_lock_went_to_another_says_stale,
        ending::a_cut_during_the_commit_says_indeterminate,
        frozen::a_client_frozen_inside_holds_others_off_for_its_ttl_and_commits_nothing,
        frozen::a_client_frozen_while_it_reads_is_ended_too,
        frozen::a_client_killed_inside_changes_nothing,
        frozen::a_client_cut_off_inside_changes_nothing,
        limits::the_shorter_limit_counts_and_none_stays,
        crowd::processes_stopped_at_random_lose_no_update,
    ]
}

fn main() -> ExitCode {
    if let Some(code) = child::main() {
        return code;
    }
    let shared = Arc::new(Shared::default());
    let is_ignored = need("postgres").is_ignored();
    let trials = all(&shared).into_iter().map(|trial| trial.with_ignored_flag(is_ignored));
    let mut trials: Vec<_> = trials.collect();
    let is_ignored = is_ignored || need("pgbouncer").is_ignored();
    let pooled = trial(
        "guarded_transactions_work_through_pgbouncer_in_transaction_mode",
        &shared,
        crowd::through_pgbouncer,
    );
    trials.push(pooled.with_ignored_flag(is_ignored));
    let mut arguments = Arguments::from_args();
    // Most of a trial is waiting.
    arguments.test_threads = arguments.test_threads.or(Some(8));
    // The server ends with the last of its trials.
    drop(shared);
    libtest_mimic::run(&arguments, trials).exit_code()
}
