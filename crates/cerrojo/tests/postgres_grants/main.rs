//! PostgreSQL: who is granted a lock and by which token, with the row held in between, in crowds, over crashes, promotions and restores; and
//! what making the tables does. One server is shared, with a table for each trial; those that are broken are a trial's own.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failed step fails the test"
)]

mod crash;
mod crowds;
mod expiry;
mod failover;
mod foreign;
mod giving_up;
mod init;
mod limits;
mod rights;
mod session;
#[macro_use]
#[path = "../trials/named.rs"]
mod named;
mod site;
mod tokens;
mod waiters;

use std::process::ExitCode;

use libtest_mimic::Trial;
use site::{Shared, run};

fn all(shared: &Shared) -> Vec<Trial> {
    named![|name, proof| shared.trial(name, proof);
        waiters::who_queues_while_the_lock_is_released_is_made_the_owner,
        waiters::who_queues_while_the_lock_is_broken_is_made_the_owner,
        waiters::who_asks_while_the_lock_is_released_is_not_left_waiting,
        waiters::who_asks_while_the_lock_is_broken_is_not_left_waiting,
        waiters::a_release_is_asked_again_until_the_row_is_nobodys,
        waiters::news_from_before_the_latest_request_are_not_taken_for_a_grant,
        tokens::a_grant_whose_owner_was_granted_anew_is_lost_at_its_next_renewal,
        tokens::a_grant_that_met_a_new_row_has_the_greater_token,
        tokens::a_grant_that_met_a_taken_row_has_the_greater_token,
        tokens::a_grant_that_met_a_pruned_row_has_the_greater_token,
        foreign::a_takeover_waits_for_a_guarded_transaction_and_delays_no_other_name,
        foreign::a_grant_of_a_free_lock_waits_for_a_guarded_transaction_and_delays_no_other_name,
        foreign::a_hand_over_waits_for_a_guarded_transaction_and_delays_no_other_name,
        foreign::a_break_waits_for_a_guarded_transaction,
        foreign::renewals_waiters_and_late_breaks_pass_a_guarded_transaction,
        foreign::a_row_that_is_being_made_delays_no_other_name,
        foreign::many_rows_that_are_being_made_delay_no_other_name,
        foreign::a_busy_lock_is_asked_again_until_the_deadline_and_never_contended,
        foreign::a_lock_that_is_busy_to_the_end_costs_no_connection,
        giving_up::a_grant_of_a_new_row_that_is_not_committed_yet_is_taken_back,
        giving_up::a_grant_of_a_free_row_that_is_not_committed_yet_is_taken_back,
        giving_up::a_place_in_line_that_is_not_committed_yet_is_taken_back,
        giving_up::a_release_of_what_never_was_leaves_nothing,
        expiry::a_grant_that_had_to_wait_has_its_whole_ttl,
        expiry::a_lease_that_ends_while_it_is_asked_for_is_not_granted_past_a_guard,
        expiry::a_grant_in_a_long_transaction_has_its_whole_ttl,
        expiry::a_renewal_in_a_long_transaction_sets_the_whole_ttl,
        expiry::a_hand_over_in_a_long_transaction_lasts_two_seconds_from_then,
        crowds::sixty_four_sessions_on_one_name_whose_connections_are_ended,
        crowds::names_in_different_orders_while_all_are_broken_and_pruned,
        crash::a_server_killed_amid_grants_forgets_none_and_repeats_no_token,
        crash::a_role_with_another_isolation_level_is_told_which_the_locks_need,
        failover::holders_and_waiters_go_on_at_a_promoted_standby_and_tokens_jump,
        failover::tokens_jump_also_where_the_standby_lacked_the_latest_grants,
        failover::tokens_jump_where_a_backup_is_restored_to_a_point_in_time,
        init::sixteen_at_once_make_one_store,
        init::init_while_locks_are_in_use_changes_nothing_and_interrupts_nobody,
        init::a_newer_schema_is_refused_and_left_alone,
        init::the_files_applied_one_by_one_make_the_same_as_init,
        rights::a_role_that_init_names_can_do_all_that_locks_can,
        rights::a_role_that_init_names_can_touch_nothing_but_by_what_users_call,
        rights::a_role_that_init_does_not_name_is_told_what_to_do,
        limits::a_token_is_the_timeline_times_2_to_the_40_plus_a_count,
        limits::a_store_without_further_tokens_grants_nothing_and_says_so,
    ]
}

fn main() -> ExitCode {
    run("postgres", all(&Shared::default()), 6)
}
