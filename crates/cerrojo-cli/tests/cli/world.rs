//! A folder of its own with a store, and bounded runs of the binary on it.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::Write,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Nothing here takes nearly as long, unless it is broken.
const LIMIT: Duration = Duration::from_secs(60);

/// A folder with a store and whatever else a test needs; removed at the end.
pub(crate) struct World {
    folder: TempDir,
    store: String,
}

/// The binary at work.
pub(crate) struct Running {
    child: Child,
    output: TempDir,
}

/// What a run came to.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl World {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = format!("local:{}", folder.path().join("store").display());
        Self { folder, store }
    }

    /// On the store that a URL names.
    pub(crate) fn on(store: String) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), store }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn store(&self) -> &str {
        &self.store
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub(crate) fn touch(&self, name: &str) {
        drop(File::create(self.path(name)).unwrap());
    }

    /// Ready once the file is there.
    pub(crate) fn await_file(&self, name: &str) {
        eventually(name, || self.path(name).exists());
    }

    /// The binary, in this folder and on this store.
    pub(crate) fn command(&self) -> Command {
        self.prepare(Command::new(env!("CARGO_BIN_EXE_cerrojo")))
    }

    /// The binary, started by `env` with an option that sets its signals.
    pub(crate) fn command_with_signals(&self, option: &str) -> Command {
        let mut command = Command::new("env");
        command.args([option, env!("CARGO_BIN_EXE_cerrojo")]);
        self.prepare(command)
    }

    /// A command in this folder and with this store in its environment.
    pub(crate) fn prepare(&self, mut command: Command) -> Command {
        command.current_dir(self.folder.path()).env("CERROJO_STORE", self.store());
        for name in ["CERROJO_LOG", "CERROJO_LOCK", "CERROJO_TOKEN", "CERROJO_STORE_ID", "COLUMNS"]
        {
            command.env_remove(name);
        }
        command.stdin(Stdio::null());
        command
    }

    /// The binary with these arguments, to its end.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Finished {
        self.start(arguments).finish()
    }

    pub(crate) fn start<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Running {
        let mut command = self.command();
        command.args(arguments);
        Running::start(command)
    }

    /// `cerrojo run` of a shell script.
    pub(crate) fn start_script(&self, options: &[&str], script: &str) -> Running {
        self.start(&[&["run"], options, &["--", "sh", "-c", script]].concat())
    }

    pub(crate) fn run_script(&self, options: &[&str], script: &str) -> Finished {
        self.start_script(options, script).finish()
    }

    /// Holds `name` until [`World::let_go`], from when this returns.
    pub(crate) fn hold(&self, name: &str) -> Running {
        let held = format!("held.{}", name.replace('/', "."));
        let script =
            format!("touch {held}; while [ -e {held} ] && [ ! -e let-go ]; do sleep 0.02; done");
        let running = self.start_script(&["--ttl", "10m", name], &script);
        self.await_file(&held);
        running
    }

    pub(crate) fn let_go(&self) {
        self.touch("let-go");
    }
}

/// A test that fails leaves no holder behind.
impl Drop for World {
    fn drop(&mut self) {
        drop(File::create(self.path("let-go")));
    }
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let output = tempfile::tempdir().unwrap();
        // Files, not pipes: whoever else has them open cannot make the reading hang.
        command.stdout(File::create(output.path().join("stdout")).unwrap());
        command.stderr(File::create(output.path().join("stderr")).unwrap());
        Self { child: command.spawn().unwrap(), output }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Writes to its stdin, which stays open.
    pub(crate) fn write(&mut self, text: &str) {
        self.child.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Ends its stdin.
    pub(crate) fn hang_up(&mut self) {
        self.child.stdin = None;
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Whether the process has a handler for a signal.
    pub(crate) fn catches(&self, signal: Signal) -> bool {
        let status = format!("/proc/{}/status", self.id());
        let status = fs::read_to_string(status).unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0");
        let mask = u64::from_str_radix(mask.trim(), 16).unwrap();
        mask >> (signal.as_raw() - 1) & 1 == 1
    }

    /// What it has written to stdout so far.
    pub(crate) fn told(&self) -> String {
        self.written("stdout")
    }

    /// What it has written to stderr so far.
    pub(crate) fn said(&self) -> String {
        self.written("stderr")
    }

    pub(crate) fn finish(mut self) -> Finished {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(start.elapsed() < LIMIT, "not done within {LIMIT:?}: {}", self.said());
            std::thread::sleep(Duration::from_millis(5));
        };
        Finished { status, stdout: self.written("stdout"), stderr: self.said() }
    }

    fn written(&self, stream: &str) -> String {
        fs::read_to_string(self.output.path().join(stream)).unwrap()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

/// Ends what a failed test has left, and with it its child: TERM is passed on, KILL is not.
impl Drop for Running {
    fn drop(&mut self) {
        let done = |child: &mut Child| !matches!(child.try_wait(), Ok(None));
        if done(&mut self.child) {
            return;
        }
        let _ = kill_process(self.pid(), Signal::TERM);
        let start = Instant::now();
        while !done(&mut self.child) && start.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Finished {
    /// The exit code; a failure when the binary itself was killed.
    pub(crate) fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("killed: {self:?}"))
    }

    #[track_caller]
    pub(crate) fn assert_code(&self, code: i32) {
        assert_eq!(self.status.code(), Some(code), "{self:?}");
    }
}

/// What a run has printed, which has worked.
#[track_caller]
pub(crate) fn answer(run: &Finished) -> Value {
    run.assert_code(0);
    serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}: {run:?}"))
}

/// A subcommand by an owner, who stands in the environment.
pub(crate) fn as_owner(world: &World, owner: &str, arguments: &[&str]) -> Finished {
    let mut command = world.command();
    command.args(arguments).env("CERROJO_OWNER", owner);
    Running::start(command).finish()
}

/// Waits until it is so, and fails when that takes too long.
#[track_caller]
pub(crate) fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
