//! What becomes of a test for which a program is missing.

use std::{env, ffi::OsStr};

/// Whether tests that need a program can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// It is there.
    There,
    /// It is missing: the trials are shown as ignored.
    Ignore,
    /// It is missing and `CERROJO_TEST_REQUIRE` is set: the trials run, and fail.
    Fail,
}

impl Need {
    /// Whether the trials are to be marked as ignored.
    #[must_use]
    pub fn is_ignored(self) -> bool {
        self == Self::Ignore
    }
}

/// Looks for `program` on the `PATH`.
#[must_use]
pub fn need(program: &str) -> Need {
    decide(
        is_on(&env::var_os("PATH").unwrap_or_default(), program),
        env::var_os("CERROJO_TEST_REQUIRE").is_some(),
    )
}

fn is_on(path: &OsStr, program: &str) -> bool {
    env::split_paths(path).any(|folder| folder.join(program).is_file())
}

fn decide(is_there: bool, is_required: bool) -> Need {
    match (is_there, is_required) {
        (true, _) => Need::There,
        (false, false) => Need::Ignore,
        (false, true) => Need::Fail,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_ignored_and_never_passes() {
        assert_eq!(decide(false, false), Need::Ignore);
        assert_eq!(decide(false, true), Need::Fail);
        assert_eq!((decide(true, false), decide(true, true)), (Need::There, Need::There));
    }

    #[test]
    fn programs_are_looked_for_on_the_path() {
        assert_eq!(need("sh"), Need::There);
        assert!(!is_on(OsStr::new("/bin"), "no-such-program"));
    }
}
