//! What the store's functions answer, as values.

use std::{num::NonZeroU64, time::Duration};

use serde::Deserialize;
use tokio_postgres::Row;

use super::error::PgError;
use crate::{HolderInfo, Identity, LockName};

/// The answer to one request of a batch.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Granted(NonZeroU64),
    Held(Held),
    Released,
    Gone,
    /// Somebody's transaction holds the row: ask again.
    Busy,
    /// It reached the store after its time limit, or its clock has jumped: nothing was done, ask again.
    Late,
}

/// Who has it, as the store tells.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Held {
    pub(super) owner: String,
    token: i64,
    identity: String,
    held_ms: i64,
    ends_ms: i64,
    broken: bool,
    again_ms: i64,
}

/// [`Identity`] as it is stored.
type IdentityText = (Option<String>, Option<u32>, Option<String>);

pub(super) fn write_identity(identity: &Identity) -> String {
    let Identity { host, pid, label } = identity;
    // Texts and numbers always have a JSON form.
    serde_json::to_string(&(host, pid, label)).unwrap_or_default()
}

fn read_identity(text: &str) -> Identity {
    let (host, pid, label): IdentityText = serde_json::from_str(text).unwrap_or_default();
    Identity { host, pid, label }
}

impl Held {
    /// From a row of `lock_holders` or `lock_holder`.
    pub(super) fn of_row(row: &Row) -> Result<(LockName, Self), PgError> {
        let name: &str = row.try_get("name").map_err(PgError::Call)?;
        let name = name.parse().map_err(|_| wrong("a name"))?;
        let held = Self {
            owner: row.try_get("owner").map_err(PgError::Call)?,
            token: row.try_get("token").map_err(PgError::Call)?,
            identity: row.try_get("identity").map_err(PgError::Call)?,
            held_ms: row.try_get("held_ms").map_err(PgError::Call)?,
            ends_ms: row.try_get("ends_ms").map_err(PgError::Call)?,
            broken: row.try_get("broken").map_err(PgError::Call)?,
            again_ms: 0,
        };
        Ok((name, held))
    }

    pub(super) fn of_json(text: &str) -> Result<Self, PgError> {
        serde_json::from_str(text).map_err(|_| wrong("who holds it"))
    }

    pub(super) fn info(&self, name: LockName) -> HolderInfo {
        HolderInfo {
            name,
            owner: self.owner.clone(),
            token: u64::try_from(self.token).ok(),
            identity: read_identity(&self.identity),
            held_for: Some(millis(self.held_ms)),
            ends_in: Some(millis(self.ends_ms)),
            broken: self.broken,
        }
    }

    pub(super) fn ask_again_in(&self) -> Duration {
        millis(self.again_ms)
    }
}

fn millis(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

fn wrong(what: &str) -> PgError {
    PgError::Answer(what.to_owned())
}

/// One row of arrays, with the place of each request among those that were asked.
pub(super) fn of_batch(row: &Row) -> Result<Vec<(usize, Answer)>, PgError> {
    let requests: Vec<i64> = row.try_get("requests").map_err(PgError::Call)?;
    let outcomes: Vec<String> = row.try_get("outcomes").map_err(PgError::Call)?;
    let tokens: Vec<Option<i64>> = row.try_get("tokens").map_err(PgError::Call)?;
    let held: Vec<Option<String>> = row.try_get("held").map_err(PgError::Call)?;
    let columns = requests.into_iter().zip(outcomes).zip(tokens.into_iter().zip(held));
    columns
        .map(|((request, outcome), (token, held))| {
            let place = usize::try_from(request - 1).map_err(|_| wrong("a request"))?;
            Ok((place, answer(&outcome, token, held.as_deref())?))
        })
        .collect()
}

pub(super) fn answer(
    outcome: &str,
    token: Option<i64>,
    held: Option<&str>,
) -> Result<Answer, PgError> {
    Ok(match (outcome, held) {
        ("granted", _) => Answer::Granted(number(token)?),
        ("held", Some(held)) => Answer::Held(Held::of_json(held)?),
        ("released", _) => Answer::Released,
        ("gone", _) => Answer::Gone,
        ("busy", _) => Answer::Busy,
        ("late", _) => Answer::Late,
        _ => return Err(wrong(outcome)),
    })
}

fn number(token: Option<i64>) -> Result<NonZeroU64, PgError> {
    let number = token.and_then(|token| u64::try_from(token).ok()).and_then(NonZeroU64::new);
    number.ok_or_else(|| wrong("a token"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_go_both_ways_and_garbage_is_nobody() {
        let identity =
            Identity { host: Some("h\"".to_owned()), pid: Some(7), label: Some("é".to_owned()) };
        assert_eq!(read_identity(&write_identity(&identity)), identity);
        assert_eq!(read_identity("x"), Identity::default());
    }

    #[test]
    fn a_refusal_tells_who_has_it_and_when_to_ask_again() {
        let held = r#"{"owner":"0123abcd","token":9,"identity":"[\"h\",1,null]","held_ms":5,"ends_ms":-3,"broken":false,"again_ms":1500}"#;
        let Answer::Held(held) = answer("held", None, Some(held)).unwrap() else { panic!() };
        assert_eq!(held.ask_again_in(), Duration::from_millis(1_500));
        let info = held.info("n".parse().unwrap());
        assert_eq!((info.token, info.ends_in), (Some(9), Some(Duration::ZERO)));
        assert_eq!(info.identity.host.as_deref(), Some("h"));
    }

    #[test]
    fn what_no_store_says_is_an_error() {
        for (outcome, token, held) in [
            ("granted", None, None),
            ("granted", Some(0), None),
            ("held", None, None),
            ("?", None, None),
        ] {
            assert!(answer(outcome, token, held).is_err(), "{outcome}");
        }
    }
}
