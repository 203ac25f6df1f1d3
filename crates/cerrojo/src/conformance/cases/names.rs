//! Names are taken as they are or refused, never mangled.

use std::collections::BTreeSet;

use super::super::{
    Harness,
    case::{Verdict, check},
    faulty::Call,
    site::Site,
};
use crate::{ErrorKind, LockName};

const HOSTILE: &[&str] = &[
    "a",
    "A",
    "a/",
    "a//",
    "a/b",
    "/a",
    "/",
    "//",
    ".",
    "..",
    "../a",
    "../../etc/passwd",
    "a\\b",
    "\\",
    "%",
    "%%",
    "%25",
    "%2F",
    "%s",
    "{}",
    "{a}",
    "{a",
    "a}",
    "${a}",
    "$(a)",
    "`a`",
    "'",
    "\"",
    "''",
    "'; DROP TABLE locks; --",
    "a;b",
    "a:b",
    "a|b",
    "a,b",
    "a=b",
    "a&b",
    "a#b",
    "a?",
    "a*",
    "[a]",
    "_",
    "a_b",
    "a b",
    " a",
    "a ",
    " ",
    "-",
    "--help",
    "~",
    "NULL",
    "null",
    "0",
    "00",
    "1",
    "-1",
    "true",
    "con",
    "aux.db",
    "locks.db",
    "turn",
    "wake",
    "é",
    "e\u{301}",
    "ß",
    "ss",
    "SS",
    "i",
    "I",
    "İ",
    "ı",
    "K",
    "\u{212a}",
    "🔒",
    "🔒🔒",
    "\u{200b}",
    "a\u{200b}",
    "\u{202e}a",
    "\u{feff}a",
    "\u{a0}",
    "\u{2028}",
    "\u{10ffff}",
];

/// The hostile list, and the longest names, which differ in their last byte alone.
fn hostile_names() -> Vec<String> {
    let long = |last| format!("{}{last}", "x".repeat(LockName::MAX_BYTES - 1));
    let mut names: Vec<String> = HOSTILE.iter().map(|&name| name.to_owned()).collect();
    names.extend([
        long("x"),
        long("y"),
        "x".repeat(LockName::MAX_BYTES - 1),
        "é".repeat(LockName::MAX_BYTES / 2),
    ]);
    names
}

pub(super) async fn hostile_names_are_locked_one_to_one<H: Harness>(site: Site<H>) -> Verdict {
    let (first, second) = (site.locker().await?, site.locker().await?);
    let names = hostile_names();
    let mut guards = Vec::new();
    for name in &names {
        guards.push(first.try_acquire(name.as_str()).ttl(site.long_ttl()).await?);
    }
    for name in &names {
        let answer = second.try_acquire(name.as_str()).await;
        let contended = answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Contended);
        check!(contended, "{name:?} is held, and was answered {answer:?}");
    }
    let listed = second.list(None, names.len() + 1).await?;
    let listed: Vec<&str> = listed.iter().map(|holder| holder.name.as_str()).collect();
    let sorted: Vec<&str> =
        names.iter().map(String::as_str).collect::<BTreeSet<_>>().into_iter().collect();
    check!(listed == sorted, "listed {listed:?}");
    for guard in guards {
        guard.release().await?;
    }
    check!(second.list(None, 1).await?.is_empty(), "something is still held");
    Ok(())
}

pub(super) async fn a_bad_name_is_refused_before_any_call<H: Harness>(site: Site<H>) -> Verdict {
    let (locker, faults) = site.faulty().await?;
    let too_long = "x".repeat(LockName::MAX_BYTES + 1);
    for name in ["", "two\nlines", "nul\0", "\u{1b}[2J", "tab\t", "\u{7f}", "\u{85}", &too_long] {
        let answer = locker.acquire(name).await;
        let invalid = answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Invalid);
        check!(invalid, "{name:?} was answered {answer:?}");
    }
    check!(faults.count(Call::Acquire) == 0, "the store was asked for a bad name");
    Ok(())
}
