//! Processes and their parents, as /proc shows them.

use std::fs;

use rustix::process::{self, Pid, Signal};

/// One process, at the moment it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) pid: Pid,
    pub(crate) parent: Option<Pid>,
    /// None where it has none that we can name, as where the group's leader is outside of our pid namespace.
    pub(crate) group: Option<Pid>,
    pub(crate) session: Option<Pid>,
    /// In clock ticks since the machine started.
    pub(crate) start: u64,
}

impl Member {
    /// None when it is gone.
    pub(crate) fn find(pid: Pid) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Self::parse(pid, &stat)
    }

    /// The name, second of the fields, may hold anything but ends with the last `)`. One that is just being reaped has -1 for
    /// its group.
    fn parse(pid: Pid, stat: &str) -> Option<Self> {
        let (_, after_name) = stat.rsplit_once(')')?;
        let mut fields = after_name.split_ascii_whitespace().skip(1);
        let mut next_id = || {
            let id: i32 = fields.next()?.parse().ok()?;
            (id >= 0).then(|| Pid::from_raw(id))
        };
        let (parent, group, session) = (next_id()?, next_id()?, next_id()?);
        let start = fields.nth(15)?.parse().ok()?;
        Some(Self { pid, parent, group, session, start })
    }

    /// One that is gone, or not ours to signal, is left alone.
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = process::kill_process(self.pid, signal);
    }
}

/// The group of this process.
pub(crate) fn our_group() -> Option<Pid> {
    Member::find(process::getpid())?.group
}

/// All that descend from a process, itself not among them.
pub(crate) fn descendants(of: Pid) -> Vec<Member> {
    let mut others = all();
    let mut family = vec![];
    let mut parents = vec![of];
    while let Some(parent) = parents.pop() {
        let (children, rest): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|other| other.parent == Some(parent));
        parents.extend(children.iter().map(|child| child.pid));
        family.extend(children);
        others = rest;
    }
    family
}

fn all() -> Vec<Member> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return vec![];
    };
    let ids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter_map(Pid::from_raw).filter_map(Member::find).collect()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let pid = Pid::from_raw(7).unwrap();
        let stat = "7 (a) b (c) S 3 5 6 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 99";
        let member = Member::parse(pid, stat).unwrap();
        assert_eq!((member.parent, member.group), (Pid::from_raw(3), Pid::from_raw(5)));
        assert_eq!(member.session, Pid::from_raw(6));
        assert_eq!(member.start, 4711);
        assert_eq!(Member::parse(pid, "7 (cut"), None);
    }

    #[test]
    fn a_group_and_a_session_outside_of_the_namespace_are_none() {
        let stat = "1 (init) S 0 0 0 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 99";
        let member = Member::parse(Pid::from_raw(1).unwrap(), stat).unwrap();
        assert_eq!((member.parent, member.group, member.session), (None, None, None));
    }

    #[test]
    fn one_that_is_just_being_reaped_is_gone() {
        let stat = "7 (a) Z 0 -1 -1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 0 0 4711 99";
        assert_eq!(Member::parse(Pid::from_raw(7).unwrap(), stat), None);
    }

    #[test]
    fn children_and_their_children_are_found_and_nobody_else() {
        let script = "sleep 60 & echo started; wait";
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = command.spawn().unwrap();
        let mut line = String::new();
        let stdout = shell.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).unwrap();
        let (ours, theirs) = (process::getpid(), Pid::from_child(&shell));
        let family = descendants(theirs);
        assert_eq!(family.len(), 1, "{family:?}");
        assert_eq!(family[0].parent, Some(theirs));
        let all = descendants(ours);
        assert!(all.iter().any(|member| member.pid == theirs));
        assert!(all.contains(&family[0]));
        family[0].signal(Signal::KILL);
        shell.wait().unwrap();
        assert_eq!(descendants(theirs), []);
    }
}
