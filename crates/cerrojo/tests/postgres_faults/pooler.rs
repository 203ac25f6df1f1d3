//! Through PgBouncer.

use cerrojo::{ErrorKind, LeaseState};
use cerrojo_testbed::{PgBouncer, PgBouncerBuilder, Proxy};
use libtest_mimic::Trial;

use crate::{
    heard::warnings,
    listening::{WARNING, enters, on_a_thread, until_hearing, until_warned},
    looks::Looks,
    site::{
        LONG, Locks, Outcome, ROLE, Shared, Site, connect, goes_on, is_lost, kind, ttl, until,
        waiter, works,
    },
};

pub(crate) fn trials(shared: &Shared) -> Vec<Trial> {
    vec![
        shared.trial("behind_a_pooler_waiters_poll_and_a_warning_comes_once", deaf),
        shared.trial("past_a_pooler_waiters_are_told", past),
        shared.trial("a_pooler_by_session_lets_waiters_be_told", by_session),
        shared.trial("a_pool_of_one_connection_serves_all", pool_of_one),
        shared.trial("nothing_of_ours_stays_on_a_pooled_connection", nothing_stays),
        shared.trial("a_pooler_that_restarts_loses_nothing", restarted),
        shared.trial("a_pooler_stopped_for_two_ttls_loses_the_lock_and_all_works_again", stopped),
        shared.trial("connections_of_a_pooler_that_the_server_ends_are_made_anew", ended_by_server),
    ]
}

struct Pool {
    site: Site,
    bouncer: PgBouncer,
}

impl Pool {
    fn start(
        site: Site,
        settings: impl FnOnce(PgBouncerBuilder) -> PgBouncerBuilder,
    ) -> Outcome<Self> {
        let bouncer = settings(site.pooler()).start()?;
        Ok(Self { site, bouncer })
    }

    fn url(&self, options: &str) -> String {
        self.site.url_of(ROLE, &self.bouncer.address(), options)
    }

    async fn locks(&self, options: &str) -> cerrojo::Result<Locks> {
        connect(&self.url(options)).await
    }
}

async fn deaf(site: Site) -> Outcome {
    let pool = Pool::start(site, |it| it)?;
    let said = on_a_thread(move || {
        warnings(move |heard| async move {
            let (deaf, locks) = (pool.locks("").await?, pool.site.direct().await?);
            let holder = locks.acquire("b").ttl(ttl(60_000)).await?;
            let polls = waiter(deaf.clone(), "b", 3_000);
            until_warned(&heard).await?;
            for _ in 0..3 {
                enters(&pool.site, &locks, &deaf).await?;
            }
            until_hearing(&pool.site, 0).await?;
            holder.release().await?;
            Ok(polls.await??.release().await?)
        })
    })
    .await?;
    assert_eq!(said.matches(WARNING).count(), 1, "{said}");
    assert!(said.contains("listen=HOST:PORT"), "{said}");
    Ok(())
}

/// Whether it is told shows in what it says in the line.
async fn told(site: &Site, locks: &Locks, waits: &Locks) -> Outcome {
    let holder = locks.acquire("b").ttl(ttl(60_000)).await?;
    let waiting = waiter(waits.clone(), "b", 3_000);
    until_hearing(site, 1).await?;
    holder.release().await?;
    waiting.await??.release().await?;
    enters(site, locks, waits).await
}

async fn past(site: Site) -> Outcome {
    let pool = Pool::start(site, |it| it)?;
    let said = on_a_thread(move || {
        warnings(move |_| async move {
            let hears = pool.locks(&format!("listen={}", pool.site.server.address())).await?;
            told(&pool.site, &pool.locks("listen=no").await?, &hears).await
        })
    })
    .await?;
    assert_eq!(said, "");
    Ok(())
}

async fn by_session(site: Site) -> Outcome {
    let pool = Pool::start(site, |it| it.session_mode().pool_size(8))?;
    told(&pool.site, &pool.site.direct().await?, &pool.locks("").await?).await
}

async fn pool_of_one(site: Site) -> Outcome {
    let pool = Pool::start(site, |it| it.pool_size(1))?;
    let (locks, others) = (pool.locks("").await?, pool.locks("").await?);
    let guard = locks.acquire("held").ttl(ttl(9_000)).wait(LONG).await?;
    let waiting = waiter(others.clone(), "held", 3_000);
    let asking = (0..20).map(|number| {
        let locks = if number % 2 == 0 { locks.clone() } else { others.clone() };
        tokio::spawn(async move { works(&locks, &format!("n{}", number / 2)).await })
    });
    for asking in asking.collect::<Vec<_>>() {
        asking.await??;
    }
    goes_on(&guard).await?;
    guard.release().await?;
    waiting.await??.release().await?;
    assert_eq!(pool.site.connections().await?, 1);
    Ok(())
}

