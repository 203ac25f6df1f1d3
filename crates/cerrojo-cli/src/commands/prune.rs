//! `cerrojo prune`: removes from the store what is no longer needed.

use cerrojo::AnyLocker;
use serde_json::json;

use crate::{
    exit::{Exit, Failure},
    output::Output,
};

pub(crate) async fn run(store: &AnyLocker, output: Output) -> Result<Exit, Failure> {
    let pruned = store.prune().await?;
    let sentence = || match pruned {
        1 => "1 record removed".to_owned(),
        _ => format!("{pruned} records removed"),
    };
    output.answer(sentence, || json!({"pruned": pruned}))?;
    Ok(Exit::Success)
}
