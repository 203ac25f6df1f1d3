//! The tables and functions, made and brought up to date.

use crate::sql::Names;

/// In the order in which they are applied.
const FILES: [&str; 10] = [
    include_str!("sql/tables.sql"),
    include_str!("sql/line.sql"),
    include_str!("sql/acquire.sql"),
    include_str!("sql/renew.sql"),
    include_str!("sql/release.sql"),
    include_str!("sql/break.sql"),
    include_str!("sql/guard.sql"),
    include_str!("sql/holders.sql"),
    include_str!("sql/prune.sql"),
    include_str!("sql/done.sql"),
];
const GRANT: &str = include_str!("sql/grant.sql");
const REFUSE_NEWER: &str = include_str!("sql/newer.sql");

/// The schema that this version makes, and knows how to use.
pub(super) const VERSION: i32 = 1;

/// All of it, as a text that can be applied again at any time.
pub(super) fn text(names: &Names) -> String {
    names.fill_in(&FILES.concat())
}

/// The rights of those who use locks, for one role more.
pub(super) fn grant(names: &Names, quoted_role: &str) -> String {
    names.fill_in(GRANT).replace("\"a_role\"", quoted_role)
}

/// One transaction that makes or upgrades it: one at a time, and never downwards.
pub(super) fn transaction(names: &Names, quoted_roles: &[String]) -> String {
    let before = names.fill_in(REFUSE_NEWER).replace("SUPPORTED", &VERSION.to_string());
    let grants: String = quoted_roles.iter().map(|role| grant(names, role)).collect();
    format!("BEGIN;\n{before}{}{grants}COMMIT;\n", text(names))
}
