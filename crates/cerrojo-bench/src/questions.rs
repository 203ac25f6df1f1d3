//! What is asked. A question is a file with one function that sets it up.

mod cycles;
mod figures;
mod handoff;
mod memory;
mod postgres;
mod redis;
mod redlock;
mod run;
mod run50;

use crate::{Result, args::Args, harness::Question};

type SetUp = fn(&Args) -> Result<Question>;

const ALL: [(&str, SetUp); 28] = [
    ("cycles", cycles::question),
    ("handoff", handoff::question),
    ("idle", handoff::idle_question),
    ("memory", memory::question),
    ("postgres-cycles-1", postgres::of_1_task),
    ("postgres-cycles-16", postgres::of_16_tasks),
    ("postgres-cycles-64", postgres::of_64_tasks),
    ("postgres-handoff-tasks", postgres::by_tasks),
    ("postgres-handoff-processes", postgres::by_processes),
    ("postgres-held-processes", postgres::held_by_processes),
    ("postgres-transaction", postgres::transaction),
    ("redis-cycles-1", redis::pinned),
    ("redis-cycles-16", redis::of_16_tasks),
    ("redis-cycles-64", redis::of_64_tasks),
    ("redis-handoff-tasks", redis::by_tasks),
    ("redis-handoff-processes", redis::by_processes),
    ("redis-held-tasks", redis::held_by_tasks),
    ("redis-held-processes", redis::held_by_processes),
    ("redis-waiters", redis::of_many),
    ("redis-names", redis::for_many_names),
    ("redlock-cycles-1", redlock::pinned),
    ("redlock-cycles-16", redlock::of_16_tasks),
    ("redlock-cycles-64", redlock::of_64_tasks),
    ("redlock-handoff-tasks", redlock::by_tasks),
    ("redlock-handoff-processes", redlock::by_processes),
    ("redlock-refused", redlock::refused),
    ("run", run::question),
    ("run50", run50::question),
];

/// The questions that the command line names; all when it names none.
pub(crate) fn matching(args: &Args) -> Result<Vec<Question>> {
    let named =
        |name: &str| args.only.is_empty() || args.only.iter().any(|text| is_meant(text, name));
    let chosen: Vec<_> = ALL.iter().filter(|(name, _)| named(name)).collect();
    if chosen.is_empty() {
        let names: Vec<_> = ALL.iter().map(|(name, _)| *name).collect();
        return Err(format!("no such question; there are {}", names.join(", ")).into());
    }
    chosen.into_iter().map(|(_, set_up)| set_up(args)).collect()
}

/// A whole name means that question alone, a part of one all that have it.
fn is_meant(text: &str, name: &str) -> bool {
    if ALL.iter().any(|(whole, _)| *whole == text) { name == text } else { name.contains(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_name_means_one_question_and_a_part_all_that_have_it() {
        let meant = |text: &str| {
            let names = ALL.iter().map(|(name, _)| *name);
            names.filter(|name| is_meant(text, name)).collect::<Vec<_>>()
        };
        assert_eq!(meant("run"), ["run"]);
        assert_eq!(meant("ru"), ["run", "run50"]);
        assert!(meant("nothing").is_empty());
    }
}
