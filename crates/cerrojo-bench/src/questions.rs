//! What is asked. A question is a file with one function that sets it up.

mod cycles;
mod handoff;
mod memory;
mod run50;

use crate::{Result, args::Args, harness::Question};

type SetUp = fn(&Args) -> Result<Question>;

const ALL: [(&str, SetUp); 5] = [
    ("cycles", cycles::question),
    ("handoff", handoff::question),
    ("idle", handoff::idle_question),
    ("memory", memory::question),
    ("run50", run50::question),
];

/// The questions that the command line names; all when it names none.
pub(crate) fn matching(args: &Args) -> Result<Vec<Question>> {
    let named =
        |name: &str| args.only.is_empty() || args.only.iter().any(|text| name.contains(text));
    let chosen: Vec<_> = ALL.iter().filter(|(name, _)| named(name)).collect();
    if chosen.is_empty() {
        let names: Vec<_> = ALL.iter().map(|(name, _)| *name).collect();
        return Err(format!("no such question; there are {}", names.join(", ")).into());
    }
    chosen.into_iter().map(|(_, set_up)| set_up(args)).collect()
}
