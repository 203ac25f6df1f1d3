//! `cerrojo`: locks for the command line. The reference is `docs/cli.md`.

mod args;
mod commands;
mod exit;
mod family;
mod guardian;
mod held;
mod keeper;
mod output;
mod signals;
mod store;
mod terminal;
mod waiting;

use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use crate::{
    args::{Args, Command},
    exit::{Exit, Failure},
    output::Output,
};

fn main() -> ExitCode {
    if let Some(code) = guardian::hidden().or_else(keeper::hidden) {
        return code;
    }
    let (output, outcome) = match Args::try_parse() {
        Ok(args) => {
            let output = Output::new(args.json);
            (output, execute(args, output))
        }
        Err(error) => (Output::new(args::asks_for_json(std::env::args_os())), misused(&error)),
    };
    let exit = outcome.unwrap_or_else(|failure| {
        output.failure(&failure);
        failure.exit()
    });
    ExitCode::from(exit.code())
}

fn execute(args: Args, output: Output) -> Result<Exit, Failure> {
    start_log();
    let runtime = runtime()?;
    let outcome = runtime.block_on(dispatch(args, output));
    // A store's thread that hangs must not keep the program: what it holds ends by its TTL.
    runtime.shutdown_background();
    outcome
}

/// One thread is enough: what ends a command in time is a process of its own.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::system("cannot start", error))
}

async fn dispatch(args: Args, output: Output) -> Result<Exit, Failure> {
    let store = args.store;
    match args.command {
        Command::Run(run) => commands::run::run(run, &store, output).await,
        Command::Ls(ls) => commands::ls::run(&ls, &store::connect(&store).await?, output).await,
        Command::Show(show) => {
            commands::show::run(&show, &store::connect(&store).await?, output).await
        }
        Command::Acquire(acquire) => commands::acquire::run(acquire, &store, output).await,
        Command::Renew(renew) => commands::renew::run(&renew, &store).await,
        Command::Release(release) => commands::release::run(&release, &store, output).await,
        Command::Store(command) => commands::store::run(command, &store, output).await,
        Command::Prune => commands::prune::run(&store::connect(&store).await?, output).await,
        Command::Completions(completions) => commands::completions::run(&completions),
        Command::Man(man) => commands::man::run(&man),
        Command::Fence(fence) => commands::fence::run(fence, output).await,
        Command::Break(break_lock) => commands::break_lock::run(&break_lock, &store, output).await,
    }
}

/// Logs go to stderr, so that stdout is the child's or the answer's alone.
fn start_log() {
    let level = EnvFilter::try_from_env("CERROJO_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(level)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false)
        .without_time()
        .init();
}

/// Help and version are answers; everything else that clap reports is a usage error.
fn misused(error: &clap::Error) -> Result<Exit, Failure> {
    if error.use_stderr() {
        return Err(Failure::usage(error.render().to_string()));
    }
    output::text(&error.render().to_string())?;
    Ok(Exit::Success)
}
