//! Proof that a process has ended. Whatever is not proof means that it lives.

use std::{fs, os::fd::OwnedFd};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, PidfdFlags, pidfd_open, test_kill_process_group},
};
use serde::{Deserialize, Serialize};

use super::machine::Machine;
use crate::spi::BoundTo;

/// What must be gone before a lease may be passed on early: all of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Proof {
    /// Where the ids below mean something.
    pid_namespace: u64,
    pub(super) processes: Vec<Process>,
    groups: Vec<i32>,
}

/// One process: its id may be given to another one later, its start time tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Process {
    pid: i32,
    /// In clock ticks since boot, from `/proc/PID/stat`.
    start: u64,
}

/// How a process stands.
#[derive(Debug)]
pub(super) enum Life {
    Gone,
    /// The descriptor becomes readable when it ends.
    Alive(OwnedFd),
    /// No way to tell: counts as alive.
    Unknown,
}

impl Proof {
    /// What a request is bound to; `None`: nothing can prove its end, or one of the processes is unknown by now.
    pub(super) fn of(bound_to: &BoundTo, machine: &Machine) -> Option<Self> {
        let (pids, groups) = match bound_to {
            BoundTo::ThisProcess => (vec![std::process::id()], vec![]),
            BoundTo::All { processes, groups } => (processes.clone(), groups.clone()),
            BoundTo::Nothing => return None,
        };
        let processes: Vec<_> = pids.into_iter().map(Process::find).collect::<Option<_>>()?;
        let groups: Vec<_> =
            groups.into_iter().map(|id| i32::try_from(id).ok()).collect::<Option<_>>()?;
        let empty = processes.is_empty() && groups.is_empty();
        (!empty).then_some(Self { pid_namespace: machine.pid_namespace, processes, groups })
    }

    /// Whether it is certain that nothing of it runs any more.
    pub(super) fn all_gone(&self, machine: &Machine) -> bool {
        self.can_be_seen_from(machine)
            && self.processes.iter().all(Process::is_gone)
            && self.groups.iter().all(|group| group_is_gone(*group))
    }

    /// Whether the ids mean the same here as where they were written down.
    pub(super) fn can_be_seen_from(&self, machine: &Machine) -> bool {
        self.pid_namespace == machine.pid_namespace
    }
}

impl Process {
    fn find(pid: u32) -> Option<Self> {
        let pid = i32::try_from(pid).ok()?;
        Some(Self { pid, start: start_of(pid)? })
    }

    fn is_gone(&self) -> bool {
        matches!(self.life(), Life::Gone)
    }

    /// Opens a pidfd first and reads the start time after: the descriptor pins the id.
    pub(super) fn life(&self) -> Life {
        let Some(pid) = Pid::from_raw(self.pid) else {
            return Life::Unknown;
        };
        let pidfd = match pidfd_open(pid, PidfdFlags::NONBLOCK) {
            Ok(pidfd) => pidfd,
            Err(Errno::SRCH) => return Life::Gone,
            Err(_) => return Life::Unknown,
        };
        let another = start_of(self.pid).is_some_and(|start| start != self.start);
        if another || has_ended(&pidfd) { Life::Gone } else { Life::Alive(pidfd) }
    }
}

/// A pidfd is readable once its process has ended, also while it is a zombie.
fn has_ended(pidfd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1..))
}

fn group_is_gone(group: i32) -> bool {
    let id = Pid::from_raw(group);
    id.is_some_and(|id| test_kill_process_group(id) == Err(Errno::SRCH))
}

/// The start time: the 22nd field, counted after the program's name, which may hold anything but ends with `)`.
fn start_of(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn child() -> Child {
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
    }

    fn proof(processes: Vec<u32>, groups: Vec<u32>) -> Proof {
        Proof::of(&BoundTo::All { processes, groups }, &Machine::this().unwrap()).unwrap()
    }

    #[test]
    fn this_process_is_alive() {
        let machine = Machine::this().unwrap();
        assert!(!Proof::of(&BoundTo::ThisProcess, &machine).unwrap().all_gone(&machine));
        assert!(Proof::of(&BoundTo::Nothing, &machine).is_none());
    }

    #[test]
    fn a_zombie_and_a_reaped_process_are_gone() {
        let machine = Machine::this().unwrap();
        let mut child = child();
        let proof = proof(vec![child.id()], vec![]);
        assert!(!proof.all_gone(&machine));
        let Life::Alive(pidfd) = proof.processes[0].life() else { panic!("a pidfd is expected") };
        child.kill().unwrap();
        poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None).unwrap();
        assert!(proof.all_gone(&machine), "a zombie is gone");
        child.wait().unwrap();
        assert!(proof.all_gone(&machine), "reaped is gone");
    }

    #[test]
    fn another_process_of_the_same_id_is_not_the_holder() {
        let machine = Machine::this().unwrap();
        let mut proof = proof(vec![std::process::id()], vec![]);
        proof.processes[0].start -= 1;
        assert!(proof.all_gone(&machine));
    }

    #[test]
    fn ids_of_another_namespace_prove_nothing() {
        let mut machine = Machine::this().unwrap();
        let mut child = child();
        let proof = proof(vec![child.id()], vec![]);
        child.kill().unwrap();
        child.wait().unwrap();
        machine.pid_namespace += 1;
        assert!(!proof.all_gone(&machine));
    }

    #[test]
    fn a_group_lives_as_long_as_one_of_it() {
        use std::os::unix::process::CommandExt;
        let machine = Machine::this().unwrap();
        let mut child = Command::new("cat").stdin(Stdio::piped()).process_group(0).spawn().unwrap();
        let proof = proof(vec![], vec![child.id()]);
        assert!(!proof.all_gone(&machine));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(proof.all_gone(&machine));
    }
}
