//! The form of keys and values: our own, and those of other libraries whose locks are to exclude ours.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};

use crate::{HolderInfo, Identity, LockName, owner::OwnerId};

/// Whose form the lock's key and value have, so that fleets can be mixed.
///
/// A foreign format is plainer: its holders are not named, and as its clients poll, waiting costs more and is
/// less fair. What each library is known to do is as of the version in docs/backends/redis.md.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Cerrojo's own.
    #[default]
    Cerrojo,
    /// RedLock.NET: `redlock:NAME`, a GUID.
    RedLockNet,
    /// redsync for Go: `NAME`, 16 bytes in base64.
    Redsync,
    /// node-redlock: `NAME`, 16 bytes in hexadecimal.
    NodeRedlock,
    /// `Lock` of redis-py: `NAME`, a UUID in hexadecimal.
    RedisPy,
    /// rslock: `NAME`, 20 bytes.
    Rslock,
}

impl Format {
    /// Every format, by the name that a URL has for it.
    pub(in crate::backend) const ALL: [(&str, Self); 6] = [
        ("cerrojo", Self::Cerrojo),
        ("redlock.net", Self::RedLockNet),
        ("redsync", Self::Redsync),
        ("node-redlock", Self::NodeRedlock),
        ("redis-py", Self::RedisPy),
        ("rslock", Self::Rslock),
    ];

    /// Whether other libraries use it.
    pub(in crate::backend) fn is_foreign(self) -> bool {
        self != Self::Cerrojo
    }

    /// What stands before the name in a lock's key.
    fn prefix(self) -> &'static str {
        match self {
            Self::RedLockNet => "redlock:",
            _ => "",
        }
    }

    /// The owner as the lock's value has it. Always of the same length.
    pub(in crate::backend) fn owner(self, owner: OwnerId) -> Vec<u8> {
        let bytes = owner.as_bytes();
        match self {
            Self::Cerrojo | Self::NodeRedlock | Self::RedisPy => owner.to_hex().into_bytes(),
            Self::RedLockNet => guid(&owner.to_hex()).into_bytes(),
            Self::Redsync => STANDARD.encode(bytes).into_bytes(),
            Self::Rslock => [bytes.as_slice(), &[0; 4]].concat(),
        }
    }

    pub(in crate::backend) fn owner_len(self) -> usize {
        self.owner(OwnerId::from_bytes([0; 16])).len()
    }

    /// Whether a value looks like one of this format, where its keys look like any other.
    fn may_have_written(self, value: &[u8]) -> bool {
        let value = value.strip_suffix(b"!").unwrap_or(value);
        let is_text = |is: fn(&u8) -> bool| value.len() == self.owner_len() && value.iter().all(is);
        match self {
            Self::Cerrojo | Self::RedLockNet => true,
            Self::NodeRedlock | Self::RedisPy => is_text(u8::is_ascii_hexdigit),
            Self::Redsync => is_text(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(byte)),
            Self::Rslock => value.len() == self.owner_len(),
        }
    }
}

/// The keys of one lock: all in one slot of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::backend) struct Keys {
    lock: String,
    line: String,
    wants: String,
}

impl Keys {
    /// A slot is chosen by what stands between the first braces, so the name's own are escaped. That a name has been
    /// escaped is told by the `%` before the braces: no two names have the same keys.
    pub(in crate::backend) fn of(format: Format, space: &str, name: &LockName) -> Self {
        if !format.is_foreign() {
            let lock = own_key(space, name.as_str(), "");
            let (line, wants) = ([&lock, ":line"].concat(), [&lock, ":wants"].concat());
            return Self { lock, line, wants };
        }
        let lock = [format.prefix(), name.as_str()].concat();
        let (line, wants) = (own_key(space, &lock, ":line"), own_key(space, &lock, ":wants"));
        Self { lock, line, wants }
    }

    pub(in crate::backend) fn into_lock(self) -> String {
        self.lock
    }

    pub(in crate::backend) fn all(&self) -> [&str; 3] {
        [&self.lock, &self.line, &self.wants]
    }
}

/// Whether a cluster would choose another slot by these braces than by the whole.
pub(in crate::backend) fn has_braces(name: &LockName) -> bool {
    name.as_str().contains(['{', '}'])
}