/// What a session has that others would meet: by the one connection that all share.
const LEFT: &str = "SELECT format('%s prepared, %s cursors, %s advisory locks, %s channels, %s temporary, set: %s',
    (SELECT count(*) FROM pg_prepared_statements),
    (SELECT count(*) FROM pg_cursors WHERE name <> ''),
    (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()),
    (SELECT count(*) FROM pg_listening_channels()),
    pg_my_temp_schema(),
    (SELECT string_agg(name, ' ') FROM pg_settings WHERE source = 'session' AND name <> ALL ($${POOLERS}$$)))";
/// What the pooler itself sets for its clients.
const POOLERS: &str =
    "{application_name,client_encoding,DateStyle,TimeZone,standard_conforming_strings}";

async fn nothing_stays(site: Site) -> Outcome {
    let pool = Pool::start(site, |it| it.pool_size(1))?;
    let (locks, others) = (pool.locks("").await?, pool.locks("").await?);
    works(&locks, "a").await?;
    let holder = locks.acquire("b").ttl(ttl(60_000)).wait(LONG).await?;
    let waiting = waiter(others.clone(), "b", 3_000);
    pool.site.until_waiting("b", 1).await?;
    locks.list(None, 10).await?;
    locks.prune().await?;
    assert_eq!(kind(locks.try_acquire("b").await), Some(ErrorKind::Contended));
    holder.release().await?;
    waiting.await??.release().await?;
    let wanted = "0 prepared, 0 cursors, 0 advisory locks, 0 channels, 0 temporary, set: ";
    let url = pool.bouncer.url(ROLE, "app");
    // Until it knows that it does not hear.
    let stranger = Looks::new(url);
    let left = LEFT.replace("{POOLERS}", POOLERS);
    until(wanted, async || Ok(stranger.ask(&left).await? == wanted)).await?;
    assert_eq!(pool.site.connections().await?, 1);
    Ok(())
}

async fn restarted(site: Site) -> Outcome {
    let pool = Pool::start(site, |it| it)?;
    let (locks, others) = (pool.locks("call_limit_ms=500").await?, pool.locks("").await?);
    let guard = locks.acquire("a").ttl(ttl(9_000)).await?;
    let waiting = waiter(others, "a", 9_000);
    pool.site.until_waiting("a", 1).await?;
    for kill in [false, true] {
        if kill {
            pool.bouncer.kill()?;
        }
        pool.bouncer.restart()?;
        goes_on(&guard).await?;
    }
    assert!(!waiting.is_finished());
    guard.release().await?;
    waiting.await??.release().await?;
    works(&locks, "a").await
}

async fn stopped(site: Site) -> Outcome {
    let pool = Pool::start(site, |it| it)?;
    let (locks, others) = (pool.locks("call_limit_ms=500").await?, pool.site.direct().await?);
    let guard = locks.acquire("a").ttl(ttl(3_000)).wait(LONG).await?;
    goes_on(&guard).await?;
    pool.bouncer.freeze()?;
    is_lost(&guard).await?;
    let next = others.acquire("a").ttl(ttl(60_000)).wait(LONG).await?;
    assert!(next.token() > guard.token());
    let refused = kind(locks.try_acquire("b").await);
    assert!(matches!(refused, Some(ErrorKind::Unavailable | ErrorKind::Indeterminate)));
    pool.bouncer.thaw()?;
    works(&locks, "b").await?;
    assert_eq!(kind(guard.release().await), Some(ErrorKind::Lost));
    assert_eq!(next.state(), LeaseState::Held);
    next.release().await?;
    works(&locks, "a").await
}

/// With the pooler between: it hangs up on whoever was being served, and passes others on.
async fn ended_by_server(site: Site) -> Outcome {
    let way = Proxy::start(site.server.port())?;
    let by = way.port();
    let pool = Pool::start(site, |it| it.by_port(by))?;
    let locks = pool.locks("call_limit_ms=1000").await?;
    let guard = locks.acquire("a").ttl(ttl(6_000)).wait(LONG).await?;
    for _ in 0..3 {
        assert!(pool.site.cut_by_server()? > 0);
        goes_on(&guard).await?;
    }
    for _ in 0..3 {
        way.reset()?;
        goes_on(&guard).await?;
    }
    guard.release().await?;
    until("few connections", async || Ok(pool.site.connections().await? <= 4)).await?;
    works(&locks, "a").await
}
