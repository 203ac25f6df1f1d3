//! Private PostgreSQL servers, and PgBouncer in front of them.

mod account;
mod backup;
mod bouncer;
mod builder;
mod medium;
mod postmaster;
mod psql;
mod server;
mod template;

pub use backup::PostgresBackup;
pub use bouncer::{PgBouncer, PgBouncerBuilder};
pub use builder::PostgresBuilder;
pub use server::PostgresServer;

/// The superuser by which the testbed speaks to its servers and they to each other, through the unix socket: so that
/// a test may demand of everyone else whatever it likes.
const TESTBED: &str = "testbed";

/// The database that every server has.
const APP: &str = "app";

fn url(user: &str, password: &str, address: &str, database: &str) -> String {
    format!("postgres://{user}:{password}@{address}/{database}")
}
