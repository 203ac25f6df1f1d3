//! Servers that do not let us in, and what is no server of ours: a clear error, in time, that never shows a password.

use std::{net::TcpListener, os::unix::fs::PermissionsExt, time::Duration};

use cerrojo::{AnyLocker, ErrorKind, Options, backend::postgres::Postgres, clock};
use cerrojo_testbed::Port;
use libtest_mimic::Trial;

use crate::{
    faults::{SECRET, never_shown, serve},
    site::{
        LONG, Outcome, ROLE, Shared, Site, check_error, connect, is_lost, kind, trial, ttl, until,
        until_told, works,
    },
};

pub(crate) fn trials(shared: &Shared) -> Vec<Trial> {
    vec![
        shared.trial("a_wrong_password_or_role_is_told_and_never_shown", logins),
        shared.trial("a_role_without_rights_is_told_what_gives_them", rights),
        shared.trial("a_database_that_is_not_there_is_told", database),
        shared.trial("a_passfile_gives_the_password", passfile),
        shared.trial("a_socket_and_keywords_lead_to_the_same_store", socket),
        shared.trial("with_one_connection_left_all_works_with_it", one_connection),
        shared.trial("with_no_connection_left_it_is_told_and_works_once_there_is", no_connection),
        trial("what_is_not_postgresql_is_told", not_postgres),
        trial("what_says_nothing_is_given_up", silence),
        trial("nobody_there_is_told", nobody),
    ]
}

/// Connecting and being greeted, or the reason why not.
const IN_TIME: Duration = Duration::from_secs(12);
/// Connecting fails in time with such an error.
pub(crate) async fn refused(url: &str, kind: ErrorKind, words: &[&str]) -> Outcome {
    let mut error = error_of(url).await?;
    // A busy machine may need longer.
    while kind != error.kind() && error.to_string().contains(TOO_SLOW) {
        error = error_of(url).await?;
    }
    never_shown(&error);
    check_error(&error, &[kind], words).map_err(|why| format!("{url}: {why:?}").into())
}

const TOO_SLOW: &str = "no connection within";

async fn error_of(url: &str) -> Outcome<cerrojo::Error> {
    let answer = clock::within(IN_TIME, Postgres::connect(url)).await;
    let answer = answer.map_err(|_| format!("{url}: still connecting after {IN_TIME:?}"))?;
    answer.err().ok_or_else(|| format!("{url} let us in").into())
}

/// With another login, of the form `user:password` or less.
fn url_with(site: &Site, login: &str) -> String {
    let (address, table) = (site.server.address(), &site.table);
    format!("postgres://{login}@{address}/app?sslmode=disable&table={table}")
}

async fn logins(site: Site) -> Outcome {
    let address = site.server.address();
    let words = [address.as_str(), "28P01", "user, password or pg_hba.conf is wrong"];
    for login in [format!("{ROLE}:{SECRET}"), format!("nobody:{SECRET}")] {
        refused(&url_with(&site, &login), ErrorKind::Invalid, &words).await?;
    }
    refused(&url_with(&site, ROLE), ErrorKind::Invalid, &[&address, "password"]).await?;
    site.server.superuser_sql(&format!("CREATE ROLE \"{}\" PASSWORD '{SECRET}'", site.table))?;
    let login = format!("{}:{SECRET}", site.table);
    refused(&url_with(&site, &login), ErrorKind::Invalid, &[&address, "not permitted to log in"])
        .await?;
    let login = format!("{ROLE}:{}", site.server.password());
    let store = Postgres::connect(&url_with(&site, &login)).await?;
    let shown = format!("{store:?} {:?}", Postgres::builder(&url_with(&site, &login)));
    assert!(!shown.contains(site.server.password()), "a password is shown");
    works(&cerrojo::Locker::new(store), "a").await
}

async fn rights(site: Site) -> Outcome {
    site.server.create_role(&site.table, "")?;
    let url = site.url_of(&site.table, &site.server.address(), "");
    let words = [site.table.as_str(), "42501", "cerrojo store init --grant ROLE"];
    refused(&url, ErrorKind::Invalid, &words).await?;
    let granted = Postgres::builder(&url).grant_to(&site.table).init_sql()?;
    site.server.superuser_sql(&granted)?;
    let locks = connect(&url).await?;
    works(&locks, "a").await?;
    let acquire = format!("FUNCTION cerrojo.{}_acquire", site.table);
    site.server.superuser_sql(&format!("REVOKE EXECUTE ON {acquire} FROM {}", site.table))?;
    let error = locks.try_acquire("a").await.unwrap_err();
    check_error(&error, &[ErrorKind::Invalid], &words)?;
    site.server.superuser_sql(&format!("GRANT EXECUTE ON {acquire} TO {}", site.table))?;
    works(&locks, "a").await
}

async fn database(site: Site) -> Outcome {
    let address = site.server.address();
    let url = site.server.url(ROLE, "nowhere") + "?sslmode=disable";
    let words = [address.as_str(), "3D000", "create the database, or name another"];
    refused(&url, ErrorKind::Invalid, &words).await
}

async fn passfile(site: Site) -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("pass");
    let write = |line: String, mode| {
        std::fs::write(&path, line)?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode))
    };
    let url = format!("{}&passfile={}", url_with(&site, ROLE), path.display());
    let fits = |password: &str| format!("127.0.0.1:{}:app:{ROLE}:{password}\n", site.server.port());
    refused(&url, ErrorKind::Invalid, &["cannot read the passfile"]).await?;
    write(fits(SECRET), 0o600)?;
    refused(&url, ErrorKind::Invalid, &["28P01"]).await?;
    write(fits(site.server.password()), 0o644)?;
    refused(&url, ErrorKind::Invalid, &["chmod 600"]).await?;
    write(fits(site.server.password()), 0o600)?;
    works(&connect(&url).await?, "a").await
}

