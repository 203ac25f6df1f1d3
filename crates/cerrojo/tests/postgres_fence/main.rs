//! Fences in a PostgreSQL table: whoever was overtaken is refused, at any isolation level, and no update is lost. One server is shared, with a table
//! for each trial.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failed step fails the test"
)]

mod admitting;
mod crash;
mod crowd;
mod making;
mod names;
mod overlap;
#[macro_use]
#[path = "../trials/named.rs"]
mod named;
mod site;

use std::process::ExitCode;

use libtest_mimic::Trial;
use site::{Shared, run};

fn all(shared: &Shared) -> Vec<Trial> {
    named![|name, proof| shared.trial(name, proof);
        admitting::a_smaller_token_is_refused_with_both_numbers_in_the_table,
        admitting::a_read_in_a_transaction_raises_the_fence,
        admitting::a_token_of_another_store_is_refused_by_the_table_until_the_store_is_adopted,
        admitting::an_admission_that_is_rolled_back_raises_nothing,
        admitting::locks_of_any_store_are_fenced,
        overlap::a_newer_holder_waits_for_an_older_one_at_work_and_sees_its_write,
        overlap::a_newer_snapshot_never_misses_what_an_older_holder_wrote,
        overlap::a_crossing_of_two_resources_is_told_and_undone,
        crowd::a_crowd_loses_no_update_in_a_table,
        crash::a_killed_server_keeps_what_was_admitted,
        names::hostile_resources_are_fenced_one_to_one,
        names::what_cannot_name_a_resource_is_refused,
        making::many_make_the_table_at_once,
        making::a_role_may_admit_and_nothing_else,
        making::what_is_missing_is_told,
        making::psql_alone_makes_it_and_passes_it,
    ]
}

fn main() -> ExitCode {
    run("postgres", all(&Shared::default()), 4)
}
