//! What becomes of a test for which a program is missing.

use std::{
    env,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

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

/// Where Debian has a folder for each version of PostgreSQL, with most of its programs.
const POSTGRESQL: &str = "/usr/lib/postgresql";

/// Where Debian has servers: on the `PATH` of root only, or on nobody's.
const SERVERS: [&str; 2] = ["/usr/sbin", "/usr/share/zookeeper/bin"];

/// Looks for `program` on the `PATH`, and where Debian has servers that are on nobody's.
#[must_use]
pub fn need(program: &str) -> Need {
    decide(find(program).is_some(), env::var_os("CERROJO_TEST_REQUIRE").is_some())
}

/// Where `program` is: of several the first on the `PATH`, or else of the newest version.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    on(&env::var_os("PATH").unwrap_or_default(), program).or_else(|| off_path(program))
}

fn on(path: &OsStr, program: &str) -> Option<PathBuf> {
    env::split_paths(path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

fn off_path(program: &str) -> Option<PathBuf> {
    let versions = newest_first(Path::new(POSTGRESQL)).into_iter().map(|folder| folder.join("bin"));
    let mut folders = versions.chain(SERVERS.map(PathBuf::from));
    folders.find_map(|folder| Some(folder.join(program)).filter(|file| file.is_file()))
}

/// The folders below `top` whose names are numbers.
fn newest_first(top: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(top).into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut numbers: Vec<_> = numbers.collect();
    numbers.sort_unstable_by(|one, other| other.cmp(one));
    numbers.into_iter().map(|number| top.join(number.to_string())).collect()
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
        assert_eq!(on(OsStr::new("/bin"), "no-such-program"), None);
        assert_eq!(find("no-such-program"), None);
    }

    #[test]
    fn versions_are_ordered_by_number_and_not_by_name() {
        let top = tempfile::tempdir().unwrap();
        for name in ["9", "15", "100", "common"] {
            fs::create_dir(top.path().join(name)).unwrap();
        }
        let names = ["100", "15", "9"].map(|name| top.path().join(name));
        assert_eq!(newest_first(top.path()), names);
        assert!(newest_first(Path::new("/no/such/folder")).is_empty());
    }
}