/// What one of them holds the others find held.
async fn socket(site: Site) -> Outcome {
    let (port, password) = (site.server.port(), site.server.password());
    let (place, table) = (site.server.socket_dir().display(), &site.table);
    let words = format!(
        "host={place} port={port} user={ROLE} password={password} dbname=app table={table}"
    );
    let encoded = place.to_string().replace('/', "%2F");
    let guard = site.direct().await?.acquire("a").ttl(ttl(60_000)).await?;
    for url in [
        format!("postgres:{words}"),
        format!("postgres:{}", words.replace("host=", "sslmode=require host=")),
        format!("postgresql://{ROLE}:{password}@{encoded}:{port}/app?table={table}"),
        format!(
            "postgres:///app?host={place}&port={port}&user={ROLE}&password={password}&table={table}"
        ),
        site.url(""),
    ] {
        let AnyLocker::Fenced(locks) = cerrojo::connect(&url, Options::default()).await? else {
            return Err("approximate".into());
        };
        assert_eq!(kind(locks.try_acquire("a").await), Some(ErrorKind::Contended));
        locks.acquire("b").wait(LONG).await?.release().await?;
    }
    works(&connect(&words).await?, "b").await?;
    let missing = words.replace(&place.to_string(), "/no/such/folder");
    refused(&missing, ErrorKind::Unavailable, &["/no/such/folder"]).await?;
    Ok(guard.release().await?)
}

/// A role of its own, that may have so many connections.
fn limited(site: &Site, connections: usize) -> Outcome<String> {
    site.server.create_role(&site.table, &format!("CONNECTION LIMIT {connections}"))?;
    let url = site.url_of(&site.table, &site.server.address(), "");
    site.server.superuser_sql(&Postgres::builder(&url).grant_to(&site.table).init_sql()?)?;
    Ok(url)
}

async fn one_connection(site: Site) -> Outcome {
    let locks = connect(&limited(&site, 1)?).await?;
    let others = site.direct().await?;
    let asking = (0..20).map(|number| {
        let locks = locks.clone();
        tokio::spawn(async move { works(&locks, &format!("n{number}")).await })
    });
    for asking in asking.collect::<Vec<_>>() {
        asking.await??;
    }
    let holder = others.acquire("a").ttl(ttl(60_000)).await?;
    let waiting = crate::site::waiter(locks, "a", 3_000);
    site.until_waiting("a", 1).await?;
    holder.release().await?;
    Ok(waiting.await??.release().await?)
}

async fn no_connection(site: Site) -> Outcome {
    let url = limited(&site, 2)?;
    let locks = connect(&url).await?;
    let guard = locks.acquire("a").ttl(ttl(2_000)).await?;
    let limit = |connections: i32| {
        let role = format!("ALTER ROLE {} CONNECTION LIMIT {connections}", site.table);
        site.server.superuser_sql(&role).map(drop)
    };
    limit(0)?;
    until("no connection", async || {
        site.server.terminate_backends(&format!("usename = '{}'", site.table))?;
        let left =
            format!("SELECT count(*) FROM pg_stat_activity WHERE usename = '{}'", site.table);
        Ok(site.number(&left).await? == 0)
    })
    .await?;
    let words = ["53300", "raise max_connections, or go through a pooler"];
    refused(&url, ErrorKind::Unavailable, &words).await?;
    until_told(&locks, ErrorKind::Unavailable, &words).await?;
    is_lost(&guard).await?;
    limit(2)?;
    let again = locks.acquire("a").ttl(ttl(3_000)).wait(LONG).await?;
    again.release().await?;
    works(&locks, "b").await
}

async fn not_postgres() -> Outcome {
    let answers: [&[u8]; 4] = [
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
        b"220 mail.example.org ESMTP\r\n",
        b"-ERR Protocol error: unbalanced quotes in request\r\n",
        b"\x00\x01\x02\x03\r\n\r\n",
    ];
    for answer in answers {
        let address = serve(answer)?;
        for mode in ["disable", "prefer"] {
            let url = format!("postgres://u:{SECRET}@{address}/app?sslmode={mode}");
            refused(&url, ErrorKind::Unavailable, &[&address, "is it a PostgreSQL server?"])
                .await?;
        }
    }
    Ok(())
}

async fn silence() -> Outcome {
    // Its queue takes connections that nobody accepts.
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    for mode in ["disable", "verify-full"] {
        let url = format!("postgres://u:{SECRET}@{address}/app?sslmode={mode}");
        let words = [address.as_str(), TOO_SLOW, "is it the right host and port"];
        refused(&url, ErrorKind::Unavailable, &words).await?;
    }
    Ok(())
}

async fn nobody() -> Outcome {
    let port = Port::reserve()?;
    let address = port.address();
    for mode in ["disable", "prefer", "require"] {
        let url = format!("postgres://u:{SECRET}@{address}/app?sslmode={mode}");
        refused(&url, ErrorKind::Unavailable, &[&address, "cannot connect", "refused"]).await?;
    }
    let url = format!("postgres://u:{SECRET}@no-such-host.invalid/app");
    refused(&url, ErrorKind::Unavailable, &["no-such-host.invalid:5432"]).await?;
    let both = format!("postgres://u:{SECRET}@{address},{address}/app?sslmode=disable");
    refused(&both, ErrorKind::Unavailable, &["cannot connect"]).await
}
