//! People at a terminal, as `tmux` makes one: keys go in, a screen comes out.

use std::{
    path::PathBuf,
    process::{Command, Output},
    time::{Duration, Instant},
};

use crate::{
    Proof,
    processes::Process,
    world::{World, eventually},
};

pub(crate) const TRIALS: &[(&str, Proof)] = &[
    ("a_pager_works", pager),
    ("a_pager_behind_a_pipe_works", pager_behind_a_pipe),
    ("an_editor_works", editor),
    ("an_interactive_shell_works", interactive_shell),
    ("ctrl_c_ends_the_command_and_frees_the_lock", ctrl_c),
    ("ctrl_c_ends_the_wait", ctrl_c_while_waiting),
    ("ctrl_z_gives_the_shell_its_terminal_and_fg_goes_on", ctrl_z),
    ("ctrl_z_and_bg_go_on_and_renew", ctrl_z_and_bg),
    ("ctrl_z_for_too_long_ends_the_command_and_says_so", ctrl_z_too_long),
    ("a_waiter_shows_who_holds_the_lock_until_it_enters", waiting_display),
];

const LIMIT: Duration = Duration::from_secs(60);
/// Without the blank behind it, which the screen does not show at the end of a line.
const PROMPT: &str = "ready>";
const INNER_PROMPT: &str = "inner%";
const CERROJO: &str = env!("CARGO_BIN_EXE_cerrojo");

/// Whether the trials are left out, which is said; never where all is required.
pub(crate) fn is_missing() -> bool {
    if Command::new("tmux").arg("-V").output().is_ok() {
        return false;
    }
    eprintln!("tmux trials: tmux is not installed");
    std::env::var_os("CERROJO_TEST_REQUIRE").is_none()
}

/// A shell on a terminal of a server of its own, which ends with this.
struct Terminal<'a> {
    world: &'a World,
}

impl<'a> Terminal<'a> {
    fn new(world: &'a World) -> Self {
        let terminal = Self { world };
        // A shell that is not interactive, as the one by which tmux starts it, would drop the prompt.
        let shell = format!("exec env PS1='{PROMPT} ' bash --noprofile --norc -i");
        let size = ["-x", "120", "-y", "30"];
        let started = terminal
            .tmux(&[&["-f", "/dev/null", "new-session", "-d"], &size[..], &[&shell]].concat());
        assert!(started.status.success(), "{started:?}");
        terminal.prompts(PROMPT);
        terminal
    }

    fn tmux(&self, words: &[&str]) -> Output {
        let mut command = self.world.prepare(Command::new("tmux"));
        command.env_remove("TMUX").env("TERM", "xterm").env("LANG", "C.UTF-8");
        command.env("CERROJO", CERROJO).arg("-S").arg(self.socket()).args(words);
        command.output().unwrap()
    }

    fn socket(&self) -> PathBuf {
        self.world.path("tmux")
    }

    fn types(&self, line: &str) {
        self.tmux(&["send-keys", "-l", line]);
        self.presses("Enter");
    }

    fn presses(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }

    fn screen(&self) -> String {
        String::from_utf8(self.tmux(&["capture-pane", "-p"]).stdout).unwrap()
    }

    #[track_caller]
    fn sees(&self, text: &str) {
        self.awaits(text, |screen| screen.contains(text));
    }

