//! `cerrojo fence`: the resource's side, for files.

use std::{io::Read, path::Path};

use cerrojo::{
    StoreId,
    fence::{
        FileError, PresentedToken,
        file::FencedFile,
        state::{State, StateFile},
    },
};
use serde_json::{Value, json};

use crate::{
    args::{AdmitArgs, AdoptArgs, FenceCommand, FenceShowArgs, WriteArgs},
    exit::{Exit, Failure},
    output::Output,
};

pub(crate) async fn run(command: FenceCommand, output: Output) -> Result<Exit, Failure> {
    match command {
        FenceCommand::Admit(args) => admit(args, output).await,
        FenceCommand::Write(args) => write(args, output).await,
        FenceCommand::Show(args) => show(&args, output).await,
        FenceCommand::Adopt(args) => adopt(&args, output).await,
    }
    .map(|()| Exit::Success)
}

async fn admit(args: AdmitArgs, output: Output) -> Result<(), Failure> {
    let fence = StateFile::at(args.state).wait(args.turn.wait);
    let state = fence.admit(args.token, args.store_id).await?;
    output.answer(|| format!("token {} is admitted", args.token), || json(state))
}

async fn write(args: WriteArgs, output: Output) -> Result<(), Failure> {
    let (token, store) = grant(&args)?;
    let bytes = stdin()?;
    let length_bytes = bytes.len();
    let file = FencedFile::at(&args.file).wait(args.turn.wait);
    file.update(token, store, |_| bytes).await?;
    let sentence = || format!("{} is written with token {token}", args.file.display());
    output.answer(sentence, || {
        json!({"token": token.to_string(), "store_id": store.to_string(), "length_bytes": length_bytes})
    })
}

fn grant(args: &WriteArgs) -> Result<(PresentedToken, StoreId), Failure> {
    args.token.zip(args.store_id).ok_or_else(|| {
        Failure::usage(
            "nothing was written: CERROJO_TOKEN and CERROJO_STORE_ID are not there. Run this under `cerrojo run` on a \
             fenced store, or give --token and --store-id",
        )
    })
}

/// All of it, before the fence is touched: who waits for a slow writer is not in the way of others.
fn stdin() -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().lock().read_to_end(&mut bytes);
    read.map_err(|error| Failure::system("nothing was written: stdin cannot be read", error))?;
    Ok(bytes)
}

async fn show(args: &FenceShowArgs, output: Output) -> Result<(), Failure> {
    let state = match fence_at(&args.path).state().await {
        // A file that nobody has fenced yet.
        Err(FileError::NotAState { .. }) => State::default(),
        state => state?,
    };
    output.answer(|| sentence(&args.path, state), || json(state))
}

async fn adopt(args: &AdoptArgs, output: Output) -> Result<(), Failure> {
    let fence = fence_at(&args.path).wait(args.turn.wait);
    let state = fence.adopt(args.store_id).await?;
    output.answer(|| sentence(&args.path, state), || json(state))
}

/// A file's own fence where it has one; else the path is that of a fence.
fn fence_at(path: &Path) -> StateFile {
    let of_file = StateFile::of(path);
    if of_file.path().exists() { of_file } else { StateFile::at(path) }
}

fn sentence(path: &Path, state: State) -> String {
    let path = path.display();
    match (state.highest(), state.store()) {
        (0, None) => format!("{path}: no token was admitted yet"),
        (0, Some(store)) => format!("{path}: no token of store {store} was admitted yet"),
        (highest, None) => format!("{path}: token {highest} is the greatest, of no named store"),
        (highest, Some(store)) => {
            format!("{path}: token {highest} of store {store} is the greatest")
        }
    }
}

/// Tokens are strings, as everywhere.
fn json(state: State) -> Value {
    let highest = Some(state.highest()).filter(|highest| *highest > 0);
    json!({
        "token": highest.map(|highest| highest.to_string()),
        "store_id": state.store().map(|store| store.to_string()),
    })
}
