//! Locks in the form of other libraries, whose clients poll, and are played here by plain commands.

use std::time::Duration;

use cerrojo::{
    Break, ErrorKind, Instant, LeaseState, LockName, Locker, backend::redis::Redis, clock,
};
use cerrojo_testbed::Reply;
use libtest_mimic::Trial;

use crate::{
    line::{NAME, PROVISIONAL, Waiter, child::Child},
    site::{Outcome, Site, soon, trial, ttl},
};

/// A format as seen from outside.
#[derive(Clone, Copy, Debug)]
struct Form {
    /// Its name in a URL.
    name: &'static str,
    key_prefix: &'static str,
    /// What an owner is in its value, after the server has encoded that in hexadecimal.
    is_owner: fn(&str) -> bool,
    /// An owner of somebody else's, as a string of a script.
    stranger: &'static str,
}

const FORMS: [Form; 5] = [
    Form {
        name: "redlock.net",
        key_prefix: "redlock:",
        is_owner: |value| {
            let groups: Vec<usize> = value.split('-').map(str::len).collect();
            groups == [8, 4, 4, 4, 12] && value.replace('-', "").chars().all(is_hex)
        },
        stranger: "0123cafe-0000-4000-8000-0123456789ab",
    },
    Form {
        name: "redsync",
        key_prefix: "",
        is_owner: |value| value.len() == 24 && value.ends_with("=="),
        stranger: "AAECAwQFBgcICQoLDA0ODw==",
    },
    Form { name: "node-redlock", key_prefix: "", is_owner: is_32_hex, stranger: HEX },
    Form { name: "redis-py", key_prefix: "", is_owner: is_32_hex, stranger: HEX },
    Form {
        name: "rslock",
        key_prefix: "",
        // Its bytes are no text: only their number is looked at.
        is_owner: |_| true,
        stranger: "twenty bytes of rsl.",
    },
];

const HEX: &str = "0123456789abcdef0123456789abcdef";

fn is_hex(c: char) -> bool {
    c.is_ascii_digit() || ('a'..='f').contains(&c)
}

fn is_32_hex(value: &str) -> bool {
    value.len() == 32 && value.chars().all(is_hex)
}

impl Form {
    fn key(&self) -> String {
        self.key_of(NAME)
    }

    fn key_of(&self, name: &str) -> String {
        format!("{}{name}", self.key_prefix)
    }

    fn line(&self) -> String {
        format!("cerrojo:{{{}}}:line", self.key())
    }

    fn url(&self, site: &Site) -> String {
        site.url(&format!("format={}", self.name))
    }

    async fn locks(&self, site: &Site) -> Outcome<Locker<Redis>> {
        site.locks_with(&format!("format={}", self.name)).await
    }

    /// Takes the lock as a client of that library does.
    fn take(&self, site: &Site, expiry: &[&str]) -> Outcome {
        let key = self.key();
        let words = [&["SET", key.as_str(), self.stranger, "NX"], expiry].concat();
        if site.ask(&words)? == "OK" { Ok(()) } else { Err("it is held".into()) }
    }

    async fn waiter(&self, site: &Site, count: i64) -> Outcome<Waiter> {
        let waiter = Waiter::start(&self.locks(site).await?, ttl(30_000));
        site.until_waiting_in(&self.line(), count).await?;
        Ok(waiter)
    }
}

/// The trials of every format.
pub(crate) fn of_each_format() -> Vec<Trial> {
    FORMS.into_iter().flat_map(of_format).collect()
}

fn of_format(form: Form) -> Vec<Trial> {
    let named = |what: &str| format!("{}::{what}", form.name);
    vec![
        trial(named("key_and_value_have_its_form"), move |site| has_its_form(site, form)),
        trial(named("a_release_frees_it_for_all_and_calls_the_first_waiter"), move |site| {
            release_calls(site, form)
        }),
        trial(named("its_libraries_locks_are_respected"), move |site| respected(site, form)),
        trial(named("its_libraries_releases_are_noticed_soon"), move |site| noticed(site, form)),
        trial(named("a_stopped_first_waiter_does_not_keep_the_others_out"), move |site| {
            stopped(site, form)
        }),
        trial(named("who_moves_up_notices_its_libraries_releases_too"), move |site| {
            moves_up(site, form)
        }),
    ]
}