fn own_key(space: &str, text: &str, what: &str) -> String {
    if !text.contains(['{', '}']) {
        return [space, ":{", text, "}", what].concat();
    }
    let escaped = text.replace('%', "%25").replace('{', "%7B").replace('}', "%7D");
    [space, ":%{", &escaped, "}", what].concat()
}

fn unbraced(text: &str) -> Option<String> {
    if let Some(escaped) = text.strip_prefix("%{").and_then(|text| text.strip_suffix('}')) {
        return Some(escaped.replace("%7B", "{").replace("%7D", "}").replace("%25", "%"));
    }
    Some(text.strip_prefix('{')?.strip_suffix('}')?.to_owned())
}

/// The pattern of the keys of all locks, for SCAN.
pub(in crate::backend) fn pattern(format: Format, space: &str) -> String {
    match format.is_foreign() {
        true => format!("{}*", escape_glob(format.prefix())),
        false => format!("{}:*}}", escape_glob(space)),
    }
}

fn escape_glob(text: &str) -> String {
    text.chars()
        .flat_map(|c| ['\\', c].into_iter().skip(usize::from(!"*?[]\\^".contains(c))))
        .collect()
}

/// The name of the lock with this key.
pub(in crate::backend) fn name_of(format: Format, space: &str, key: &str) -> Option<LockName> {
    let name = match format.is_foreign() {
        true => key.strip_prefix(format.prefix())?.to_owned(),
        false => unbraced(key.strip_prefix(space)?.strip_prefix(':')?)?,
    };
    name.parse().ok()
}

/// What the server says of a lock that is held.
#[derive(Debug)]
pub(in crate::backend) struct Seen {
    pub(in crate::backend) pttl: i64,
    pub(in crate::backend) value: Vec<u8>,
    /// The server's time in ms.
    pub(in crate::backend) at: u64,
}

/// The details beside the owner in a value of ours. They are shown, and never used to decide.
pub(in crate::backend) fn details(identity: &Identity) -> Vec<u8> {
    let Identity { host, pid, label } = identity;
    let details = (host, pid, label);
    // Texts and numbers always have a JSON form.
    serde_json::to_vec(&details).unwrap_or_default()
}

/// Who that is; `None` when it is no lock of this format.
pub(in crate::backend) fn holder(
    format: Format,
    name: &LockName,
    seen: &Seen,
) -> Option<HolderInfo> {
    if !format.may_have_written(&seen.value) {
        return None;
    }
    let length = format.owner_len().min(seen.value.len());
    let (owner, rest) = seen.value.split_at_checked(length)?;
    let mut info = HolderInfo::new(name.clone(), &OwnerId::from_bytes([0; 16]));
    info.owner = shown(owner);
    info.ends_in = u64::try_from(seen.pttl).ok().map(Duration::from_millis);
    info.broken = rest.first() == Some(&b'!');
    if !format.is_foreign() {
        fill_in(&mut info, rest.get(1..).unwrap_or_default(), seen.at);
    }
    Some(info)
}

