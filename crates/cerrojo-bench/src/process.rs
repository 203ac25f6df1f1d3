//! Processes of our own, and what the kernel says of them.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::mpsc::Sender,
};

use crate::Result;

/// Clock ticks a second in `/proc`: 100 on every architecture that Rust's Linux targets have.
const TICKS_PER_SECOND: f64 = 100.0;

/// A process that works for us; killed when dropped.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    /// The worker ends its work when this is closed, as it is when we die.
    input: Option<ChildStdin>,
}

/// A line that a worker printed.
#[derive(Debug)]
pub struct Said {
    /// Which process.
    pub pid: u32,
    /// What, without the end of the line.
    pub line: String,
}

impl Worker {
    /// Starts this program again in another part; what it prints goes to `said`.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn start(part: &[&str], said: Sender<Said>) -> Result<Self> {
        Self::spawn(Command::new(std::env::current_exe()?).args(part), said)
    }

    /// Starts any program; what it prints goes to `said`.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn spawn(command: &mut Command, said: Sender<Said>) -> Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (pid, input) = (child.id(), child.stdin.take());
        if let Some(output) = child.stdout.take() {
            std::thread::spawn(move || pass_on(pid, output, &said));
        }
        Ok(Self { child, input })
    }

    /// Tells it a line.
    ///
    /// # Errors
    ///
    /// When it does not listen any more.
    pub fn say(&mut self, line: &str) -> std::io::Result<()> {
        self.input.as_mut().map_or(Ok(()), |input| writeln!(input, "{line}"))
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Tells it to end, without waiting.
    pub fn finish(&mut self) {
        self.input = None;
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // An error means that it has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn pass_on(pid: u32, output: ChildStdout, said: &Sender<Said>) {
    let lines = BufReader::new(output).lines().map_while(std::result::Result::ok);
    // Sending fails once nobody listens any more.
    let _listened = lines.map(|line| said.send(Said { pid, line })).all(|sent| sent.is_ok());
}

/// Seconds of CPU that all threads of a process have used.
///
/// # Errors
///
/// When there is no such process.
pub fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let ticks = cpu_ticks(&stat).ok_or("/proc/PID/stat is not as expected")?;
    Ok(ticks / TICKS_PER_SECOND)
}

/// The name may hold spaces and brackets; user and system time are the 12th and 13th field after it.
fn cpu_ticks(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
    Some(times.next()?.ok()? + times.next()?.ok()?)
}

/// Bytes of this process that are in memory.
///
/// # Errors
///
/// When the kernel does not say.
pub fn resident_bytes() -> Result<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|rest| rest.split_whitespace().next()).ok_or("no VmRSS")?;
    Ok(kilobytes.parse::<f64>()? * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_times_behind_a_hostile_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 100 0 0 0 31 11 0 0 20 0 1 0 5 1 1";
        assert_eq!(cpu_ticks(stat), Some(42.0));
    }

    #[test]
    fn this_process_has_memory_and_time() {
        assert!(resident_bytes().unwrap() > 0.0);
        assert!(cpu_seconds(std::process::id()).unwrap() >= 0.0);
    }
}
