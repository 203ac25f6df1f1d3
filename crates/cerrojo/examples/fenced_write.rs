//! Why a lease alone does not protect a file, and how a fence does: told by real processes.
//!
//! Two clerks book payments in one account file: each takes the lock, reads the balance, adds, writes. The
//! first is frozen between its read and its write (SIGSTOP: a long pause of the collector, a laptop that was
//! closed, a machine that swaps) until its lease has ended. The second takes the lock and books. Then the first
//! wakes, still believes that it has the lock, and writes. It does not look at its lease first, since that would
//! only make the gap smaller: the freeze can come just after the look.
//!
//! * Without a fence, the second's payment vanishes.
//! * With a fence beside the file, the first is refused: the fence has seen a greater token.
//!
//! `cargo run --example fenced_write`; the exit code says whether both stories came out like this.
//! The story is Kleppmann's, "How to do distributed locking" (2016).
#![allow(clippy::print_stdout, reason = "an example tells its story on standard output")]

use std::{
    error::Error,
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use cerrojo::{
    FencedGuard, Locker, Ttl,
    backend::local::Local,
    fence::{FileError, file::FencedFile},
};
use rustix::process::{Pid, Signal, kill_process};

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

const OPENING_BALANCE: u64 = 100;
const FIRST_PAYMENT: u64 = 50;
const SECOND_PAYMENT: u64 = 30;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => tell_both(),
        ["book", payment, folder, fence] => {
            let account = Account { folder: folder.into(), fenced: *fence == "fenced" };
            book(payment.parse()?, &account)
        }
        _ => Err("usage: fenced_write".into()),
    }
}

// The file.

/// A balance in a file, with a fence or without.
struct Account {
    folder: PathBuf,
    fenced: bool,
}

impl Account {
    fn open(folder: &Path, fenced: bool) -> Result<Self> {
        let account = Self { folder: folder.to_owned(), fenced };
        fs::write(account.path(), OPENING_BALANCE.to_string())?;
        Ok(account)
    }

    /// A read is an access too: it raises the fence, so that no older holder can write after it.
    async fn read(&self, guard: &FencedGuard) -> Result<u64> {
        if !self.fenced {
            return self.balance();
        }
        let file = FencedFile::at(self.path());
        let bytes = file.read(guard.token(), guard.store_id()).await?.ok_or("no account")?;
        Ok(str::from_utf8(&bytes)?.parse()?)
    }

    async fn write(&self, guard: &FencedGuard, balance: u64) -> Result<()> {
        let text = balance.to_string();
        if self.fenced {
            let file = FencedFile::at(self.path());
            file.update(guard.token(), guard.store_id(), |_| text).await?;
        } else {
            fs::write(self.path(), text)?;
        }
        Ok(())
    }

    fn balance(&self) -> Result<u64> {
        Ok(fs::read_to_string(self.path())?.parse()?)
    }

    fn path(&self) -> PathBuf {
        self.folder.join("account")
    }
}

// A clerk: the same program for both.

/// Takes the lock, reads, waits for the word to go on, and writes.
#[tokio::main(worker_threads = 1)]
async fn book(payment: u64, account: &Account) -> Result<()> {
    let locks = Locker::new(Local::connect(account.folder.join("locks")).await?);
    let guard = locks.acquire("account").ttl(Ttl::secs(1)?).wait(Duration::from_secs(20)).await?;
    let balance = account.read(&guard).await?;
    println!("takes the lock with token {}, reads {balance}", guard.token());
    wait_for_word()?;
    match account.write(&guard, balance + payment).await {
        Ok(()) => println!("writes {}", balance + payment),
        Err(error) if is_stale(error.as_ref()) => println!("is refused: {error}"),
        Err(error) => return Err(error),
    }
    match guard.release().await {
        Ok(()) => println!("releases the lock"),
        Err(error) => println!("learns too late: {error}"),
    }
    Ok(())
}

fn is_stale(error: &(dyn Error + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(FileError::Stale(_)))
}

fn wait_for_word() -> Result<()> {
    let mut word = String::new();
    match std::io::stdin().read_line(&mut word)? {
        0 => Err("nobody is there any more".into()),
        _ => Ok(()),
    }
}

// The director.

fn tell_both() -> Result<()> {
    println!("Without a fence:");
    let balance = tell(false)?;
    expect(balance, OPENING_BALANCE + FIRST_PAYMENT, "the second payment was to be lost")?;
    println!(
        "  {OPENING_BALANCE} + {FIRST_PAYMENT} + {SECOND_PAYMENT} = {balance}: the second's payment is lost.\n"
    );

    println!("With a fence beside the file:");
    let balance = tell(true)?;
    expect(balance, OPENING_BALANCE + SECOND_PAYMENT, "the first was to be refused")?;
    println!(
        "  The balance is {balance}: nothing is lost, and the first knows that it has to book again."
    );
    Ok(())
}

fn expect(balance: u64, wanted: u64, why: &str) -> Result<()> {
    if balance == wanted {
        return Ok(());
    }
    Err(format!("the story did not come out: the balance is {balance}, not {wanted}: {why}").into())
}

/// Lets the first be overtaken, and says what the balance is in the end.
fn tell(fenced: bool) -> Result<u64> {
    let folder = tempfile::tempdir()?;
    let account = Account::open(folder.path(), fenced)?;
    let mut first = Clerk::start("the first", FIRST_PAYMENT, &account)?;
    first.tells()?;
    first.signal(Signal::STOP, "is frozen, past the end of its lease")?;

    let mut second = Clerk::start("the second", SECOND_PAYMENT, &account)?;
    second.tells()?;
    second.goes_on()?;
    second.ends()?;

    first.signal(Signal::CONT, "wakes, and knows of nothing")?;
    first.goes_on()?;
    first.ends()?;
    account.balance()
}

/// A clerk's process; killed when dropped.
struct Clerk {
    name: &'static str,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Clerk {
    fn start(name: &'static str, payment: u64, account: &Account) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["book", &payment.to_string()]).arg(&account.folder);
        command.arg(if account.fenced { "fenced" } else { "without" });
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().ok_or("no pipe")?;
        let output = BufReader::new(child.stdout.take().ok_or("no pipe")?);
        Ok(Self { name, child, input, output })
    }

    /// Passes on the next thing that it tells; it tells something or ends within its limits.
    fn tells(&mut self) -> Result<bool> {
        let mut line = String::new();
        let more = self.output.read_line(&mut line)? > 0;
        if more {
            println!("  {} {}", self.name, line.trim_end());
        }
        Ok(more)
    }

    fn goes_on(&mut self) -> Result<()> {
        Ok(writeln!(self.input, "go on")?)
    }

    fn ends(&mut self) -> Result<()> {
        while self.tells()? {}
        let status = self.child.wait()?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("{} failed: {status}", self.name).into())
        }
    }

    fn signal(&self, signal: Signal, what: &str) -> Result<()> {
        kill_process(Pid::from_child(&self.child), signal)?;
        println!("  {} {what}", self.name);
        Ok(())
    }
}

impl Drop for Clerk {
    fn drop(&mut self) {
        // An error means that it has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
