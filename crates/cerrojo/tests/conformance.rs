//! Every backend passes the public suite, and so does its erased twin.
//!
//! A backend that is added to `src/backend/` fails here until its harness is added.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, reason = "a test program")]

use std::{collections::BTreeSet, process::ExitCode};

use cerrojo::{
    Error, ErrorKind, Result,
    backend::memory::Memory,
    conformance::{
        Capabilities, Capability, ErasedTwin, Harness, Instance, Severed, child_main, left_out,
        trials,
    },
};
use libtest_mimic::{Arguments, Trial};

#[derive(Clone, Debug)]
struct MemoryHarness;

struct MemoryInstance(Memory);

impl Harness for MemoryHarness {
    type Backend = Memory;
    type Instance = MemoryInstance;

    fn name(&self) -> String {
        "memory".to_owned()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::none()
            .with(Capability::Fenced)
            .with(Capability::Fifo)
            .with(Capability::Sever)
            .with(Capability::NamesHolder)
    }

    async fn fresh(&self) -> Result<MemoryInstance> {
        Ok(MemoryInstance(Memory::new()))
    }

    async fn open(&self, _url: &str) -> Result<Memory> {
        Err(Error::new(ErrorKind::Invalid, "a memory store is inside one process"))
    }
}

impl Instance for MemoryInstance {
    type Backend = Memory;

    async fn connect(&self) -> Result<Memory> {
        Ok(self.0.clone())
    }

    fn sever(&self) -> Option<Severed> {
        Some(Severed::new(self.0.interrupt()))
    }
}

#[cfg(all(feature = "local", target_os = "linux"))]
mod local {
    use std::{fs::File, path::PathBuf};

    use cerrojo::{
        Result,
        backend::local::Local,
        conformance::{Capabilities, Capability, Harness, Instance, Severed},
    };
    use tempfile::TempDir;

    #[derive(Clone, Debug)]
    pub(super) struct LocalHarness;

    pub(super) struct LocalInstance(TempDir);

    impl LocalInstance {
        /// The store makes its folder itself, for its owner alone.
        fn folder(&self) -> PathBuf {
            self.0.path().join("store")
        }
    }

    impl Harness for LocalHarness {
        type Backend = Local;
        type Instance = LocalInstance;

        fn name(&self) -> String {
            "local".to_owned()
        }

        fn capabilities(&self) -> Capabilities {
            Capabilities::none()
                .with(Capability::Fenced)
                .with(Capability::Fifo)
                .with(Capability::Processes)
                .with(Capability::Sever)
                .with(Capability::ProofOfDeath)
                .with(Capability::NamesHolder)
                .with_descriptors_max(16)
        }

        async fn fresh(&self) -> Result<LocalInstance> {
            Ok(LocalInstance(tempfile::tempdir().expect("a temporary folder")))
        }

        async fn open(&self, url: &str) -> Result<Local> {
            Local::connect(url).await
        }
    }

    impl Instance for LocalInstance {
        type Backend = Local;

        async fn connect(&self) -> Result<Local> {
            Local::connect(self.folder()).await
        }

        fn url(&self) -> Option<String> {
            Some(self.folder().to_str()?.to_owned())
        }

        /// Takes the writers' turn, and gives it to nobody.
        fn sever(&self) -> Option<Severed> {
            let turn = File::options().write(true).open(self.folder().join("turn")).ok()?;
            turn.lock().ok()?;
            Some(Severed::new(turn))
        }
    }
}

#[cfg(all(feature = "postgres", target_os = "linux"))]
#[path = "conformance/postgres.rs"]
mod postgres;
#[cfg(all(feature = "redis", target_os = "linux"))]
#[path = "conformance/redis.rs"]
mod redis;
#[cfg(all(feature = "redis", target_os = "linux"))]
#[path = "conformance/redlock.rs"]
mod redlock;
#[cfg(all(any(feature = "postgres", feature = "redis"), target_os = "linux"))]
#[path = "conformance/servers.rs"]
mod servers;

/// The trials of a backend's first set-up and of its erased twin, and the table of what is left out.
fn add<H: Harness>(harness: &H, all: &mut Vec<Trial>) -> Option<ExitCode> {
    add_alone(harness, all).or_else(|| add_alone(&ErasedTwin(harness.clone()), all))
}

/// The same of a further set-up, whose twin would prove nothing more.
fn add_alone<H: Harness>(harness: &H, all: &mut Vec<Trial>) -> Option<ExitCode> {
    let code = child_main(harness);
    if code.is_none() {
        eprint!("{}", left_out(harness));
        all.extend(trials(harness));
    }
    code
}

fn every_backend(all: &mut Vec<Trial>) -> Option<ExitCode> {
    if let Some(code) = add(&MemoryHarness, all) {
        return Some(code);
    }
    #[cfg(all(feature = "local", target_os = "linux"))]
    if let Some(code) = add(&local::LocalHarness, all) {
        return Some(code);
    }
    #[cfg(all(feature = "postgres", target_os = "linux"))]
    if let Some(code) = postgres::add(all) {
        return Some(code);
    }
    #[cfg(all(feature = "redis", target_os = "linux"))]
    if let Some(code) = redis::add(all).or_else(|| redlock::add(all)) {
        return Some(code);
    }
    None
}

/// The backends that have a folder or a file, less those that this build leaves out.
fn backends_in_source() -> BTreeSet<String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/backend");
    let entries = std::fs::read_dir(folder).expect("the folder of the backends");
    let names = entries.map(|entry| entry.expect("an entry").path());
    names.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

/// The backend of a trial: `redis` of `redis+tls::case`.
fn backend_of(trial: &str) -> Option<String> {
    let (set_up, _) = trial.split_once("::")?;
    Some(set_up.split_once('+').map_or(set_up, |(backend, _)| backend).to_owned())
}

/// A file for where a backend does not run is not a backend.
fn is_stand_in(name: &str) -> bool {
    name.ends_with("_elsewhere")
}

fn tested_or_left_out(trials: &[String]) -> BTreeSet<String> {
    let mut tested: BTreeSet<String> = trials.iter().filter_map(|name| backend_of(name)).collect();
    let left_out = [
        ("local", cfg!(feature = "local")),
        ("postgres", cfg!(feature = "postgres")),
        ("redis", cfg!(feature = "redis")),
        ("redlock", cfg!(feature = "redis")),
    ];
    for (name, _) in left_out.iter().filter(|(_, is_on)| !(is_on & cfg!(target_os = "linux"))) {
        tested.extend([(*name).to_owned(), format!("{name}-erased")]);
    }
    tested
}

/// A trial that fails when a backend in the source has no harness here.
fn list_is_complete(all: &[Trial]) -> Trial {
    let names: Vec<String> = all.iter().map(|trial| trial.name().to_owned()).collect();
    Trial::test("every_backend_in_the_source_is_tested_with_its_twin", move || {
        let source = backends_in_source().into_iter().filter(|name| !is_stand_in(name));
        let expected =
            source.flat_map(|name| [format!("{name}-erased"), name]).collect::<BTreeSet<_>>();
        let tested = tested_or_left_out(&names);
        if tested == expected {
            Ok(())
        } else {
            Err(format!("in the source {expected:?}, tested {tested:?}").into())
        }
    })
}

fn main() -> ExitCode {
    let mut all = Vec::new();
    if let Some(code) = every_backend(&mut all) {
        return code;
    }
    all.push(list_is_complete(&all));
    let mut arguments = Arguments::from_args();
    // Most of a case is waiting.
    arguments.test_threads = arguments.test_threads.or(Some(12));
    libtest_mimic::run(&arguments, all).exit_code()
}
