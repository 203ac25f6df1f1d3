//! What is locked.

use std::{fmt, str::FromStr, sync::Arc};

/// The name of a lock: 1 to 512 bytes of UTF-8 without control characters, compared byte by byte.
///
/// Nothing is trimmed, folded or normalised, and every backend maps names one to one: `a`, `A`, `a/b`
/// and `../a` are four locks. Cloning is cheap.
///
/// ```
/// # use cerrojo::LockName;
/// let name: LockName = "invoices/42".parse()?;
/// assert_eq!(name.as_str(), "invoices/42");
/// assert!("two\nlines".parse::<LockName>().is_err());
/// # Ok::<(), cerrojo::InvalidName>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName(Arc<str>);

/// Why a text cannot be a [`LockName`].
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    /// The text has no bytes.
    #[error("a lock name cannot be empty")]
    Empty,
    /// The text is longer than [`LockName::MAX_BYTES`].
    #[error("a lock name has at most {max} bytes, this one has {bytes}", max = LockName::MAX_BYTES)]
    TooLong {
        /// How many bytes were given.
        bytes: usize,
    },
    /// The text holds a control character, which would break logs, terminals and protocols.
    #[error("a lock name has no control characters, this one has U+{code:04X} at byte {at}")]
    Control {
        /// The character's code point.
        code: u32,
        /// The byte at which it stands.
        at: usize,
    },
}

impl LockName {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = 512;

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn check(text: &str) -> Result<(), InvalidName> {
        if text.is_empty() {
            return Err(InvalidName::Empty);
        }
        if text.len() > Self::MAX_BYTES {
            return Err(InvalidName::TooLong { bytes: text.len() });
        }
        match text.char_indices().find(|(_, c)| c.is_control()) {
            Some((at, c)) => Err(InvalidName::Control { code: c.into(), at }),
            None => Ok(()),
        }
    }
}

impl FromStr for LockName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        Self::check(text)?;
        Ok(Self(text.into()))
    }
}

impl TryFrom<&str> for LockName {
    type Error = InvalidName;

    fn try_from(text: &str) -> Result<Self, InvalidName> {
        text.parse()
    }
}

impl TryFrom<String> for LockName {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        text.parse()
    }
}

impl From<&LockName> for LockName {
    fn from(name: &LockName) -> Self {
        name.clone()
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_by_rule() {
        let longest = "x".repeat(512);
        for text in
            ["a", "../../etc/passwd", "100%", "{slot}", "a b", "🔒", " ", "a:b*c?", &longest]
        {
            assert_eq!(text.parse::<LockName>().unwrap().as_str(), text);
        }
    }

    #[test]
    fn refuses_by_rule() {
        let too_long = "é".repeat(257);
        let cases = [
            ("", InvalidName::Empty),
            (too_long.as_str(), InvalidName::TooLong { bytes: 514 }),
            ("a\nb", InvalidName::Control { code: 0x0A, at: 1 }),
            ("a\0", InvalidName::Control { code: 0, at: 1 }),
            ("\u{7f}", InvalidName::Control { code: 0x7F, at: 0 }),
            ("é\u{85}", InvalidName::Control { code: 0x85, at: 2 }),
        ];
        for (text, why) in cases {
            assert_eq!(text.parse::<LockName>(), Err(why));
        }
    }

    #[test]
    fn case_matters() {
        assert_ne!("a".parse::<LockName>().unwrap(), "A".parse::<LockName>().unwrap());
    }
}