/// The value's bytes in hexadecimal, and its length.
fn value(site: &Site, key: &str) -> Outcome<(String, i64)> {
    let length = site.number(&["STRLEN", key])?;
    match site.ask(&["GET", key])? {
        Reply::Text(text) => Ok((text, length)),
        other => Err(format!("{key} is {other}").into()),
    }
}

async fn has_its_form(site: Site, form: Form) -> Outcome {
    let locks = form.locks(&site).await?;
    for name in ["a", "x y", "a*b?[c]\\", "{x}", "ünï/ço:dé", "%7Bx%7D"] {
        let key = form.key_of(name);
        let guard = locks.acquire(name).await?;
        let (text, length) = value(&site, &key)?;
        assert_eq!(length, i64::try_from(form.stranger.len())?, "{text:?}");
        assert!((form.is_owner)(&text), "{text:?}");
        assert!(site.number(&["PTTL", &key])? > 0);
        assert_eq!(site.number(&["DBSIZE"])?, 1, "one key, as that library has it");
        guard.release().await?;
        assert_eq!(site.number(&["DBSIZE"])?, 0);
    }
    Ok(())
}

async fn release_calls(site: Site, form: Form) -> Outcome {
    let guard = form.locks(&site).await?.acquire(NAME).await?;
    let first = form.waiter(&site, 1).await?;
    let second = form.waiter(&site, 2).await?;
    guard.release().await?;
    let (guard, _) = first.entered().await?;
    assert!(second.is_waiting(), "two at once");
    assert!(site.number(&["PTTL", &form.key()])? > 15_000, "a whole TTL");
    guard.release().await?;
    second.entered().await?.0.release().await?;
    assert_eq!(site.number(&["DBSIZE"])?, 0);
    Ok(())
}

async fn respected(site: Site, form: Form) -> Outcome {
    let locks = form.locks(&site).await?;
    form.take(&site, &[])?;
    let answer = locks.acquire(NAME).wait(Duration::from_millis(500)).await;
    let error = answer.err().ok_or("took a lock that never expires")?;
    assert_eq!(error.kind(), ErrorKind::Contended);
    assert_eq!(error.holder().and_then(|holder| holder.ends_in), None);
    site.ask(&["DEL", &form.key()])?;

    form.take(&site, &["PX", "1500"])?;
    let start = Instant::now();
    let guard = locks.acquire(NAME).await?;
    let waited = Instant::now().since(start);
    assert!(waited > Duration::from_millis(1_300), "entered after {waited:?}");
    assert!(waited < Duration::from_secs(4), "entered after {waited:?}");
    assert!(form.take(&site, &["PX", "1500"]).is_err(), "two at once");
    Ok(guard.release().await?)
}

async fn noticed(site: Site, form: Form) -> Outcome {
    form.take(&site, &["PX", "60000"])?;
    let first = form.waiter(&site, 1).await?;
    let second = form.waiter(&site, 2).await?;
    let start = Instant::now();
    site.ask(&["DEL", &form.key()])?;
    let (guard, entered) = first.entered().await?;
    assert!(entered.since(start) < Duration::from_secs(1), "{:?}", entered.since(start));
    // Now the second one is first.
    let stolen = Instant::now();
    site.ask(&["SET", &form.key(), form.stranger, "PX", "60000"])?;
    site.ask(&["DEL", &form.key()])?;
    let (_, entered) = second.entered().await?;
    assert!(entered.since(stolen) < Duration::from_secs(1), "{:?}", entered.since(stolen));
    drop(guard);
    Ok(())
}

