//! The waiting line in the Redis server: order, dead waiters, lost messages, ends, costs, and other libraries' locks.
//! Each trial has a server of its own.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failed step fails the test"
)]

#[path = "redis_line/child.rs"]
mod child;
#[path = "redis_line/costs.rs"]
mod costs;
#[path = "redis_line/dead.rs"]
mod dead;
#[path = "redis_line/ends.rs"]
mod ends;
#[path = "redis_line/foreign.rs"]
mod foreign;
#[path = "redis_line/news.rs"]
mod news;
#[path = "redis_line/order.rs"]
mod order;
#[path = "redis_line/scripts.rs"]
mod scripts;
#[path = "redis_line/site.rs"]
mod site;
#[path = "redis_line/validity.rs"]
mod validity;

use std::process::ExitCode;

use cerrojo_testbed::need;
use libtest_mimic::{Arguments, Trial};
use site::trial;

/// Trials by the names of their functions.
macro_rules! trials {
    ($($module:ident :: $name:ident,)*) => {
        vec![$(trial(stringify!($name), $module::$name)),*]
    };
}

fn all() -> Vec<Trial> {
    let mut all = trials![
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
    if let Some(code) = child::main() {
        return code;
    }
    let is_ignored = need("redis-server").is_ignored();
    let trials = all().into_iter().map(|trial| trial.with_ignored_flag(is_ignored)).collect();
    let mut arguments = Arguments::from_args();
    // Most of a trial is waiting.
    arguments.test_threads = arguments.test_threads.or(Some(12));
    libtest_mimic::run(&arguments, trials).exit_code()
}
