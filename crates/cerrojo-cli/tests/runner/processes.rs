//! Who takes part in a run, and who is left of it.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

use crate::world::{Running, World, eventually};

/// A process. One that has its number later is told from it by when it started.
pub(crate) struct Process {
    pid: Pid,
    started: u64,
}

/// What the kernel says of a process.
struct Stat {
    state: char,
    parent: i32,
    started: u64,
}

/// The processes of one run. What is left of them is killed at the end.
pub(crate) struct Cast {
    pub(crate) runner: Process,
    pub(crate) guardian: Process,
    /// The command, or what is to become it.
    pub(crate) command: Process,
}

impl Process {
    pub(crate) fn of(pid: i32) -> Option<Self> {
        Some(Self { pid: Pid::from_raw(pid)?, started: Stat::of(pid)?.started })
    }

    /// The one whose number a script has written to a file.
    pub(crate) fn written(world: &World, file: &str) -> Self {
        let pid = world.read(file);
        Self::of(pid.trim().parse().unwrap()).unwrap()
    }

    /// A zombie is not.
    pub(crate) fn is_alive(&self) -> bool {
        self.stat().is_some_and(|stat| !matches!(stat.state, 'Z' | 'X'))
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stat().is_some_and(|stat| stat.state == 'T')
    }

    pub(crate) fn signal(&self, signal: Signal) {
        if self.is_alive() {
            let _ = kill_process(self.pid, signal);
        }
    }

    /// Any process that it has started.
    pub(crate) fn child(&self) -> Option<Self> {
        let ours = |pid: &i32| Stat::of(*pid).is_some_and(|stat| stat.parent == self.raw());
        all().find(ours).and_then(Self::of)
    }

    fn stat(&self) -> Option<Stat> {
        Stat::of(self.raw()).filter(|stat| stat.started == self.started)
    }

    fn raw(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }
}

impl Stat {
    /// The name in brackets may hold anything, so the fields are counted from its end.
    fn of(pid: i32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields: Vec<_> = text.rsplit_once(')')?.1.split_whitespace().collect();
        Some(Self {
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
        })
    }
}

fn all() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

impl Cast {
    /// Ready once the guardian has started what becomes the command.
    pub(crate) fn of(running: &Running) -> Self {
        let runner = Process::of(i32::try_from(running.id()).unwrap()).unwrap();
        let both = || {
            let guardian = runner.child()?;
            let command = guardian.child()?;
            Some((guardian, command))
        };
        eventually("a guardian with a child", || both().is_some());
        let (guardian, command) = both().unwrap();
        Self { runner, guardian, command }
    }
}

impl Drop for Cast {
    fn drop(&mut self) {
        for process in [&self.guardian, &self.command] {
            process.signal(Signal::KILL);
        }
    }
}
