//! Servers that do not let us in, and what is no server of ours: a clear error, in time, that never shows a password.

use std::net::TcpListener;

use cerrojo::{ErrorKind, Instant, backend::redis::Redis};
use cerrojo_testbed::{Certificates, Port, RedisServer};
use libtest_mimic::Trial;

use crate::{
    faults::{SECRET, never_shown, serve},
    site::{Outcome, Site, check_error, connect, millis, trial, ttl, works},
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_wrong_or_missing_password_is_told_and_never_shown", passwords),
        trial("a_user_without_rights_is_told_which_are_needed", rights),
        trial("a_database_that_is_not_there_is_told", database),
        trial("a_replica_is_told_when_connecting_and_when_it_becomes_one", replica),
        trial("what_is_not_redis_is_told", not_redis),
        trial("what_says_nothing_is_given_up", silence),
        trial("nobody_there_is_told", nobody),
        trial("tls_that_does_not_fit_is_told", tls),
        trial("files_that_are_not_there_are_named", files),
    ]
}

/// Connecting fails in time with such an error.
async fn refused(url: &str, kind: ErrorKind, words: &[&str]) -> Outcome {
    let start = Instant::now();
    let separator = if url.contains('?') { '&' } else { '?' };
    let answer = Redis::connect(&format!("{url}{separator}call_limit_ms=1000")).await;
    let took = Instant::now().since(start);
    let error = answer.err().ok_or_else(|| format!("{url} let us in"))?;
    assert!(took < millis(4_500), "after {took:?}: {error}");
    never_shown(&error);
    check_error(&error, &[kind], words)
}

async fn passwords() -> Outcome {
    let server = RedisServer::builder()
        .password("right")
        .user("locker", "on >right ~* &* +@all")
        .user("gone", "off >right ~* &* +@all")
        .start()?;
    let address = server.address();
    let words = [address.as_str(), "user or password is wrong"];
    for login in [
        format!(":{SECRET}@"),
        format!("locker:{SECRET}@"),
        format!("nobody:{SECRET}@"),
        String::new(),
        "gone:right@".to_owned(),
    ] {
        refused(&format!("redis://{login}{address}"), ErrorKind::Invalid, &words).await?;
    }
    for login in ["", "locker"] {
        works(&connect(&format!("redis://{login}:right@{address}")).await?, "a").await?;
    }
    Ok(())
}

async fn rights() -> Outcome {
    let server = RedisServer::builder()
        .user("default", "off")
        .user("deaf", "on >p ~* &* +@all -subscribe")
        .user("elsewhere", "on >p ~* &other:* +@all")
        .user("scriptless", "on >p ~* &* +@all -eval -evalsha")
        .user("reader", "on >p ~* &* +@all -set")
        .user("keyless", "on >p ~other:* &* +@all")
        .user("mute", "on >p ~* &* +@all -info")
        .start()?;
    let address = server.address();
    let words = [address.as_str(), "docs/backends/redis.md"];
    for user in ["deaf", "elsewhere"] {
        refused(&format!("redis://{user}:p@{address}"), ErrorKind::Invalid, &words).await?;
    }
    for user in ["scriptless", "reader", "keyless"] {
        let locks = connect(&format!("redis://{user}:p@{address}")).await?;
        let error = locks.try_acquire("a").await.unwrap_err();
        check_error(&error, &[ErrorKind::Invalid], &words)
            .map_err(|why| format!("{user}: {why:?}"))?;
    }
    works(&connect(&format!("redis://mute:p@{address}")).await?, "a").await
}

async fn database() -> Outcome {
    let server = RedisServer::start()?;
    let address = server.address();
    refused(&format!("redis://{address}/99"), ErrorKind::Invalid, &[&address, "DB index"]).await?;
    refused(&format!("redis://{address}/x"), ErrorKind::Invalid, &["`x` is no database number"])
        .await?;
    let locks = connect(&format!("redis://{address}/3")).await?;
    let guard = locks.acquire("a").await?;
    let key = guard.name().clone();
    assert!(connect(&format!("redis://{address}/4")).await?.holder(&key).await?.is_none());
    Ok(guard.release().await?)
}

async fn replica() -> Outcome {
    let (site, other) = (Site::start()?, RedisServer::start()?);
    let locks = site.locks().await?;
    let held = locks.acquire("held").ttl(ttl(60_000)).await?;
    site.server.replica_of(&other)?;
    let words = [site.proxy.address(), "name the master, or let Sentinel do so".to_owned()];
    let words = words.each_ref().map(String::as_str);
    refused(&site.url(""), ErrorKind::Invalid, &words).await?;
    let error = locks.try_acquire("new").await.unwrap_err();
    check_error(&error, &[ErrorKind::Unavailable], &words)?;
    site.server.promote()?;
    works(&locks, "new").await?;
    // The replica had nothing of it.
    assert_eq!(crate::site::kind(held.release().await), Some(ErrorKind::Lost));
    Ok(())
}

