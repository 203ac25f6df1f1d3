//! Every signal, to every process of a run, while it waits and while it holds.

use std::{
    os::unix::process::{CommandExt, ExitStatusExt},
    process::ExitStatus,
    time::Duration,
};

use rustix::process::Signal;

use crate::{
    processes::{Cast, Process},
    world::{Finished, Running, World, eventually},
};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Waiting,
    Holding,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Target {
    Runner,
    Guardian,
    /// The command's first process; while waiting, the one that is to become it.
    Command,
    /// Both at once.
    RunnerAndGuardian,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Shape {
    /// One process.
    Plain,
    /// A shell, and a grandchild in a session of its own that ignores TERM.
    WithGrandchild,
}

#[derive(Clone, Copy, Debug)]
enum Then {
    /// The runner ends so, and the lock is free long before its TTL has ended.
    Ends(Code, Grandchild),
    /// Nothing changes: all go on, past the TTL, and end well.
    GoesOn,
    /// The command is ended while the lease is still valid; the TTL frees the lock. When the runner goes on, it says 79.
    IsEndedInTime,
    /// Nothing ends the command until they go on, which is after the end of its lease: only the token protects.
    OutlivesItsLease,
    /// Others do not wait for it for longer than its TTL; when it goes on, it takes its turn.
    LosesItsTurn,
}

/// How the runner ends.
#[derive(Clone, Copy, Debug)]
enum Code {
    /// 128 and the number of the signal that was sent.
    OfSignal,
    Is(i32),
    /// By the signal itself.
    Killed,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Grandchild {
    /// Gone before the next holder enters.
    Ended,
    /// Neither signalled nor waited for, as docs/cli.md says.
    LeftAlone,
}

struct Line(Phase, Target, &'static [Shape], &'static [Signal], Then);

/// One combination and what is to come of it.
pub(crate) struct Row {
    phase: Phase,
    target: Target,
    shape: Shape,
    signal: Signal,
    then: Then,
}

use Grandchild::{Ended, LeftAlone};
use Phase::{Holding, Waiting};
use Shape::{Plain, WithGrandchild};
use Target::{Command, Guardian, Runner, RunnerAndGuardian};
use Then::{Ends, GoesOn, IsEndedInTime, LosesItsTurn, OutlivesItsLease};

const POLITE: &[Signal] = &[Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];
const KILL: &[Signal] = &[Signal::KILL];
const STOP: &[Signal] = &[Signal::STOP];
const BOTH: &[Shape] = &[Plain, WithGrandchild];
/// While waiting nothing of the command is there yet, whatever its shape.
const ANY: &[Shape] = &[Plain];

const MATRIX: &[Line] = &[
    Line(Waiting, Runner, ANY, POLITE, Ends(Code::OfSignal, Ended)),
    Line(Waiting, Runner, ANY, KILL, Ends(Code::Killed, Ended)),
    Line(Waiting, Runner, ANY, STOP, LosesItsTurn),
    Line(Waiting, Guardian, ANY, POLITE, GoesOn),
    Line(Waiting, Guardian, ANY, KILL, Ends(Code::Is(71), Ended)),
    Line(Waiting, Guardian, ANY, STOP, GoesOn),
    Line(Waiting, Command, ANY, POLITE, GoesOn),
    Line(Waiting, Command, ANY, KILL, Ends(Code::Is(71), Ended)),
    Line(Waiting, Command, ANY, STOP, GoesOn),
    Line(Waiting, RunnerAndGuardian, ANY, KILL, Ends(Code::Killed, Ended)),
    Line(Holding, Runner, BOTH, POLITE, Ends(Code::OfSignal, Ended)),
    Line(Holding, Runner, BOTH, KILL, Ends(Code::Killed, Ended)),
    Line(Holding, Runner, BOTH, STOP, IsEndedInTime),
    Line(Holding, Guardian, BOTH, POLITE, GoesOn),
    Line(Holding, Guardian, BOTH, KILL, Ends(Code::Is(71), Ended)),
    Line(Holding, Guardian, BOTH, STOP, GoesOn),
    Line(Holding, Command, BOTH, POLITE, Ends(Code::OfSignal, Ended)),
    Line(Holding, Command, BOTH, KILL, Ends(Code::OfSignal, Ended)),
    Line(Holding, Command, BOTH, STOP, GoesOn),
    Line(Holding, RunnerAndGuardian, BOTH, KILL, Ends(Code::Killed, LeftAlone)),
    Line(Holding, RunnerAndGuardian, BOTH, STOP, OutlivesItsLease),
];

/// A trial each.
pub(crate) fn rows() -> impl Iterator<Item = Row> {
    MATRIX.iter().flat_map(|Line(phase, target, shapes, signals, then)| {
        shapes.iter().flat_map(move |shape| {
            let row = |signal: &Signal| Row {
                phase: *phase,
                target: *target,
                shape: *shape,
                signal: *signal,
                then: *then,
            };
            signals.iter().map(row)
        })
    })
}

/// Both files stay locked until their process is gone, stopped or not. Nothing else keeps them open.
const PLAIN: &str = "ulimit -c 0; exec 9> group; flock -n 9 || exit 9; echo $CERROJO_TOKEN > token; \
                     touch ready; while [ -e stay ]; do sleep 0.05 9>&-; done; wait";
const WITH_GRANDCHILD: &str = "ulimit -c 0; exec 9> group; flock -n 9 || exit 9; echo $CERROJO_TOKEN > token; \
     setsid sh -c 'exec 9>&- 8> away; flock -n 8 || exit 8; trap \"\" TERM; echo $$ > grandchild; touch there; \
                   while [ -e stay ]; do sleep 0.05 8>&-; done' & \
     while [ ! -e there ]; do sleep 0.02 9>&-; done; touch ready; while [ -e stay ]; do sleep 0.05 9>&-; done; wait";

/// What the next holder looks at first: whether it is alone.
const NEXT: &str =
    "flock -n group true || exit 8; flock -n away true || exit 7; echo $CERROJO_TOKEN";
const ONLY_THE_GRANDCHILD_IS_THERE: i32 = 7;
const THE_COMMAND_IS_THERE: i32 = 8;

/// So long that nobody enters by its end.
const LONG: &[&str] = &["x", "--ttl", "10m", "--grace", "1s"];
/// So short that its end is seen, and long enough for a busy machine to renew.
const SHORT: &[&str] = &["x", "--ttl", "4s"];
const PAST_SHORT: Duration = Duration::from_secs(5);

impl Row {
    pub(crate) fn name(&self) -> String {
        let Self { phase, target, shape, signal, .. } = self;
        format!("{phase:?}::{}::{target:?}::{shape:?}", name(*signal)).to_lowercase()
    }

    pub(crate) fn prove(self) {
        let world = World::new();
        world.touch("stay");
        match self.phase {
            Waiting => self.prove_waiting(&world),
            Holding => self.prove_holding(&world),
        }
    }

    fn prove_holding(&self, world: &World) {
        let runner = self.start(world);
        world.await_file("ready");
        let cast = Cast::of(&runner);
        let grandchild = self.has_grandchild().then(|| Process::written(world, "grandchild"));
        let next = world.start_script(LONG, NEXT);
        self.send(&cast);
        match self.then {
            Ends(code, fate) => {
                self.assert_end(&runner.finish(), code);
                let next = next.finish();
                assert_next(world, &next, fate, grandchild.as_ref());
            }
            GoesOn => {
                std::thread::sleep(PAST_SHORT);
                assert!(cast.command.is_alive(), "the command is gone");
                self.wake(&cast);
                leave(world);
                runner.finish().assert_code(0);
                assert_next(world, &next.finish(), Ended, None);
            }
            IsEndedInTime | LosesItsTurn => {
                assert_next(world, &next.finish(), Ended, None);
                self.wake(&cast);
                runner.finish().assert_code(79);
            }
            OutlivesItsLease => {
                next.finish().assert_code(THE_COMMAND_IS_THERE);
                self.wake(&cast);
                runner.finish().assert_code(79);
                assert_next(world, &world.run_script(LONG, NEXT), Ended, None);
            }
        }
        gone(&cast);
    }

    fn prove_waiting(&self, world: &World) {
        let holder = world.hold("x");
        let runner = self.start(world);
        let cast = Cast::of(&runner);
        eventually("it says that it waits", || !runner.said().is_empty());
        let next = world.start_script(LONG, NEXT);
        self.send(&cast);
        match self.then {
            Ends(code, _) => {
                self.assert_end(&runner.finish(), code);
                world.let_go();
                next.finish().assert_code(0);
                assert!(!world.path("ready").exists(), "it ran");
            }
            GoesOn => {
                self.wake(&cast);
                world.let_go();
                world.await_file("ready");
                leave(world);
                runner.finish().assert_code(0);
                next.finish().assert_code(0);
            }
            IsEndedInTime | LosesItsTurn | OutlivesItsLease => {
                world.let_go();
                next.finish().assert_code(0);
                assert!(!world.path("ready").exists(), "it ran");
                self.wake(&cast);
                world.await_file("ready");
                leave(world);
                runner.finish().assert_code(0);
            }
        }
        holder.finish().assert_code(0);
        gone(&cast);
    }

    /// However the tests were started, signals begin as they do in a terminal.
    fn start(&self, world: &World) -> Running {
        let mut command = world.command_with_signals("--default-signal=INT,TERM,HUP,QUIT");
        let options = if matches!(self.then, Ends(..)) { LONG } else { SHORT };
        let script = if self.has_grandchild() { WITH_GRANDCHILD } else { PLAIN };
        command.arg("run").args(options).args(["--", "sh", "-c", script]);
        // As a shell's job: what stops its group does not stop the tests.
        command.process_group(0);
        Running::start(command)
    }

    fn send(&self, cast: &Cast) {
        self.targets(cast).for_each(|process| process.signal(self.signal));
    }

    /// What was stopped goes on.
    fn wake(&self, cast: &Cast) {
        self.targets(cast).for_each(|process| process.signal(Signal::CONT));
    }

    fn targets<'a>(&self, cast: &'a Cast) -> impl Iterator<Item = &'a Process> {
        let targets = match self.target {
            Runner => [Some(&cast.runner), None],
            Guardian => [Some(&cast.guardian), None],
            Command => [Some(&cast.command), None],
            RunnerAndGuardian => [Some(&cast.runner), Some(&cast.guardian)],
        };
        targets.into_iter().flatten()
    }

    fn has_grandchild(&self) -> bool {
        self.shape == WithGrandchild
    }

    fn assert_end(&self, run: &Finished, code: Code) {
        let number = self.signal.as_raw();
        let wanted = match code {
            Code::OfSignal => ExitStatus::from_raw((128 + number) << 8),
            Code::Is(code) => ExitStatus::from_raw(code << 8),
            Code::Killed => ExitStatus::from_raw(number),
        };
        assert_eq!(run.status, wanted, "{run:?}");
    }
}

fn leave(world: &World) {
    std::fs::remove_file(world.path("stay")).unwrap();
}

/// The next holder was alone, or alone but for who may be there, and its token is greater.
#[track_caller]
fn assert_next(world: &World, next: &Finished, fate: Grandchild, grandchild: Option<&Process>) {
    if let (LeftAlone, Some(grandchild)) = (fate, grandchild) {
        next.assert_code(ONLY_THE_GRANDCHILD_IS_THERE);
        assert!(grandchild.is_alive());
        return;
    }
    next.assert_code(0);
    let token = |text: &str| text.trim().parse::<u64>().unwrap();
    assert!(token(&next.stdout) > token(&world.read("token")));
}

fn gone(cast: &Cast) {
    for (who, process) in
        [("runner", &cast.runner), ("guardian", &cast.guardian), ("command", &cast.command)]
    {
        eventually(who, || !process.is_alive());
    }
}

fn name(signal: Signal) -> &'static str {
    match signal {
        Signal::INT => "int",
        Signal::TERM => "term",
        Signal::HUP => "hup",
        Signal::QUIT => "quit",
        Signal::KILL => "kill",
        Signal::STOP => "stop",
        _ => "another",
    }
}