async fn stopped(site: Site, form: Form) -> Outcome {
    let guard = form.locks(&site).await?.acquire(NAME).await?;
    let mut child = Child::open(&form.url(&site))?;
    child.wait_for_lock(30_000)?;
    site.until_waiting_in(&form.line(), 1).await?;
    let second = form.waiter(&site, 2).await?;
    child.0.freeze()?;
    let start = Instant::now();
    guard.release().await?;
    assert_eq!(
        site.number(&["EXISTS", &form.key()])?,
        0,
        "a client that polls would not see it free"
    );
    let (guard, entered) = second.entered().await?;
    let delay = entered.since(start);
    assert!(delay < PROVISIONAL + Duration::from_secs(3), "{delay:?}");
    child.0.thaw()?;
    site.until_waiting_in(&form.line(), 1).await?;
    guard.release().await?;
    child.granted()?;
    child.release()
}

/// Also behind a waiter that left, or that is stopped while the lock is held.
async fn moves_up(site: Site, form: Form) -> Outcome {
    form.take(&site, &["PX", "60000"])?;
    let first = form.waiter(&site, 1).await?;
    let mut child = Child::open(&form.url(&site))?;
    child.wait_for_lock(30_000)?;
    site.until_waiting_in(&form.line(), 2).await?;
    let third = form.waiter(&site, 3).await?;
    first.abort();
    site.until_waiting_in(&form.line(), 2).await?;
    child.0.freeze()?;
    clock::sleep(PROVISIONAL).await;
    let start = Instant::now();
    site.ask(&["DEL", &form.key()])?;
    let (_, entered) = third.entered().await?;
    let delay = entered.since(start);
    assert!(delay < PROVISIONAL * 2 + Duration::from_secs(2), "{delay:?}");
    Ok(())
}

fn redis_py() -> Form {
    FORMS[3]
}

pub(crate) async fn foreign_locks_are_listed_and_shown_without_their_secret(site: Site) -> Outcome {
    let (form, name) = (redis_py(), NAME.parse::<LockName>()?);
    let locks = form.locks(&site).await?;
    form.take(&site, &["PX", "60000"])?;
    site.ask(&["SET", "page", "no lock at all"])?;
    site.ask(&["RPUSH", "list", "neither"])?;
    let ours = locks.acquire("b").await?;
    let listed = locks.list(None, 10).await?;
    let names: Vec<&str> = listed.iter().map(|holder| holder.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    let shown = locks.holder(&name).await?.ok_or("nobody holds it")?;
    assert_eq!(shown.owner, HEX[..8]);
    assert!(shown.ends_in.is_some() && !shown.broken, "{shown:?}");
    let answer = locks.try_acquire(NAME).await;
    let all = format!("{listed:?} {shown:?} {shown} {answer:?}");
    for secret in [HEX.to_owned(), ours.owner().to_hex()] {
        assert!(!all.contains(&secret[..16]), "{all}");
    }
    Ok(())
}

pub(crate) async fn a_foreign_lock_is_broken_at_its_expiry(site: Site) -> Outcome {
    let (form, name) = (redis_py(), NAME.parse::<LockName>()?);
    let locks = form.locks(&site).await?;
    // A lock of ours: its next renewal reads lost.
    let guard = locks.acquire(NAME).ttl(ttl(1_500)).await?;
    let broken = locks.break_lock(&name, Break::AtExpiry).await?.ok_or("nobody held it")?;
    assert_eq!(broken.owner.len(), 8, "{broken:?}");
    soon("the loss", guard.lost()).await?;
    assert_eq!(guard.state(), LeaseState::Lost);
    drop(guard);
    locks.acquire(NAME).await?.release().await?;
    // One of somebody else's: its library compares the value, which is another one now.
    form.take(&site, &["PX", "1500"])?;
    locks.break_lock(&name, Break::AtExpiry).await?.ok_or("nobody held it")?;
    assert!(value(&site, &form.key())?.0 != form.stranger);
    assert!((1..=1_500).contains(&site.number(&["PTTL", &form.key()])?));
    assert!(locks.holder(&name).await?.is_some_and(|holder| holder.broken));
    let waiter = form.waiter(&site, 1).await?;
    assert!(waiter.is_waiting());
    locks.break_lock(&name, Break::Now).await?.ok_or("nobody held it")?;
    drop(waiter.entered().await?);
    Ok(())
}
