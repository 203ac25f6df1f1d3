//! What tables and functions in the user's database are called. Pure.

use crate::error::{Error, ErrorKind, Result};

/// So that the longest name that is made of it fits PostgreSQL's 63 bytes.
const LEN_MAX: usize = 40;

/// What is appended to the name of a table for what belongs to it.
const TAKEN: [&str; 5] = ["_waiter", "_token", "_store", "_answer", "_holding"];

/// A schema, and the table in it whose name all others begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    schema: String,
    table: String,
    /// The table as the files of SQL have it.
    written: &'static str,
}

impl Names {
    /// As they are in the files, where the schema is `cerrojo`.
    pub(crate) fn of(table: &'static str) -> Self {
        Self { schema: "cerrojo".to_owned(), table: table.to_owned(), written: table }
    }

    pub(crate) fn with_schema(self, schema: String) -> Result<Self, String> {
        Ok(Self { schema: checked("schema", schema)?, ..self })
    }

    pub(crate) fn with_table(self, table: String) -> Result<Self, String> {
        match TAKEN.iter().find(|ending| table.ends_with(**ending)) {
            Some(ending) => Err(format!("a table `..{ending}` would be in the way of another's")),
            None => Ok(Self { table: checked("table", table)?, ..self }),
        }
    }

    /// The text with these names in place of those that the files have.
    pub(crate) fn fill_in(&self, text: &str) -> String {
        let (written, table) = (format!("\"{}", self.written), format!("\"{}", self.table));
        // Each once, also where the one is called what the other stands for.
        let parts: Vec<_> =
            text.split("\"cerrojo\"").map(|part| part.replace(&written, &table)).collect();
        parts.join(&format!("\"{}\"", self.schema))
    }

    /// For messages.
    pub(crate) fn shown(&self) -> String {
        format!("{}.{}", self.schema, self.table)
    }
}

/// Lower case, so that it needs no quotes in anybody's SQL.
fn checked(what: &str, name: String) -> Result<String, String> {
    let is_fit = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let begins = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    match begins && name.len() <= LEN_MAX && name.chars().all(is_fit) {
        true => Ok(name),
        false => Err(format!(
            "the {what} {name:?} is not 1 to {LEN_MAX} of a-z, 0-9 and _, beginning with a letter or _"
        )),
    }
}

/// A role as SQL has it.
pub(crate) fn quoted_role(role: &str) -> Result<String> {
    if role.is_empty() || role.contains('\0') {
        return Err(Error::new(ErrorKind::Invalid, "a role's name is not empty"));
    }
    Ok(format!("\"{}\"", role.replace('"', "\"\"")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_put_in_everywhere() {
        let names = Names::of("lock").with_schema("app".to_owned()).unwrap();
        let names = names.with_table("job".to_owned()).unwrap();
        let text = r#"SELECT "cerrojo"."lock_ask"(l) FROM "cerrojo"."lock" l"#;
        assert_eq!(names.fill_in(text), r#"SELECT "app"."job_ask"(l) FROM "app"."job" l"#);
        assert_eq!(Names::of("lock").fill_in(text), text);
        let crossed = Names::of("lock").with_schema("locks".to_owned()).unwrap();
        let crossed = crossed.with_table("cerrojo".to_owned()).unwrap();
        assert_eq!(
            crossed.fill_in(text),
            r#"SELECT "locks"."cerrojo_ask"(l) FROM "locks"."cerrojo" l"#
        );
    }

    #[test]
    fn names_that_would_need_care_are_refused() {
        for name in ["", "Lock", "1st", "a-b", "a\"b", "a b", "lock_waiter", &"a".repeat(41)] {
            assert!(Names::of("lock").with_table(name.to_owned()).is_err(), "{name}");
        }
    }

    #[test]
    fn a_role_is_quoted() {
        assert_eq!(quoted_role("a\"b").unwrap(), r#""a""b""#);
        assert!(quoted_role("").is_err());
    }
}
