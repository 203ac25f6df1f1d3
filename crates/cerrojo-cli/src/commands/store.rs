//! `cerrojo store`: what a store needs before it can be used.

use cerrojo::Initialized;
use serde_json::json;

use crate::{
    args::{InitArgs, StoreCommand},
    exit::{Exit, Failure},
    output::Output,
    store,
};

/// Where there is nothing to make. A comment, so that it may stand in for SQL.
const NOTHING: &str = "-- this store needs no tables";

pub(crate) async fn run(command: StoreCommand, url: &str, output: Output) -> Result<Exit, Failure> {
    let StoreCommand::Init(args) = command;
    let url = store::resolved(url)?;
    match args.print {
        true => print(&url, &args, output),
        false => init(&url, &args, output).await,
    }
    .map(|()| Exit::Success)
}

async fn init(url: &str, args: &InitArgs, output: Output) -> Result<(), Failure> {
    let made = cerrojo::init_store(url, &roles(args)).await?;
    let sentence = || match made {
        Initialized::Tables => "the tables are there and up to date".to_owned(),
        _ => "ready: there is nothing to make in this store".to_owned(),
    };
    output.answer(sentence, || json!({"tables": made == Initialized::Tables}))
}

fn print(url: &str, args: &InitArgs, output: Output) -> Result<(), Failure> {
    let sql = cerrojo::init_store_sql(url, &roles(args))?;
    let text = || sql.as_deref().unwrap_or(NOTHING).trim_end().to_owned();
    output.answer(text, || json!({"sql": sql}))
}

fn roles(args: &InitArgs) -> Vec<&str> {
    args.grant.iter().map(String::as_str).collect()
}
