//! Distributed locks that say what they promise.
//!
//! | | for | backends | guard | two holders at once? |
//! |---|---|---|---|---|
//! | **fenced** | correctness: a double run corrupts data | [`memory`], `local`, `postgres` | [`FencedGuard`], with a [`FencingToken`] | the resource refuses the older one |
//! | **approximate** | efficiency: a double run costs money | `redis`, `redlock` | [`ApproximateGuard`] | rare, but possible |
//!
//! Code that needs a token does not compile against an approximate lock. Each backend but `memory` is behind the feature of its name; `redlock`
//! comes with `redis`.
//!
//! ```no_run
//! # #[cfg(all(feature = "local", target_os = "linux"))]
//! # async fn example() -> cerrojo::Result<()> {
//! # async fn write(_: cerrojo::FencingToken, _: &[u8]) -> cerrojo::Result<()> { Ok(()) }
//! let locks = cerrojo::Locker::new(cerrojo::backend::local::Local::connect("/var/lib/app/locks").await?);
//! let guard = locks.acquire("invoices/42").await?;
//! guard.run(write(guard.token(), b"paid")).await??; // stops when the lease is lost
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Tested on Linux only. Everything but the `local` backend is written portably; elsewhere it is untested.
//!
//! [`memory`]: backend::memory

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod backend;
mod claim;
pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod connect;
mod erased;
mod error;
pub mod fence;
mod guard;
mod holder;
mod keeper;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod line;
mod locker;
mod name;
mod options;
mod owner;
mod queue;
mod rng;
pub mod spi;
#[cfg(feature = "postgres")]
mod sql;
mod status;
mod token;
mod validity;
mod waiter;
pub mod watched;

pub use claim::Claim;
pub use clock::{Deadline, Instant};
pub use connect::{AnyLocker, Initialized, connect, init_store, init_store_sql};
pub use erased::{Erased, ErasedLease};
pub use error::{Error, ErrorKind, Result};
pub use guard::{ApproximateGuard, FencedGuard, Guard};
pub use holder::{HolderInfo, Identity};
pub use locker::{Acquire, Locker};
pub use name::{InvalidName, LockName};
pub use options::Options;
pub use owner::{InvalidId, OwnerId, StoreId};
pub use spi::{BoundTo, Break, Wait};
pub use status::{LeaseState, LostSignal};
pub use token::{FencedGrant, FencingToken, NoToken, Token};
pub use validity::{Drift, InvalidTtl, Ttl};
