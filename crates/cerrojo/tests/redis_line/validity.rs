//! Until when a grant may be acted on, beside what the server itself says.

pub(crate) use crate::line::validity::{
    a_direct_grant_is_never_valid_beyond_the_servers_expiry,
    a_grant_handed_over_after_3_ttls_is_never_valid_beyond_the_servers_expiry,
    late_news_are_never_valid_beyond_the_servers_expiry as a_late_push_is_never_valid_beyond_the_servers_expiry,
    news_held_for_2_ttls_give_a_fresh_and_exclusive_guard as a_push_held_for_2_ttls_gives_a_fresh_and_exclusive_guard,
};