    #[track_caller]
    fn awaits(&self, what: &str, is_so: impl Fn(&str) -> bool) {
        let start = Instant::now();
        loop {
            let screen = self.screen();
            if is_so(&screen) {
                return;
            }
            assert!(start.elapsed() < LIMIT, "{what}: not on the screen:\n{screen}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The shell has the terminal: what was typed before might be dropped by a program that puts it back in order.
    #[track_caller]
    fn prompts(&self, prompt: &str) {
        self.awaits(prompt, |screen| last_line(screen).ends_with(prompt));
    }

    /// The shell has the terminal again, and says how the last command ended.
    #[track_caller]
    fn answers(&self, code: i32) {
        self.prompts(PROMPT);
        self.types("echo \"code:$?\"");
        self.sees(&format!("code:{code}\n"));
    }
}

impl Drop for Terminal<'_> {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

fn is_free(world: &World) {
    world.run(&["show", "x"]).assert_code(1);
}

fn pager() {
    let world = World::new();
    let text: String = (0..500).map(|number| format!("line-{number}.\n")).collect();
    std::fs::write(world.path("text"), text).unwrap();
    let terminal = Terminal::new(&world);
    terminal.types("$CERROJO run x -- less text");
    terminal.sees("line-0.");
    terminal.presses("G");
    terminal.sees("line-499.");
    terminal.presses("q");
    terminal.answers(0);
    is_free(&world);
}

/// It has to ask for the terminal, since others in the pipeline may need it first.
fn pager_behind_a_pipe() {
    let world = World::new();
    let terminal = Terminal::new(&world);
    terminal.types("seq -f 'line-%g.' 0 499 | $CERROJO run x -- less");
    terminal.sees("line-0.");
    terminal.presses("G");
    terminal.sees("line-499.");
    terminal.presses("q");
    terminal.answers(0);
    is_free(&world);
}

fn editor() {
    let world = World::new();
    let terminal = Terminal::new(&world);
    terminal.types("$CERROJO run x -- vi text");
    terminal.awaits("an empty page", |screen| screen.contains("\n~\n~"));
    terminal.types("ithe text");
    terminal.presses("Escape");
    terminal.types(":wq");
    terminal.answers(0);
    assert!(world.read("text").contains("the text"));
}

/// In short sleeps: a signal that comes while dash starts a program is lost on that program, and dash heeds it itself only
/// when the program has ended.
const SLEEPER: &str = "sh -c 'touch ready; while :; do sleep 0.05; done'";

fn interactive_shell() {
    let world = World::new();
    let terminal = Terminal::new(&world);
    let inner = "bash --noprofile --norc -i";
    terminal.types(&format!("PS1='{INNER_PROMPT} ' $CERROJO run x -- {inner}"));
    terminal.prompts(INNER_PROMPT);
    terminal.types("echo \"lock:$CERROJO_LOCK\"");
    terminal.sees("lock:x\n");
    // Job control of its own: ^C reaches what it runs, and not itself.
    terminal.types(SLEEPER);
    world.await_file("ready");
    terminal.presses("C-c");
    terminal.prompts(INNER_PROMPT);
    terminal.types("exit 7");
    terminal.answers(7);
    is_free(&world);
}

fn last_line(screen: &str) -> &str {
    screen.trim_end().lines().next_back().unwrap_or_default()
}

fn ctrl_c() {
    let world = World::new();
    let terminal = Terminal::new(&world);
    terminal.types(&format!("$CERROJO run x -- {SLEEPER}"));
    world.await_file("ready");
    terminal.presses("C-c");
    terminal.answers(130);
    is_free(&world);
}

fn ctrl_c_while_waiting() {
    let world = World::new();
    let holder = world.hold("x");
    let terminal = Terminal::new(&world);
    terminal.types("$CERROJO run x -- touch entered");
    terminal.sees(&holder.id().to_string());
    terminal.presses("C-c");
    terminal.answers(130);
    world.let_go();
    holder.finish().assert_code(0);
    is_free(&world);
    assert!(!world.path("entered").exists());
}

const READER: &str = "sh -c 'echo $$ > pid; touch started; read line; echo \"got:$line\"; exit 3'";

fn ctrl_z() {
    let world = World::new();
    let terminal = Terminal::new(&world);
    terminal.types(&format!("$CERROJO run x --ttl 10m -- {READER}"));
    world.await_file("started");
    terminal.presses("C-z");
    terminal.sees("Stopped");
    terminal.prompts(PROMPT);
    terminal.types("echo \"the shell:$((40 + 2))\"");
    terminal.sees("the shell:42");
    world.run_script(&["x", "-n"], "true").assert_code(75);
    let command = Process::written(&world, "pid");
    assert!(command.is_stopped());
    terminal.types("fg");
    // The terminal is in order for it by then; what is typed before goes to the shell.
    eventually("the command goes on", || !command.is_stopped());
    terminal.types("one line");
    terminal.sees("got:one line");
    terminal.answers(3);
    is_free(&world);
}

fn ctrl_z_and_bg() {
    let world = World::new();
    let terminal = Terminal::new(&world);
    assert!(Command::new("mkfifo").arg(world.path("go")).status().unwrap().success());
    let job = "sh -c 'touch ready; read line < go; touch done'";
    terminal.types(&format!("$CERROJO run x --ttl 4s -- {job}"));
    world.await_file("ready");
    terminal.presses("C-z");
    terminal.sees("Stopped");
    terminal.prompts(PROMPT);
    terminal.types("bg");
    // Past the TTL.
    world.run_script(&["x", "-w", "5s"], "true").assert_code(75);
    world.touch("go");
    terminal.types("wait");
    terminal.answers(0);
    assert!(world.path("done").exists());
}

fn ctrl_z_too_long() {
    let world = World::new();
    let terminal = Terminal::new(&world);
    // Reads itself: dash is not stopped while a program that it starts is stopped too early.
    let sentinel = "sh -c 'exec 9> group; flock -n 9 || exit 9; touch ready; read line'";
    terminal.types(&format!("$CERROJO run x --ttl 4s -- {sentinel}"));
    world.await_file("ready");
    terminal.presses("C-z");
    terminal.sees("Stopped");
    terminal.prompts(PROMPT);
    // It enters by the end of the TTL, and the command is gone by then.
    world.run_script(&["x", "-w", "60s"], "flock -n group true").assert_code(0);
    terminal.types("clear");
    terminal.types("fg");
    terminal.sees("could not be kept");
    terminal.answers(79);
}

fn waiting_display() {
    let world = World::new();
    let holder = world.hold("x");
    let terminal = Terminal::new(&world);
    terminal.types("clear");
    terminal.types("$CERROJO run x -- sh -c 'touch entered; read line'");
    let pid = holder.id().to_string();
    terminal.sees(&pid);
    world.let_go();
    world.await_file("entered");
    terminal.awaits("the display is gone", |screen| !screen.contains(&pid));
    terminal.types("");
    terminal.answers(0);
    holder.finish().assert_code(0);
}
