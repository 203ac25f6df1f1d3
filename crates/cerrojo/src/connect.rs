//! The one place that knows URL schemes.

use crate::{
    Error, ErrorKind, FencingToken, HolderInfo, LockName, Locker, NoToken, Options, OwnerId,
    Result,
    clock::Deadline,
    erased::Erased,
    spi::{Backend, Break, Lease},
};

/// A locker whose backend was chosen at run time. The caller matches, and so says which promise suffices.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub enum AnyLocker {
    /// For correctness: every grant carries a fencing token.
    Fenced(Locker<Erased<FencingToken>>),
    /// For efficiency: there may be two holders at times.
    Approximate(Locker<Erased<NoToken>>),
}

/// One scheme of URLs.
struct Scheme {
    names: &'static [&'static str],
    example: &'static str,
    /// The crate feature that it needs and whether that is on; `None`: always there.
    feature: Option<(&'static str, bool)>,
}

const SCHEMES: &[Scheme] = &[
    Scheme { names: &["memory"], example: "memory:", feature: None },
    Scheme {
        names: &["local"],
        example: "local: or local:/var/lib/app/locks",
        feature: Some(("local", cfg!(feature = "local"))),
    },
    Scheme {
        names: &[
            "redis",
            "rediss",
            "redis+unix",
            "redis+sentinel",
            "rediss+sentinel",
            "redis+cluster",
            "rediss+cluster",
        ],
        example: "redis://host:port",
        feature: Some(("redis", cfg!(feature = "redis"))),
    },
    Scheme {
        names: &["postgres", "postgresql"],
        example: "postgres://user@host/database",
        feature: Some(("postgres", cfg!(feature = "postgres"))),
    },
    Scheme {
        names: &["redlock", "redlocks"],
        example: "redlock://host:port,host:port,host:port",
        feature: Some(("redis", cfg!(feature = "redis"))),
    },
];

/// Opens the store that a URL names.
///
/// * `memory:` one store of this process alone, for tests;
/// * `local:` the embedded store at its default place, `local:PATH` in the folder PATH;
/// * `postgres:` and `postgresql:`, as [`Postgres::connect`](crate::backend::postgres::Postgres::connect) reads them: a URL, or keywords and
///   values behind the colon, as `postgres:host=db dbname=app`. [`init_store`] makes the tables;
/// * `redis:` and its kin, as [`Redis::connect`](crate::backend::redis::Redis::connect) reads them: approximate;
/// * `redlock:` and `redlocks:`, as [`Redlock::connect`](crate::backend::redlock::Redlock::connect) reads them: approximate.
///
/// # Errors
///
/// [`ErrorKind::Invalid`] for an unknown scheme or one whose feature is off, with the schemes that there are; else what
/// the store says.
///
/// # Cancel safety
///
/// May be dropped at any time.
pub async fn connect(url: &str, options: Options) -> Result<AnyLocker> {
    let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
    match scheme {
        "memory" if rest.is_empty() => Ok(fenced(crate::backend::memory::Memory::new(), options)),
        "memory" => Err(invalid(format!("`{url}`: memory: takes nothing after the colon"))),
        #[cfg(all(feature = "local", target_os = "linux"))]
        "local" => Ok(fenced(crate::backend::local::Local::connect_url(rest).await?, options)),
        #[cfg(all(feature = "local", not(target_os = "linux")))]
        "local" => Err(invalid("local: works on Linux only; use a store on a server".to_owned())),
        #[cfg(feature = "postgres")]
        _ if knows("postgres", scheme) => {
            Ok(fenced(crate::backend::postgres::Postgres::connect(url).await?, options))
        }
        #[cfg(feature = "redis")]
        _ if knows("redis", scheme) => {
            Ok(approximate(crate::backend::redis::Redis::connect(url).await?, options))
        }
        #[cfg(feature = "redis")]
        _ if knows("redlock", scheme) => {
            Ok(approximate(crate::backend::redlock::Redlock::connect(url).await?, options))
        }
        _ => Err(unknown(scheme)),
    }
}

