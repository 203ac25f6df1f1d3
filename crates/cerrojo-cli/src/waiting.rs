//! Waiting for a lock: what ends it, and what is shown meanwhile.

use std::{
    convert::Infallible,
    io::{self, IsTerminal, Write},
    time::Duration,
};

use cerrojo::{AnyLocker, HolderInfo, Instant, LockName, clock};
use rustix::{process::Signal, termios};

use crate::{
    family,
    output::{self, Output},
    signals::{Signals, ends_a_wait},
    terminal::{self, Job},
};

/// What takes no longer than this is not worth a word.
const SILENCE: Duration = Duration::from_millis(200);
const REFRESH: Duration = Duration::from_secs(1);
/// Back to the margin, and erase to the end of the line.
const ERASE: &str = "\r\x1b[K";

/// What waiting came to.
#[derive(Debug)]
pub(crate) enum Waited<T> {
    Ready(T),
    Interrupted(Signal),
}

pub(crate) async fn unless_interrupted<T>(
    signals: &mut Signals,
    work: impl Future<Output = T>,
) -> Waited<T> {
    tokio::select! {
        biased;
        signal = interrupt(signals) => Waited::Interrupted(signal),
        ready = work => Waited::Ready(ready),
    }
}

/// The next signal that ends a wait. A stop is for us alone, since nothing runs yet. May be dropped at any time.
pub(crate) async fn interrupt(signals: &mut Signals) -> Signal {
    loop {
        match signals.next().await {
            signal if ends_a_wait(signal) => return signal,
            Signal::TSTP if terminal::somebody_can_continue_us() => terminal::stop(Job::Part),
            _ => {}
        }
    }
}

/// What `work` answers. Says on stderr meanwhile who holds the lock: on a terminal each second anew, else once.
pub(crate) async fn with_display<T>(
    store: &AnyLocker,
    name: &LockName,
    output: Output,
    work: impl Future<Output = T>,
) -> T {
    tokio::select! {
        biased;
        ready = work => ready,
        never = display(store, name, output) => match never {},
    }
}

async fn display(store: &AnyLocker, name: &LockName, output: Output) -> Infallible {
    let since = Instant::now();
    clock::sleep(SILENCE).await;
    if !io::stderr().is_terminal() {
        output.waiting(name, holder(store, name).await.as_ref());
        return std::future::pending().await;
    }
    let mut line = Line { shown: false };
    loop {
        let holder = holder(store, name).await;
        line.show(&sentence(name, holder.as_ref(), Instant::now().since(since)));
        clock::sleep(REFRESH).await;
    }
}

/// A store that does not answer now has the acquisition to say so.
async fn holder(store: &AnyLocker, name: &LockName) -> Option<HolderInfo> {
    store.holder(name).await.ok().flatten()
}

fn sentence(name: &LockName, holder: Option<&HolderInfo>, waited: Duration) -> String {
    format!("{} (waiting for {} s)", output::waiting(name, holder), waited.as_secs())
}

/// One line of the terminal, rewritten in place and gone at the end.
struct Line {
    shown: bool,
}

impl Line {
    /// In the background the terminal is somebody else's.
    fn show(&mut self, text: &str) {
        let foreground = termios::tcgetpgrp(io::stderr());
        if foreground.is_ok_and(|group| Some(group) == family::our_group()) {
            let width = termios::tcgetwinsize(io::stderr()).map_or(80, |size| size.ws_col.into());
            // A line that wraps could not be rewritten.
            let text: String = text.chars().take(usize::max(width, 2) - 1).collect();
            write_to_terminal(&format!("{ERASE}{text}"));
            self.shown = true;
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.shown {
            write_to_terminal(ERASE);
        }
    }
}

/// A terminal that is gone needs no display.
fn write_to_terminal(text: &str) {
    let mut stderr = io::stderr().lock();
    drop(stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush()));
}
