//! What a lock's command line adds to a command that does nothing.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use cerrojo::Instant;

use crate::{
    Result,
    args::Args,
    etcd::Etcd,
    harness::{Played, Question},
    store,
};

const BY_FLOCK: &str = "flock FILE true";

pub(crate) fn question(args: &Args) -> Result<Question> {
    let asks = "wall time of `true` under a lock that is free, by each command line";
    let mut question = Question::new(args, "run", asks)?.compared_with(BY_FLOCK, 20);
    let runs = if args.quick { 5 } else { 25 };
    question.add("true", move || timed(runs, || Command::new("true")));
    add_flock(&mut question, runs);
    add_cerrojo(&mut question, args, runs);
    add_etcdctl(&mut question, runs)?;
    Ok(question)
}

fn add_flock(question: &mut Question, runs: u32) {
    let file = question.folder.path().join("flocked");
    if is_installed("flock") {
        question.add(BY_FLOCK, move || timed(runs, || with_true("flock", &[&file])));
    } else {
        question.left_out.push(format!("{BY_FLOCK}: not installed"));
    }
}

fn add_cerrojo(question: &mut Question, args: &Args, runs: u32) {
    let url = store::local_url(&question.folder.path().join("store"));
    match args.cerrojo() {
        Ok(cerrojo) => question.add("cerrojo run NAME -- true, local", move || {
            timed(runs, || with_true(&cerrojo, &["--store", &url, "run", "bench/run", "--"]))
        }),
        Err(why) => question.left_out.push(format!("cerrojo run: {why}")),
    }
}

fn add_etcdctl(question: &mut Question, runs: u32) -> Result<()> {
    if !(is_installed("etcd") && is_installed("etcdctl")) {
        question.left_out.push("etcdctl lock NAME true: not installed".to_owned());
        return Ok(());
    }
    let etcd = Etcd::start(&question.folder.path().join("etcd"))?;
    question.add("etcdctl lock NAME true", move || {
        let endpoint = etcd.endpoint();
        timed(runs, || with_true("etcdctl", &["--endpoints", &endpoint, "lock", "bench/run"]))
    });
    Ok(())
}

fn is_installed(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .is_ok()
}

fn with_true(program: impl AsRef<Path>, words: &[impl AsRef<std::ffi::OsStr>]) -> Command {
    let mut command = Command::new(program.as_ref());
    command.args(words).arg("true");
    command
}

fn timed(runs: u32, command: impl Fn() -> Command) -> Result<Played> {
    let samples = (0..runs).map(|_| wall_ms(command())).collect::<Result<Vec<_>>>()?;
    Ok(Played::default().figure("wall time", "ms", samples))
}

fn wall_ms(mut command: Command) -> Result<f64> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).env("ETCDCTL_API", "3");
    let start = Instant::now();
    let status = command.status()?;
    let took = Instant::now().since(start);
    if status.success() {
        Ok(took.as_secs_f64() * 1e3)
    } else {
        Err(format!("{status}: {command:?}").into())
    }
}