/// Enough to tell owners apart, not enough to act as one.
fn shown(owner: &[u8]) -> String {
    if owner.iter().all(u8::is_ascii_graphic) {
        return owner.iter().take(8).map(|byte| char::from(*byte)).collect();
    }
    owner.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

/// `SINCE DETAILS`. What cannot be read is not shown.
fn fill_in(info: &mut HolderInfo, text: &[u8], at: u64) {
    let text = String::from_utf8_lossy(text);
    let Some((since, details)) = text.split_once(' ') else {
        return;
    };
    info.held_for = since.parse().ok().map(|since| Duration::from_millis(at.saturating_sub(since)));
    if let Ok((host, pid, label)) = serde_json::from_str(details) {
        info.identity = Identity { host, pid, label };
    }
}

/// 8-4-4-4-12 digits.
fn guid(hex: &str) -> String {
    let mut guid = String::with_capacity(36);
    for (at, digit) in hex.chars().enumerate() {
        if [8, 12, 16, 20].contains(&at) {
            guid.push('-');
        }
        guid.push(digit);
    }
    guid
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> LockName {
        text.parse().unwrap()
    }

    fn owner() -> OwnerId {
        "00112233445566778899aabbccddeeff".parse().unwrap()
    }

    #[test]
    fn owners_have_the_form_of_their_library() {
        let cases: [(Format, &[u8]); 6] = [
            (Format::Cerrojo, b"00112233445566778899aabbccddeeff"),
            (Format::RedLockNet, b"00112233-4455-6677-8899-aabbccddeeff"),
            (Format::Redsync, b"ABEiM0RVZneImaq7zN3u/w=="),
            (Format::NodeRedlock, b"00112233445566778899aabbccddeeff"),
            (Format::RedisPy, b"00112233445566778899aabbccddeeff"),
            (
                Format::Rslock,
                b"\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff\0\0\0\0",
            ),
        ];
        for (format, wanted) in cases {
            assert_eq!(format.owner(owner()), wanted, "{format:?}");
            assert_eq!(format.owner_len(), wanted.len(), "{format:?}");
            assert!(format.may_have_written(wanted), "{format:?}");
        }
    }

    #[test]
    fn keys_of_one_lock_share_a_slot_and_those_of_two_differ() {
        let keys = |text: &str| Keys::of(Format::Cerrojo, "cerrojo", &name(text));
        assert_eq!(keys("a/b").lock, "cerrojo:{a/b}");
        assert_eq!(keys("a/b").line, "cerrojo:{a/b}:line");
        assert_eq!(keys("{x}").lock, "cerrojo:%{%7Bx%7D}");
        let hostile = ["{x}", "%7Bx%7D", "x}", "{", "}", "%", "%25", "x}:line", "x"];
        for one in hostile {
            let lock = keys(one).lock;
            assert_eq!(lock.matches(['{', '}']).count(), 2, "{lock}");
            assert_eq!(name_of(Format::Cerrojo, "cerrojo", &lock), Some(name(one)));
            let same = hostile.iter().filter(|other| keys(other) == keys(one));
            assert_eq!(same.count(), 1, "{one}");
        }
    }

    #[test]
    fn foreign_locks_have_foreign_keys_and_a_line_of_ours_in_the_same_slot() {
        let keys = Keys::of(Format::RedLockNet, "cerrojo", &name("a"));
        assert_eq!(keys.lock, "redlock:a");
        assert_eq!(keys.line, "cerrojo:{redlock:a}:line");
        assert_eq!(Keys::of(Format::RedisPy, "cerrojo", &name("a")).lock, "a");
        assert_eq!(name_of(Format::RedLockNet, "cerrojo", "redlock:a"), Some(name("a")));
    }

    #[test]
    fn the_pattern_finds_locks_and_not_their_lines() {
        assert_eq!(pattern(Format::Cerrojo, "a*b"), "a\\*b:*}");
        assert_eq!(pattern(Format::RedLockNet, "x"), "redlock:*");
        assert_eq!(name_of(Format::Cerrojo, "cerrojo", "cerrojo:{a}:line"), None);
    }

    #[test]
    fn a_holder_is_read_back() {
        let identity = Identity {
            host: Some("h \"1\"".to_owned()),
            pid: Some(7),
            label: Some("a b".to_owned()),
        };
        let mut value = Format::Cerrojo.owner(owner());
        value.extend(b" 1000 ");
        value.extend(details(&identity));
        let seen = Seen { pttl: 500, value, at: 3_000 };
        let info = holder(Format::Cerrojo, &name("x"), &seen).unwrap();
        assert_eq!((info.owner.as_str(), info.broken), ("00112233", false));
        assert_eq!(info.identity, identity);
        assert_eq!(info.held_for, Some(Duration::from_secs(2)));
        assert_eq!(info.ends_in, Some(Duration::from_millis(500)));
    }

    #[test]
    fn what_a_stranger_wrote_is_shown_as_far_as_it_goes() {
        for value in ["", "!", "short", "00112233445566778899aabbccddeeff!", "x y z"] {
            let seen = Seen { pttl: -1, value: value.into(), at: 0 };
            let info = holder(Format::Cerrojo, &name("x"), &seen).unwrap();
            assert_eq!(info.ends_in, None);
            assert_eq!(info.broken, value.len() == 33);
        }
        let seen = Seen { pttl: 1, value: b"an ordinary value".to_vec(), at: 0 };
        assert!(holder(Format::RedisPy, &name("x"), &seen).is_none());
    }
}