/// What [`init_store`] has done.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initialized {
    /// Tables and functions have been made, brought up to date, or found to be so.
    Tables,
    /// A store of this kind has none: it was opened, and is ready.
    Nothing,
}

/// Makes what a store needs before it can be connected to, or brings it up to date; as often as one likes, also when many start at once.
///
/// * `postgres:`: tables and functions, as [`Builder::init`](crate::backend::postgres::Builder::init) makes them, and the
///   right to use them for each role of `grant_to`. The role in the URL owns them from then on;
/// * all others need nothing: they are opened, which makes the folder of `local:`.
///
/// # Errors
///
/// [`ErrorKind::Invalid`] when the role may not make tables, a role of `grant_to` does not exist, or the store has no roles;
/// else as [`connect`]. Nothing is half done.
///
/// # Cancel safety
///
/// When dropped, it takes effect wholly or not at all.
pub async fn init_store(url: &str, grant_to: &[&str]) -> Result<Initialized> {
    #[cfg(feature = "postgres")]
    if knows("postgres", scheme_of(url)) {
        return postgres(url, grant_to).init().await.map(|()| Initialized::Tables);
    }
    without_roles(url, grant_to)?;
    connect(url, Options::default()).await.map(|_| Initialized::Nothing)
}

/// The SQL that [`init_store`] would run, for somebody to read and apply; none where there is nothing to make. Does no I/O but to read
/// what files the URL names.
///
/// # Errors
///
/// [`ErrorKind::Invalid`] for a wrong URL, and where the store has no roles.
pub fn init_store_sql(url: &str, grant_to: &[&str]) -> Result<Option<String>> {
    #[cfg(feature = "postgres")]
    if knows("postgres", scheme_of(url)) {
        return postgres(url, grant_to).init_sql().map(Some);
    }
    without_roles(url, grant_to).map(|()| None)
}

#[cfg(feature = "postgres")]
fn postgres(url: &str, grant_to: &[&str]) -> crate::backend::postgres::Builder {
    let builder = crate::backend::postgres::Postgres::builder(url);
    grant_to.iter().fold(builder, |builder, role| builder.grant_to(*role))
}

/// Refuses roles, where there are none, and what is no store.
fn without_roles(url: &str, grant_to: &[&str]) -> Result<()> {
    let scheme = scheme_of(url);
    if !there().any(|row| row.names.contains(&scheme)) {
        return Err(unknown(scheme));
    }
    match grant_to {
        [] => Ok(()),
        _ => Err(invalid(format!("`{scheme}:` has no roles to grant anything to"))),
    }
}

fn scheme_of(url: &str) -> &str {
    url.split_once(':').map_or(url, |(scheme, _)| scheme)
}

/// Whether the row of `first` has this scheme.
#[cfg(any(feature = "postgres", feature = "redis"))]
fn knows(first: &str, scheme: &str) -> bool {
    let row = SCHEMES.iter().find(|row| row.names.first() == Some(&first));
    row.is_some_and(|row| row.names.contains(&scheme))
}

fn fenced<B: Backend<Lease: Lease<Token = FencingToken>>>(
    backend: B,
    options: Options,
) -> AnyLocker {
    AnyLocker::Fenced(Locker::with_options(Erased::new(backend), options))
}

#[cfg(feature = "redis")]
fn approximate<B: Backend<Lease: Lease<Token = NoToken>>>(
    backend: B,
    options: Options,
) -> AnyLocker {
    AnyLocker::Approximate(Locker::with_options(Erased::new(backend), options))
}

/// The schemes that this build can open.
fn there() -> impl Iterator<Item = &'static Scheme> {
    SCHEMES.iter().filter(|row| row.feature.is_none_or(|(_, on)| on))
}

/// Says which schemes there are, and which feature would bring the one asked for.
fn unknown(scheme: &str) -> Error {
    let row = SCHEMES.iter().find(|row| row.names.contains(&scheme));
    let off = row.and_then(|row| row.feature);
    let there = there().map(|row| row.example).collect::<Vec<_>>().join(", ");
    invalid(match off {
        Some((feature, _)) => format!(
            "`{scheme}:` needs the crate feature `{feature}`, which this build does not have; it has {there}"
        ),
        // The text may be a whole URL with a password in it: it is not repeated.
        None => format!("unknown store: a store URL starts with its scheme, one of {there}"),
    })
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::Invalid, message)
}

