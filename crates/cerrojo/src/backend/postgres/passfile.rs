//! The file in which PostgreSQL's users keep passwords: `host:port:database:user:password`, with `*` for any.

use std::{io, path::Path};

/// Whom a password is wanted for.
pub(super) struct Wanted<'a> {
    pub(super) host: &'a str,
    pub(super) port: u16,
    pub(super) database: &'a str,
    pub(super) user: &'a str,
}

/// The first line that fits decides.
pub(super) fn look_up(path: &Path, wanted: &Wanted<'_>) -> Result<Option<String>, String> {
    let failed = |error: io::Error| format!("cannot read the passfile {}: {error}", path.display());
    refuse_open_to_others(path).map_err(failed)?;
    let text = std::fs::read_to_string(path).map_err(failed)?;
    Ok(text.lines().find_map(|line| password_in(line, wanted)))
}

#[cfg(unix)]
fn refuse_open_to_others(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    match std::fs::metadata(path)?.permissions().mode() & 0o077 {
        0 => Ok(()),
        _ => Err(io::Error::other("others may read it: chmod 600")),
    }
}

#[cfg(not(unix))]
fn refuse_open_to_others(_: &Path) -> io::Result<()> {
    Ok(())
}

fn password_in(line: &str, wanted: &Wanted<'_>) -> Option<String> {
    let line = line.trim_end_matches('\r');
    if line.starts_with('#') {
        return None;
    }
    let fields = fields(line);
    let [host, port, database, user, password] = fields.as_slice() else {
        return None;
    };
    let fits = |field: &Field, wanted: &str| field.is_any || field.text == wanted;
    let all = fits(host, wanted.host)
        && fits(port, &wanted.port.to_string())
        && fits(database, wanted.database)
        && fits(user, wanted.user);
    all.then(|| password.text.clone())
}

#[derive(Default)]
struct Field {
    text: String,
    /// A star that is not escaped.
    is_any: bool,
}

/// The password is the rest of the line: only its backslashes are read.
fn fields(line: &str) -> Vec<Field> {
    let mut fields = vec![Field::default()];
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        let is_last = fields.len() == 5;
        let Some(field) = fields.last_mut() else { break };
        match c {
            '\\' => field.text.extend(chars.next()),
            ':' if !is_last => fields.push(Field::default()),
            '*' if field.text.is_empty() => {
                field.is_any = true;
                field.text.push(c);
            }
            c => {
                field.is_any = false;
                field.text.push(c);
            }
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: Wanted<'_> = Wanted { host: "db", port: 5432, database: "app", user: "ann" };

    #[test]
    fn lines_are_read_as_libpq_does() {
        for (line, wanted) in [
            ("db:5432:app:ann:secret", Some("secret")),
            ("*:*:*:*:secret", Some("secret")),
            ("db:*:app:*:with:colon", Some("with:colon")),
            (r"d\b:5432:app:ann:a\:b\\c", Some(r"a:b\c")),
            ("db:5433:app:ann:secret", None),
            ("other:5432:app:ann:secret", None),
            (r"\*:5432:app:ann:secret", None),
            ("# db:5432:app:ann:secret", None),
            ("db:5432:app", None),
            ("", None),
        ] {
            assert_eq!(password_in(line, &WANTED).as_deref(), wanted, "{line}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_others_may_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pass");
        std::fs::write(&path, "x:1:y:z:no\n*:*:*:*:secret\n").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        assert!(look_up(&path, &WANTED).unwrap_err().contains("chmod 600"));
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        assert_eq!(look_up(&path, &WANTED).unwrap().as_deref(), Some("secret"));
    }
}
