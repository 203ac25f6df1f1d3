//! Other processes: the test program again, as a puppet that does what it is told by lines of text.

mod puppet;

use std::{
    io::{BufRead, BufReader, Write},
    process::{ChildStdin, Command, ExitCode, Stdio},
    time::Duration,
};

use tokio::sync::mpsc;

use super::{
    Harness,
    case::{Failure, Verdict, check},
    cases,
    site::{PATIENCE, soon},
};
use crate::{Instant, Ttl};

/// The first argument of a process that the suite starts; no test runner knows it.
const CHILD: &str = "--conformance-child";

/// How often [`Child::work`] is polled, and again after each renewal.
const BETWEEN_POLLS: Duration = Duration::from_millis(300);

/// What such a process is for.
enum Role {
    /// Opens the store with this URL and does what it is told.
    Puppet(String),
    /// Runs this case on a store of its own.
    Case(String),
}

impl Role {
    fn as_args(&self) -> [&str; 2] {
        match self {
            Self::Puppet(url) => ["puppet", url],
            Self::Case(name) => ["case", name],
        }
    }

    /// The role for this harness in our arguments.
    fn from_args(harness: &str, args: &[String]) -> Option<Self> {
        match args {
            [_, child, ours, role, what] if child == CHILD && ours == harness => {
                match role.as_str() {
                    "puppet" => Some(Self::Puppet(what.clone())),
                    "case" => Some(Self::Case(what.clone())),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

/// Does the work of a process that the suite started for this harness; `None` if this process is no such.
///
/// To be called first in `main`, once for each harness.
pub fn child_main<H: Harness>(harness: &H) -> Option<ExitCode> {
    let args: Vec<String> = std::env::args().collect();
    let verdict = match Role::from_args(&harness.name(), &args)? {
        Role::Puppet(url) => puppet::serve(harness, &url),
        Role::Case(name) => serve_case(harness, &name),
    };
    if let Err(why) = &verdict {
        // With nobody to tell, the exit code tells.
        drop(writeln!(std::io::stderr(), "{why}"));
    }
    Some(if verdict.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The case, until it ends or whoever started this process is gone.
fn serve_case<H: Harness>(harness: &H, name: &str) -> Verdict {
    let case = cases::all::<H>().into_iter().find(|case| case.name == name);
    let case = case.ok_or_else(|| Failure::new(format!("no case {name}")))?;
    std::thread::spawn(|| {
        drop(std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
        std::process::exit(1);
    });
    case.run_here(harness.clone())
}

/// Runs a case in a process of its own.
pub(super) fn run_case<H: Harness>(harness: &H, name: &str, limit: Duration) -> Verdict {
    let mut process = Process::start(&harness.name(), &Role::Case(name.to_owned()))?;
    let end = Instant::now() + limit;
    while process.0.try_wait()?.is_none() {
        check!(Instant::now() < end, "did not end within {limit:?}");
        nap();
    }
    check!(process.0.wait()?.success(), "failed in its process; see standard error");
    Ok(())
}

/// Waits a little where no runtime is.
fn nap() {
    std::thread::park_timeout(Duration::from_millis(20));
}

/// A process that does not outlive this value.
struct Process(std::process::Child);

impl Process {
    fn start(harness: &str, role: &Role) -> std::io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(CHILD).arg(harness).args(role.as_args());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map(Self)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to do.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A puppet.
pub(crate) struct Child {
    process: Process,
    input: ChildStdin,
    lines: mpsc::UnboundedReceiver<String>,
}

/// What a puppet says of the lease that it has.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    /// `held`, `at_risk`, `lost` or `released`.
    pub(crate) state: String,
    /// Zero when lost.
    pub(crate) valid_until: Instant,
    /// From a fenced store.
    pub(crate) token: Option<u64>,
    /// When the work of [`Child::work`] was last polled.
    pub(crate) polled_at: Instant,
}

impl Child {
    /// Starts a puppet on the store with this URL.
    pub(crate) async fn open(harness: &str, url: &str) -> Result<Self, Failure> {
        let mut process = Process::start(harness, &Role::Puppet(url.to_owned()))?;
        let input = process.0.stdin.take().ok_or_else(|| Failure::new("no standard input"))?;
        let output = process.0.stdout.take().ok_or_else(|| Failure::new("no standard output"))?;
        let (sender, lines) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            lines.for_each(|line| drop(sender.send(line)));
        });
        let mut child = Self { process, input, lines };
        child.hear("open").await?;
        Ok(child)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.0.id()
    }

    /// Acquires and holds. `bound`: `process` or `nothing`.
    pub(crate) async fn acquire(&mut self, ttl: Ttl, bound: &str) -> Result<Told, Failure> {
        self.start_acquiring(ttl, bound)?;
        self.acquired().await
    }

    pub(crate) fn start_acquiring(&mut self, ttl: Ttl, bound: &str) -> Verdict {
        self.say(&format!("acquire {} {bound}", ttl.get().as_millis()))
    }

    /// The answer to [`Child::start_acquiring`].
    pub(crate) async fn acquired(&mut self) -> Result<Told, Failure> {
        self.hear("acquired").await?;
        self.told().await
    }

    /// What it says of its lease now.
    pub(crate) async fn told(&mut self) -> Result<Told, Failure> {
        self.say("tell")?;
        let answer = self.hear("told").await?;
        parse(&answer).ok_or_else(|| Failure::new(format!("told {answer:?}")))
    }

    /// Starts work under [`Guard::run`](crate::Guard::run) that never ends.
    pub(crate) async fn work(&mut self) -> Verdict {
        self.say("work")?;
        self.hear("working").await.map(drop)
    }

    /// Adds one to the number in `file`, `rounds` times, each time under the lock.
    pub(crate) fn start_counting(&mut self, file: &std::path::Path, rounds: u32) -> Verdict {
        self.say(&format!("count {rounds} {}", file.display()))
    }

    /// The answer to [`Child::start_counting`].
    pub(crate) async fn counted(&mut self) -> Verdict {
        self.hear("counted").await.map(drop)
    }

    /// Releases, and says how that went: `released`, `lost` or `indeterminate`.
    pub(crate) async fn release(&mut self) -> Result<String, Failure> {
        self.say("release")?;
        self.hear("release").await
    }

    /// Ends it at once, as a crash would, and waits until it is gone.
    pub(crate) fn kill(&mut self) -> Verdict {
        self.process.0.kill()?;
        self.process.0.wait()?;
        Ok(())
    }

    /// Stops it while its work is not being polled, and says what it told last.
    ///
    /// A freeze between the look at the clock and the poll that follows cannot be excluded by any holder, only
    /// by a fence: such a poll is not what a case about freezing is after.
    pub(crate) async fn freeze_between_polls(&mut self) -> Result<Told, Failure> {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            let told = self.told().await?;
            self.freeze()?;
            if Instant::now().since(told.polled_at) < BETWEEN_POLLS * 2 / 3 {
                return Ok(told);
            }
            self.thaw()?;
        }
        Err(Failure::new("polled all the time"))
    }

    /// Stops it, and waits until it stands still.
    #[cfg(target_os = "linux")]
    fn freeze(&self) -> Verdict {
        use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
        let pid = Pid::from_child(&self.process.0);
        kill_process(pid, Signal::STOP)?;
        waitpid(Some(pid), WaitOptions::UNTRACED)?;
        Ok(())
    }

    /// Lets it go on.
    #[cfg(target_os = "linux")]
    pub(crate) fn thaw(&self) -> Verdict {
        use rustix::process::{Pid, Signal, kill_process};
        kill_process(Pid::from_child(&self.process.0), Signal::CONT)?;
        Ok(())
    }

    #[cfg(not(target_os = "linux"))]
    fn freeze(&self) -> Verdict {
        Err(Failure::new("freezing a process is written for Linux only"))
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn thaw(&self) -> Verdict {
        Err(Failure::new("freezing a process is written for Linux only"))
    }

    fn say(&mut self, line: &str) -> Verdict {
        writeln!(self.input, "{line}")?;
        self.input.flush()?;
        Ok(())
    }

    /// The next line, which has to begin with this word; what follows it.
    async fn hear(&mut self, word: &str) -> Result<String, Failure> {
        let line = soon(word, self.lines.recv()).await?;
        let line = line.ok_or_else(|| Failure::new(format!("{word}: the process has ended")))?;
        let rest = line.strip_prefix(word).map(|rest| rest.trim().to_owned());
        rest.ok_or_else(|| Failure::new(format!("{word} was expected, not {line:?}")))
    }
}

/// `STATE VALID_UNTIL TOKEN POLLED_AT`, the token 0 where there is none.
fn parse(text: &str) -> Option<Told> {
    let mut words = text.split(' ');
    let state = words.next()?.to_owned();
    let mut number = || words.next()?.parse::<u64>().ok();
    Some(Told {
        state,
        valid_until: Instant::from_nanos(number()?),
        token: number().map(|token| (token > 0).then_some(token))?,
        polled_at: Instant::from_nanos(number()?),
    })
}
