//! What a held lock weighs.

use std::{sync::mpsc, time::Duration};

use crate::{
    Result,
    args::Args,
    harness::{Played, Question},
    process::Worker,
    store,
};

/// A worker that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(300);

pub(crate) fn question(args: &Args) -> Result<Question> {
    let asks = "resident memory of one process that holds many locks, for each of them";
    let mut question = Question::new(args, "memory", asks)?.compared_with("memory", 3);
    let count = if args.quick { 1_000 } else { 10_000 };
    let local = store::local_url(&question.folder.path().join("store"));
    question.add("memory", move || held("memory:", count));
    question.add("local", move || held(&local, count));
    Ok(question)
}

/// In a process of its own, whose memory nothing else has grown.
fn held(url: &str, count: u32) -> Result<Played> {
    let (say, said) = mpsc::channel();
    let worker = Worker::start(&["hold-many", url, &count.to_string()], say)?;
    let said = said.recv_timeout(PATIENCE)?;
    drop(worker);
    let (bytes, took) = said.line.split_once(' ').ok_or("a worker said nothing useful")?;
    Ok(Played::default().figure("a held lock", "bytes", vec![bytes.parse()?]).figure(
        "acquiring one",
        "us",
        vec![took.parse::<f64>()? * 1e6 / f64::from(count)],
    ))
}
