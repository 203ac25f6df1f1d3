//! The waiting line in the Redis server: order, dead waiters, lost messages, ends, costs, and other libraries' locks.
//! Each trial has a server of its own.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failed step fails the test"
)]

mod costs;
mod dead;
mod ends;
mod foreign;
#[path = "../trials/line/mod.rs"]
#[allow(dead_code, reason = "each test target uses a part")]
mod line;
#[macro_use]
#[path = "../trials/named.rs"]
mod named;
mod news;
mod order;
mod scripts;
mod site;
mod validity;

use std::process::ExitCode;

use libtest_mimic::Trial;
use site::{run, trial};

fn all() -> Vec<Trial> {
    let mut all = named![|name, proof| trial(name, proof);
        dead::a_killed_head_delays_nobody,
        dead::a_stopped_head_delays_the_rest_by_two_seconds_and_enters_in_its_turn,
        dead::a_head_that_is_cut_off_delays_the_rest_by_two_seconds,
        dead::two_stopped_heads_delay_the_rest_by_four_seconds,
        validity::a_direct_grant_is_never_valid_beyond_the_servers_expiry,
        validity::a_grant_handed_over_after_3_ttls_is_never_valid_beyond_the_servers_expiry,
        validity::a_late_push_is_never_valid_beyond_the_servers_expiry,
        validity::a_push_held_for_2_ttls_gives_a_fresh_and_exclusive_guard,
        order::ten_connections_enter_in_order_and_no_newcomer_overtakes,
        order::a_newcomer_overtakes_only_if_it_may,
        order::after_an_overtaker_crashed_the_line_goes_on_at_its_ttl,
        news::a_lost_push_is_noticed_by_the_next_in_line_and_by_the_tick,
        news::a_key_deleted_by_hand_is_noticed_by_the_tick,
        news::the_next_enters_right_after_the_ttl_of_a_silent_holder,
        news::holders_that_crash_one_after_another_cost_one_ttl_each,
        news::who_moves_up_looks_after_the_holder,
        news::waiters_that_are_cut_all_enter,
        news::waiters_of_a_server_restarted_empty_all_enter,
        ends::a_waiter_that_gives_up_leaves_nothing,
        ends::who_leaves_a_free_lock_passes_it_on,
        ends::a_leave_that_is_lost_ends_by_its_lease,
        ends::a_waiter_cancelled_at_the_hand_over_passes_the_lock_on,
        costs::two_hundred_waiters_ask_seldom,
        costs::a_thousand_waited_names_cost_no_connections,
        scripts::acquire_is_idempotent_and_sets_the_ttl_anew,
        scripts::a_broken_lock_is_not_its_owners_any_more,
        scripts::a_break_at_expiry_keeps_the_ttl,
        scripts::a_break_now_hands_over_to_the_first_waiter,
        foreign::foreign_locks_are_listed_and_shown_without_their_secret,
        foreign::a_foreign_lock_is_broken_at_its_expiry,
    ];
    all.extend(foreign::of_each_format());
    all
}

fn main() -> ExitCode {
    line::child::main().unwrap_or_else(|| run("redis-server", all(), 12))
}
