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
#[macro_use]
#[path = "../trials/named.rs"]
mod named;
mod site;

use std::process::ExitCode;

use cerrojo_testbed::need;
use libtest_mimic::Trial;
use site::{Shared, run};

fn all(shared: &Shared) -> Vec<Trial> {
    named![|name, proof| shared.trial(name, proof);
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
    child::main().unwrap_or_else(|| {
        let shared = Shared::default();
        let mut trials = all(&shared);
        trials.push(pooled(&shared));
        run("postgres", trials, 8)
    })
}

fn pooled(shared: &Shared) -> Trial {
    let name = "guarded_transactions_work_through_pgbouncer_in_transaction_mode";
    shared.trial(name, crowd::through_pgbouncer).with_ignored_flag(need("pgbouncer").is_ignored())
}
