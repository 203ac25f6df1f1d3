//! Many processes that add one to a number in a file, each under `cerrojo run`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use cerrojo::Instant;
use tempfile::TempDir;

use crate::{
    Result,
    args::Args,
    harness::{Played, Question},
    store,
};

const BY_FLOCK: &str = "flock(1)";

/// How many processes at once, and how often each.
#[derive(Clone, Copy)]
struct Size {
    processes: u32,
    rounds: u32,
}

const WHOLE: Size = Size { processes: 50, rounds: 200 };
const QUICK: Size = Size { processes: 10, rounds: 20 };

/// The files of one measurement.
struct Files {
    folder: TempDir,
}

pub(crate) fn question(args: &Args) -> Result<Question> {
    let asks = "processes that read, add one and write a file under a lock's command line";
    let mut question = Question::new(args, "run50", asks)?.compared_with(BY_FLOCK, 1);
    let size = if args.quick { QUICK } else { WHOLE };
    let folder = question.folder.path().to_owned();
    match args.cerrojo() {
        Ok(cerrojo) => {
            let within = folder.clone();
            let play = move || by_cerrojo(&cerrojo, &Files::fresh(&within)?, size);
            question.add("cerrojo run, local", play);
        }
        Err(why) => question.left_out.push(format!("cerrojo run: {why}")),
    }
    if Command::new("flock").arg("--version").output().is_ok() {
        question.add(BY_FLOCK, move || by_flock(&Files::fresh(&folder)?, size));
    } else {
        question.left_out.push(format!("{BY_FLOCK}: not installed"));
    }
    Ok(question)
}

impl Files {
    fn fresh(within: &Path) -> Result<Self> {
        let files = Self { folder: TempDir::new_in(within)? };
        fs::write(files.count(), "0")?;
        fs::write(files.tokens(), "")?;
        Ok(files)
    }

    fn count(&self) -> PathBuf {
        self.folder.path().join("count")
    }

    fn tokens(&self) -> PathBuf {
        self.folder.path().join("tokens")
    }

    /// The same command with the careless addition behind it.
    fn add_one(&self, mut under: Command) -> Result<Command> {
        under.arg(std::env::current_exe()?).arg("add-one").arg(self.count()).arg(self.tokens());
        Ok(under)
    }
}

fn by_cerrojo(cerrojo: &Path, files: &Files, size: Size) -> Result<Played> {
    let url = store::local_url(&files.folder.path().join("store"));
    let played = measure(files, size, &|| {
        let mut command = Command::new(cerrojo);
        command.args(["--store", &url, "run", "bench/count", "--"]);
        files.add_one(command)
    })?;
    let tokens = fs::read_to_string(files.tokens())?;
    Ok(played.violations(unsafe_tokens(&tokens, size)?))
}

fn by_flock(files: &Files, size: Size) -> Result<Played> {
    measure(files, size, &|| {
        let mut command = Command::new("flock");
        command.arg(files.folder.path().join("flocked"));
        files.add_one(command)
    })
}

fn measure(
    files: &Files,
    size: Size,
    command: &(dyn Fn() -> Result<Command> + Sync),
) -> Result<Played> {
    let start = Instant::now();
    run_all(size, command)?;
    let took = Instant::now().since(start).as_secs_f64();
    let count: u64 = fs::read_to_string(files.count())?.trim().parse()?;
    let lost = (count != size.turns()).then(|| format!("{count} after {} additions", size.turns()));
    Ok(Played::default()
        .figure("all turns", "s", vec![took])
        .figure("one turn", "ms", vec![took * 1e3 / size.turns() as f64])
        .violations(lost.into_iter().collect()))
}

fn run_all(size: Size, command: &(dyn Fn() -> Result<Command> + Sync)) -> Result<()> {
    std::thread::scope(|scope| {
        let start_one = |_| scope.spawn(|| (0..size.rounds).try_for_each(|_| run_one(command()?)));
        let threads: Vec<_> = (0..size.processes).map(start_one).collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err("a thread panicked".into()))
        })
    })
}

fn run_one(mut command: Command) -> Result<()> {
    let status = command.status()?;
    if status.success() { Ok(()) } else { Err(format!("{status}: {command:?}").into()) }
}

fn unsafe_tokens(tokens: &str, size: Size) -> Result<Vec<String>> {
    let tokens = tokens.lines().map(str::parse::<u64>).collect::<Result<Vec<_>, _>>()?;
    let count = u64::try_from(tokens.len())?;
    let missing =
        (count != size.turns()).then(|| format!("{count} tokens in {} turns", size.turns()));
    let pairs = tokens.iter().zip(tokens.iter().skip(1));
    let fallen = pairs.filter(|(token, next)| next <= token);
    let fallen = fallen.map(|(token, next)| format!("token {next} after token {token}"));
    Ok(missing.into_iter().chain(fallen).collect())
}

impl Size {
    fn turns(self) -> u64 {
        u64::from(self.processes) * u64::from(self.rounds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_and_fallen_tokens_are_seen() {
        let size = Size { processes: 1, rounds: 3 };
        assert!(unsafe_tokens("1\n2\n9\n", size).unwrap().is_empty());
        assert_eq!(unsafe_tokens("1\n2\n", size).unwrap().len(), 1);
        assert_eq!(unsafe_tokens("1\n1\n2\n", size).unwrap().len(), 1);
        assert_eq!(unsafe_tokens("3\n2\n4\n", size).unwrap().len(), 1);
        assert!(unsafe_tokens("x", size).is_err());
    }
}
