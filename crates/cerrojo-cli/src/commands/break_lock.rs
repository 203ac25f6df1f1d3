//! `cerrojo break`: takes a lock from its holder.

use cerrojo::{Break, HolderInfo};
use serde_json::{Value, json};

use crate::{
    args::BreakArgs,
    exit::{Exit, Failure},
    output::{self, Output},
    store,
};

pub(crate) async fn run(args: &BreakArgs, store: &str, output: Output) -> Result<Exit, Failure> {
    if !args.yes {
        return Err(unconfirmed(args));
    }
    let when = if args.now { Break::Now } else { Break::AtExpiry };
    let store = store::connect(store).await?;
    match store.break_lock(&args.name, when).await? {
        Some(holder) => {
            output.answer(|| sentence(&holder, when), || json(&holder, when))?;
            Ok(Exit::Success)
        }
        None => output.free(&args.name).map(|()| Exit::Free),
    }
}

fn unconfirmed(args: &BreakArgs) -> Failure {
    let name = &args.name;
    Failure::usage(if args.now {
        format!(
            "nothing was done. With --yes this frees `{name}` at once, while its holder may still be at work: \
             only a fence protects then"
        )
    } else {
        format!(
            "nothing was done. With --yes this refuses `{name}` any further renewal: its holder has to stop, and the \
             lock is free when the validity that runs has ended"
        )
    })
}

fn sentence(holder: &HolderInfo, when: Break) -> String {
    let name = &holder.name;
    match (when, holder.ends_in) {
        (Break::Now, _) => format!(
            "{name} is broken and free, it was {holder}. The holder may still be at work: only a fence protects now"
        ),
        (Break::AtExpiry, Some(ends_in)) => format!(
            "{name} is broken, {holder}. It is renewed no more and free in {:.1} s at the latest",
            ends_in.as_secs_f64()
        ),
        (Break::AtExpiry, None) => {
            format!(
                "{name} is broken, {holder}. It is renewed no more and free when its validity ends"
            )
        }
    }
}

fn json(holder: &HolderInfo, when: Break) -> Value {
    let free = match when {
        Break::Now => "now",
        Break::AtExpiry => "at_expiry",
    };
    json!({"name": holder.name.as_str(), "free": free, "holder": output::holder_json(holder)})
}
