//! The waiting line in a PostgreSQL server: order, dead waiters, lost notifications, ends, costs, pruning and batches.
//! The trials share a server; each has a table of its own there.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failed step fails the test"
)]

mod batches;
mod costs;
mod crowd;
mod dead;
mod ends;
mod guarded;
#[path = "../trials/line/mod.rs"]
#[allow(dead_code, reason = "each test target uses a part")]
mod line;
mod news;
mod order;
mod prune;
#[macro_use]
#[path = "../trials/named.rs"]
mod named;
mod site;
mod validity;

use std::process::ExitCode;

use libtest_mimic::Trial;
use site::{Shared, run};

/// The longest ones first.
fn all(shared: &Shared) -> Vec<Trial> {
    named![|name, proof| shared.trial(name, proof);
        prune::a_store_in_use_removes_rows_that_nobody_has_used_for_a_minute,
        crowd::ten_thousand_short_waits_leave_nothing,
        news::a_lost_notification_is_noticed_by_the_next_in_line_and_by_the_tick,
        news::a_row_freed_by_hand_is_noticed_by_the_tick,
        news::the_next_enters_right_after_the_ttl_of_a_silent_holder,
        news::holders_that_crash_one_after_another_cost_one_ttl_each,
        news::who_moves_up_looks_after_the_holder,
        news::who_listens_anew_asks_once_and_is_told_again,
        news::what_happened_while_nobody_listened_is_found,
        news::waiters_that_are_cut_all_enter,
        news::waiters_of_a_server_that_was_restarted_enter_in_order,
        dead::a_killed_head_delays_the_rest_by_two_seconds,
        dead::a_stopped_head_delays_the_rest_by_two_seconds_and_enters_in_its_turn,
        dead::a_head_that_is_cut_off_delays_the_rest_by_two_seconds,
        dead::two_stopped_heads_delay_the_rest_by_four_seconds,
        dead::a_head_of_whom_nothing_was_heard_for_long_has_left_the_line,
        costs::two_hundred_waiters_ask_seldom,
        costs::a_thousand_locks_and_a_thousand_waiters_share_three_connections,
        costs::a_waiting_process_uses_no_cpu,
        costs::an_uncontended_cycle_is_two_commits_and_knows_no_line,
        costs::a_hand_off_is_one_statement,
        validity::a_direct_grant_is_never_valid_beyond_the_servers_expiry,
        validity::a_grant_handed_over_after_3_ttls_is_never_valid_beyond_the_servers_expiry,
        validity::a_late_notification_is_never_valid_beyond_the_servers_expiry,
        validity::a_notification_held_for_2_ttls_gives_a_fresh_and_exclusive_guard,
        order::processes_enter_in_order_with_rising_tokens,
        order::ten_stores_enter_in_order_and_no_newcomer_overtakes,
        order::a_newcomer_leaves_a_free_lock_to_the_line,
        ends::a_waiter_that_gives_up_leaves_nothing,
        ends::who_leaves_a_free_lock_passes_it_on,
        ends::a_leave_that_is_lost_ends_by_itself,
        ends::a_waiter_cancelled_at_the_hand_over_passes_the_lock_on,
        guarded::a_release_waits_for_the_holders_transaction_and_then_hands_over,
        guarded::nobody_enters_while_a_transaction_outlives_its_lease,
        prune::pruning_goes_in_steps_and_leaves_locks_lines_and_tokens_alone,
        batches::sixty_four_tasks_make_few_transactions,
        batches::requests_for_one_name_keep_their_order,
        batches::a_short_renewal_neither_spoils_its_batch_nor_is_spoilt,
    ]
}

fn main() -> ExitCode {
    line::child::main().unwrap_or_else(|| run("postgres", all(&Shared::default()), 12))
}