impl AnyLocker {
    /// Whether its locks carry fencing tokens.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        matches!(self, Self::Fenced(_))
    }

    /// See [`Locker::list`].
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub async fn list(&self, after: Option<&LockName>, limit: usize) -> Result<Vec<HolderInfo>> {
        match self {
            Self::Fenced(locker) => locker.list(after, limit).await,
            Self::Approximate(locker) => locker.list(after, limit).await,
        }
    }

    /// See [`Locker::holder`].
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub async fn holder(&self, name: &LockName) -> Result<Option<HolderInfo>> {
        match self {
            Self::Fenced(locker) => locker.holder(name).await,
            Self::Approximate(locker) => locker.holder(name).await,
        }
    }

    /// See [`Locker::break_lock`].
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub async fn break_lock(&self, name: &LockName, when: Break) -> Result<Option<HolderInfo>> {
        match self {
            Self::Fenced(locker) => locker.break_lock(name, when).await,
            Self::Approximate(locker) => locker.break_lock(name, when).await,
        }
    }

    /// See [`Locker::prune`].
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub async fn prune(&self) -> Result<u64> {
        match self {
            Self::Fenced(locker) => locker.prune().await,
            Self::Approximate(locker) => locker.prune().await,
        }
    }

    /// See [`Locker::release`].
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub async fn release(&self, name: &LockName, owner: OwnerId) -> Result<()> {
        match self {
            Self::Fenced(locker) => locker.release(name, owner).await,
            Self::Approximate(locker) => locker.release(name, owner).await,
        }
    }

    /// See [`Locker::close`].
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub async fn close(&self, deadline: Deadline) -> Result<()> {
        match self {
            Self::Fenced(locker) => locker.close(deadline).await,
            Self::Approximate(locker) => locker.close(deadline).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_unknown_scheme_is_told_which_there_are() {
        for url in ["carrier-pigeon://coop", "", "/var/lib/locks", "nope:secret@host"] {
            let error = connect(url, Options::default()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains("memory:"), "{error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[tokio::test]
    async fn memory_is_fenced_and_takes_no_path() {
        assert!(connect("memory:", Options::default()).await.unwrap().is_fenced());
        assert!(connect("memory:x", Options::default()).await.is_err());
    }

    #[tokio::test]
    async fn a_store_that_needs_nothing_is_opened_and_has_no_sql() {
        assert_eq!(init_store("memory:", &[]).await.unwrap(), Initialized::Nothing);
        assert_eq!(init_store_sql("memory:", &[]).unwrap(), None);
        for url in ["memory:", "nope:secret@host", ""] {
            let error = init_store(url, &["app"]).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert_eq!(init_store_sql(url, &["app"]).unwrap_err().to_string(), error.to_string());
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn the_sql_is_for_the_schema_and_the_roles_that_are_named() {
        for url in ["postgres://u:secret@h/app?schema=jobs", "postgres:host=h schema=jobs"] {
            let sql = init_store_sql(url, &["ann", "a\"b"]).unwrap().unwrap();
            for wanted in ["\"jobs\".\"lock_acquire\"", "TO \"ann\";", "TO \"a\"\"b\";"] {
                assert!(sql.contains(wanted), "{wanted} is not in {sql}");
            }
            assert!(!sql.contains("secret") && !sql.contains("\"cerrojo\""), "{sql}");
        }
        let error = init_store_sql("postgres://u:secret@h?pool=3", &[]).unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    #[cfg(not(feature = "local"))]
    #[tokio::test]
    async fn a_scheme_whose_feature_is_off_names_the_feature() {
        let error = connect("local:", Options::default()).await.unwrap_err();
        assert!(error.to_string().contains("feature `local`"), "{error}");
    }
}
