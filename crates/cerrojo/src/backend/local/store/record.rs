//! Rows as values, and values as rows.

use rusqlite::Row;
use serde::{Deserialize, Serialize};

use super::{Outcome, leases::Held};
use crate::{
    HolderInfo, Identity, LockName,
    backend::local::{error::LocalError, process::Proof},
    clock::Instant,
    owner::OwnerId,
};

/// One row of the table `lease`.
pub(super) struct Record {
    pub(super) name: LockName,
    pub(super) owner: OwnerId,
    pub(super) token: i64,
    granted_at: u64,
    pub(super) expires_at: u64,
    pub(super) broken: bool,
    identity: Identity,
    pub(super) proof: Option<Proof>,
}

/// [`Identity`] as it is stored.
#[derive(Serialize, Deserialize)]
struct IdentityText {
    host: Option<String>,
    pid: Option<u32>,
    label: Option<String>,
}

impl Record {
    pub(super) fn read(row: &Row<'_>) -> Outcome<Self> {
        Ok(Self {
            name: read_name(
                row.get_ref(0)?.as_str().map_err(|error| LocalError::Record(error.to_string()))?,
            )?,
            owner: OwnerId::from_bytes(row.get(1)?),
            token: row.get(2)?,
            granted_at: unsigned(row.get(3)?),
            expires_at: unsigned(row.get(4)?),
            broken: row.get(5)?,
            identity: read_identity(row.get_ref(6)?.as_str().unwrap_or_default())?,
            proof: read_proof(row.get(7)?)?,
        })
    }

    pub(super) fn held(self, now: u64) -> Held {
        let mut holder = HolderInfo::new(self.name, &self.owner);
        let now = Instant::from_nanos(now);
        holder.token = u64::try_from(self.token).ok();
        holder.identity = self.identity;
        holder.held_for = Some(now.since(Instant::from_nanos(self.granted_at)));
        holder.ends_in = Some(Instant::from_nanos(self.expires_at).since(now));
        holder.broken = self.broken;
        Held { holder, proof: self.proof }
    }
}

/// An identity as it is stored.
pub(in super::super) fn write_identity(identity: &Identity) -> String {
    let Identity { host, pid, label } = identity.clone();
    text_of(&IdentityText { host, pid, label })
}

/// A proof as it is stored.
pub(in super::super) fn write_proof(proof: &Proof) -> String {
    text_of(proof)
}

fn text_of(value: &impl Serialize) -> String {
    // Structs of plain fields always have a JSON text.
    serde_json::to_string(value).unwrap_or_default()
}

fn read_identity(text: &str) -> Outcome<Identity> {
    let IdentityText { host, pid, label } = parse(text)?;
    Ok(Identity { host, pid, label })
}

pub(super) fn read_proof(text: Option<String>) -> Outcome<Option<Proof>> {
    text.map(|text| parse(&text)).transpose()
}

pub(super) fn read_name(text: &str) -> Outcome<LockName> {
    text.parse().map_err(|error: crate::InvalidName| LocalError::Record(error.to_string()))
}

fn parse<T: for<'a> Deserialize<'a>>(text: &str) -> Outcome<T> {
    serde_json::from_str(text).map_err(|error| LocalError::Record(error.to_string()))
}

/// Now, read inside the transaction: waiting for the turn takes no part of a TTL.
pub(super) fn now() -> u64 {
    Instant::now().as_nanos()
}

/// SQLite's integers are signed; times and ids beyond that range do not occur, and saturate.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
