//! The list of cases. Each is a function named after what it proves.

mod blocked;
mod breaking;
mod cancel;
mod crowds;
mod detached;
mod drops;
mod exclusion;
mod leftovers;
mod lost;
mod names;
mod outage;
mod owners;
mod processes;
mod refusal;
mod release;
mod renewal;
mod tokens;
mod ttls;
mod waiting;

pub(super) use exclusion::count_up;

use super::{Harness, case::Case};

/// A case of a module, with the capabilities that it needs.
macro_rules! case {
    ($module:ident :: $name:ident $(, $need:ident)*) => {
        Case::new(
            stringify!($name),
            &[$($crate::conformance::Capability::$need),*],
            |site| Box::pin($module::$name(site)),
        )
    };
}

/// All cases of the suite.
pub(super) fn all<H: Harness>() -> Vec<Case<H>> {
    let mut cases = users_side();
    cases.extend(keeping());
    cases.extend(stores_side());
    cases.extend(among_processes());
    cases.extend(crowds().map(Case::isolated));
    cases.extend(on_every_runtime().into_iter().flat_map(Case::on_both_runtimes));
    cases
}

fn users_side<H: Harness>() -> Vec<Case<H>> {
    vec![
        case!(exclusion::a_counter_of_8_tasks_loses_no_update),
        case!(exclusion::one_of_16_tries_is_granted),
        case!(refusal::a_refused_try_says_who_holds_it, NamesHolder),
        case!(refusal::a_refused_try_shows_the_token_of_the_grant, NamesHolder, Fenced),
        case!(refusal::nobody_holds_what_is_free),
        case!(refusal::pages_of_the_list_have_no_gap_and_no_repeat),
        case!(refusal::an_owner_is_never_shown_whole),
        case!(waiting::a_waiter_enters_after_the_release),
        case!(waiting::a_waiter_enters_after_the_ttl_of_a_silent_holder_and_not_before),
        case!(waiting::a_deadline_that_has_passed_is_one_try),
        case!(waiting::a_deadline_ends_the_wait_and_not_before),
        case!(waiting::a_deadline_ends_the_wait_in_the_line_of_this_process),
        case!(waiting::a_waiter_that_is_dropped_leaves_the_queue),
        case!(waiting::a_waiter_of_3_ttls_gets_a_full_validity),
        case!(waiting::a_grant_whose_news_come_late_gets_a_full_validity),
        case!(waiting::tasks_of_one_process_are_one_waiter_and_served_in_order),
        case!(waiting::connections_are_served_in_order, Fifo),
        case!(waiting::a_newcomer_does_not_overtake_who_waits, Fifo),
        case!(names::hostile_names_are_locked_one_to_one),
        case!(names::a_bad_name_is_refused_before_any_call),
        case!(ttls::the_edges_are_granted),
        case!(ttls::what_is_beyond_the_edges_cannot_be_asked),
        case!(ttls::the_shortest_ttl_ends),
        case!(ttls::validity_is_never_longer_than_the_ttl),
    ]
}

fn keeping<H: Harness>() -> Vec<Case<H>> {
    vec![
        case!(renewal::a_lease_lives_20_ttls),
        case!(renewal::a_lease_lives_on_after_one_failed_renewal),
        case!(renewal::a_lease_at_risk_is_seen_and_heals),
        case!(renewal::a_lost_reply_of_a_renewal_is_no_loss),
        case!(lost::hung_renewals_are_lost_on_time_and_before_anyone_enters),
        case!(lost::failing_renewals_are_lost_on_time_and_before_anyone_enters),
        case!(lost::a_session_that_ends_is_lost_at_once),
        case!(lost::lost_is_final),
        case!(lost::lost_never_fires_after_a_release),
        case!(lost::run_ends_its_work_when_the_lease_is_lost),
        case!(lost::a_grant_that_is_lost_on_its_way_is_asked_for_again),
        case!(breaking::break_now_frees_at_once_and_the_holder_reads_lost),
        case!(breaking::break_at_expiry_frees_when_the_old_validity_ends),
        case!(breaking::break_at_expiry_is_ended_by_the_holders_release),
        case!(breaking::breaking_what_is_free_breaks_nothing),
        case!(outage::a_severed_store_is_lost_on_time, Sever),
        case!(outage::a_short_outage_is_ridden_out, Sever),
        case!(outage::acquire_ends_at_its_deadline_while_severed, Sever),
        case!(outage::acquire_rides_out_an_outage_within_its_deadline, Sever),
        case!(release::release_says_released_and_frees),
        case!(release::a_release_after_the_loss_says_so_and_frees_nobody_elses),
        case!(release::a_lost_reply_of_a_release_says_unknown),
        case!(release::a_failed_release_is_asked_again),
    ]
}

