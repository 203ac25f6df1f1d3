//! The scripts that are other than a single server's.

use std::sync::LazyLock;

use super::super::redis::script::Script;

/// Beside these the scripts of a single server serve: RENEW, HOLDER and BREAK.
pub(super) static ACQUIRE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        include_str!("../redis/lua/value.lua"),
        include_str!("../redis/lua/line.lua"),
        include_str!("lua/acquire.lua"),
    ))
});

pub(super) static RELEASE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        include_str!("../redis/lua/value.lua"),
        include_str!("../redis/lua/release_quickly.lua"),
        include_str!("../redis/lua/line.lua"),
        include_str!("lua/release.lua"),
    ))
});