async fn not_redis() -> Outcome {
    let answers: [&[u8]; 3] = [
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
        b"220 mail.example.org ESMTP\r\n",
        b"\x00\x01\x02\x03\r\n\r\n",
    ];
    for answer in answers {
        let address = serve(answer)?;
        let words = [address.as_str(), "not a Redis server"];
        refused(&format!("redis://:{SECRET}@{address}"), ErrorKind::Invalid, &words).await?;
    }
    Ok(())
}

async fn silence() -> Outcome {
    // Its queue takes connections that nobody accepts.
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    let words = [address.as_str(), "it may be stopped or slow"];
    refused(&format!("redis://:{SECRET}@{address}"), ErrorKind::Unavailable, &words).await?;
    refused(&format!("rediss://:{SECRET}@{address}"), ErrorKind::Unavailable, &words).await?;
    let sentinel = format!("redis+sentinel://{address}/main");
    refused(&sentinel, ErrorKind::Unavailable, &[&address, "it may be stopped or slow"]).await?;
    refused(&format!("redis+cluster://{address}"), ErrorKind::Unavailable, &[&address]).await
}

async fn nobody() -> Outcome {
    let port = Port::reserve()?;
    let (address, there) = (port.address(), RedisServer::start()?);
    let words = [address.as_str(), "cannot connect"];
    for scheme in ["redis", "rediss"] {
        refused(&format!("{scheme}://:{SECRET}@{address}"), ErrorKind::Unavailable, &words).await?;
    }
    refused(&format!("redis+cluster://{address}"), ErrorKind::Unavailable, &words).await?;
    refused(&format!("redis+sentinel://{address}/main"), ErrorKind::Unavailable, &words).await?;
    refused(
        "redis+unix:///no/such/socket",
        ErrorKind::Unavailable,
        &["/no/such/socket", "cannot connect"],
    )
    .await?;
    refused("redis://no-such-host.invalid", ErrorKind::Unavailable, &["no-such-host.invalid:6379"])
        .await?;
    // A server of another kind than the URL says.
    let address = there.address();
    refused(&format!("redis+cluster://{address}"), ErrorKind::Invalid, &[&address]).await?;
    refused(&format!("redis+sentinel://{address}/main"), ErrorKind::Invalid, &[&address]).await?;
    works(&connect(&format!("redis+unix://{}", there.socket().display())).await?, "a").await
}

async fn tls() -> Outcome {
    let (ours, strangers) = (Certificates::new()?, Certificates::new()?);
    let without = RedisServer::start()?;
    let plain = without.address();
    let server = RedisServer::builder().mutual_tls(&ours).start()?;
    let address = server.address();
    let ca = ours.authority().display().to_string();
    let url = |of: &Certificates, address: &str| {
        let (cert, key) = (of.client(), of.client_key());
        format!("rediss://{address}?ca={ca}&cert={}&key={}", cert.display(), key.display())
    };
    let invalid = ErrorKind::Invalid;
    works(&connect(&url(&ours, &address)).await?, "a").await?;
    refused(&url(&ours, &plain), ErrorKind::Unavailable, &[&plain, "TLS"]).await?;
    refused(&format!("redis://{address}"), ErrorKind::Unavailable, &[&address, "TLS"]).await?;
    refused(
        &format!("rediss://{address}?ca={}", strangers.authority().display()),
        invalid,
        &[&address, "certificate"],
    )
    .await?;
    refused(&format!("rediss://{address}"), invalid, &[&address, "certificate"]).await?;
    refused(&format!("rediss://{address}?ca={ca}"), invalid, &[&address, "ertificate"]).await?;
    refused(&url(&strangers, &address), invalid, &[&address]).await?;
    Ok(())
}

async fn files() -> Outcome {
    let certificates = Certificates::new()?;
    let ca = certificates.authority();
    let cases = [
        ("ca=/no/such/ca.pem".to_owned(), "cannot read /no/such/ca.pem: No such file"),
        (
            format!("ca={}&cert=/no/cert.pem&key=/no/key.pem", ca.display()),
            "cannot read /no/cert.pem",
        ),
        (format!("ca={}&cert=/no/cert.pem", ca.display()), "key"),
    ];
    for (options, word) in cases {
        refused(&format!("rediss://:{SECRET}@localhost?{options}"), ErrorKind::Invalid, &[word])
            .await?;
    }
    Ok(())
}