fn stores_side<H: Harness>() -> Vec<Case<H>> {
    vec![
        case!(detached::a_detached_lease_stands_until_its_ttl_and_no_longer),
        case!(detached::a_lease_that_was_waited_for_stands_for_its_whole_ttl),
        case!(detached::a_detached_lease_is_taken_up_anywhere_by_its_owner),
        case!(detached::resume_finds_the_same_token),
        case!(detached::resume_never_recreates_and_never_takes_anothers),
        case!(detached::a_detached_lease_is_released_by_its_owner_only),
        case!(detached::detaching_what_is_lost_says_so),
        case!(owners::acquire_is_idempotent_for_one_owner),
        case!(owners::a_lost_reply_of_acquire_finds_the_same_grant),
        case!(owners::a_retry_near_the_end_does_not_outlive_the_store),
        case!(owners::a_retry_after_the_end_is_a_new_grant, Fenced),
        case!(owners::an_owner_that_was_released_never_asks_again),
        case!(owners::giving_back_frees_what_an_unknown_acquire_got),
        case!(owners::renew_never_recreates_what_has_ended),
        case!(owners::what_has_ended_is_not_held_although_nobody_took_it),
        case!(owners::renew_never_touches_anothers_lease),
        case!(owners::renew_sets_the_ttl_anew),
        case!(owners::release_never_frees_anothers_lease),
        case!(owners::release_may_be_asked_twice),
        case!(tokens::tokens_increase_over_releases, Fenced),
        case!(tokens::tokens_increase_over_expiry, Fenced),
        case!(tokens::tokens_increase_over_breaks, Fenced),
        case!(tokens::tokens_increase_over_prunes, Fenced),
        case!(tokens::tokens_increase_over_connections, Fenced),
        case!(tokens::tokens_increase_among_tasks, Fenced),
        case!(tokens::tokens_increase_over_crashes, Fenced, Processes),
        case!(leftovers::nothing_is_left_after_the_ttl),
        case!(leftovers::prune_leaves_what_is_held),
    ]
}

fn among_processes<H: Harness>() -> Vec<Case<H>> {
    vec![
        case!(exclusion::a_counter_of_8_tasks_and_4_processes_loses_no_update, Processes),
        case!(processes::a_process_enters_after_anothers_release, Processes),
        case!(processes::a_killed_holder_frees_by_its_ttl, Processes),
        case!(processes::a_killed_holder_frees_before_its_ttl, Processes, ProofOfDeath),
        case!(processes::a_killed_holder_bound_to_nothing_keeps_its_ttl, Processes),
        case!(processes::a_killed_waiter_holds_up_nobody, Processes),
        case!(processes::a_frozen_holder_is_taken_over_and_reads_lost, Processes),
    ]
}

fn crowds<H: Harness>() -> [Case<H>; 3] {
    [
        case!(crowds::a_thousand_held_locks_use_few_descriptors),
        case!(crowds::a_thousand_waiters_on_one_name_all_enter),
        case!(crowds::a_thousand_waiters_on_a_thousand_names_all_enter),
    ]
}

fn on_every_runtime<H: Harness>() -> Vec<Case<H>> {
    vec![
        case!(blocked::a_blocked_executor_reads_lost_at_the_first_look),
        case!(blocked::run_never_polls_its_work_after_a_block),
        case!(blocked::nobody_enters_before_a_blocked_holder_is_lost),
        case!(cancel::acquire_of_a_free_lock_may_be_dropped_at_any_poll),
        case!(cancel::acquire_of_a_held_lock_may_be_dropped_at_any_poll),
        case!(cancel::release_may_be_dropped_at_any_poll),
        case!(cancel::renew_may_be_dropped_at_any_poll),
        case!(cancel::a_release_of_the_store_may_be_dropped_at_any_poll),
        case!(drops::a_guard_dropped_in_a_task_frees),
        case!(drops::a_guard_dropped_without_a_runtime_frees),
        case!(drops::a_guard_dropped_in_a_panic_frees),
        case!(drops::a_guard_outlives_its_runtime),
        case!(drops::acquire_without_a_runtime_is_refused),
        case!(drops::closing_waits_for_releases_and_ends_waiters),
        case!(drops::closing_ends_at_its_deadline),
    ]
}
