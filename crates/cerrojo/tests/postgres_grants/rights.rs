//! Least privileges: what a role may do that uses the locks, and what others are told.

use cerrojo::{Break, ErrorKind, backend::postgres::Postgres};
use tokio_postgres::NoTls;

use crate::site::{LONG, Outcome, ROLE, Site, ttl, until};

/// Those of the functions that users call.
const CALLED: [&str; 9] =
    ["about", "acquire", "break", "guard", "holder", "holders", "prune", "release", "renew"];

pub(crate) async fn a_role_that_init_names_can_do_all_that_locks_can(site: Site) -> Outcome {
    let (store, locks) = (site.store().await?, site.locks().await?);
    let guard = locks.acquire("a").ttl(ttl(1_000)).await?;
    until("a renewal", async || Ok(guard.renewals() > 0)).await?;
    let (mut client, connection) = tokio_postgres::connect(&site.driver_url(), NoTls).await?;
    tokio::spawn(connection);
    store.transaction(&guard, &mut client).await?.commit().await?;
    let others = site.locks().await?;
    let waiter = tokio::spawn(async move { others.acquire("a").wait(LONG).await });
    let observer = site.session().await?;
    until("a waiter", async || Ok(observer.waiting("a").await? == 1)).await?;
    assert_eq!(locks.list(None, 10).await?.len(), 1);
    guard.release().await?;
    let guard = waiter.await??;
    assert!(locks.break_lock(guard.name(), Break::Now).await?.is_some());
    assert!(locks.holder(guard.name()).await?.is_none());
    drop(guard);
    Ok(locks.prune().await.map(drop)?)
}

pub(crate) async fn a_role_that_init_names_can_touch_nothing_but_by_what_users_call(
    site: Site,
) -> Outcome {
    assert_eq!(callable(&site, ROLE).await?, CALLED);
    let session = site.client().await?;
    let owned = "FROM pg_class WHERE relnamespace = 'cerrojo'::regnamespace AND relname LIKE";
    let relations = format!("{owned} '{}%'", site.table);
    let any = "SELECT count(*) FILTER (WHERE has_table_privilege(oid,
        'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')), count(*)";
    let tables = session.ask(&format!("{any} {relations} AND relkind = 'r'")).await?;
    assert_eq!(tables, "0|3");
    let any = "SELECT count(*) FILTER (WHERE has_sequence_privilege(oid, 'USAGE, SELECT, UPDATE')), count(*)";
    assert_eq!(session.ask(&format!("{any} {relations} AND relkind = 'S'")).await?, "0|1");
    assert_eq!(session.ask("SELECT has_schema_privilege('cerrojo', 'CREATE')").await?, "f");
    for refused in [
        "UPDATE \"cerrojo\".\"lock\" SET token = 0",
        "SELECT nextval('\"cerrojo\".\"lock_token\"')",
        "SELECT \"cerrojo\".\"lock_hand_over\"('a')",
    ] {
        let said = session.ask(refused).await.unwrap_err();
        assert!(said.message().is_some_and(|said| said.contains("42501")), "{refused}");
    }
    Ok(())
}

/// Which of the store's functions a role may call.
async fn callable(site: &crate::site::Site, role: &str) -> Outcome<Vec<String>> {
    let look = format!(
        "SELECT replace(proname, '{table}_', '') FROM pg_proc
         WHERE pronamespace = 'cerrojo'::regnamespace AND proname LIKE '{table}\\_%'
             AND has_function_privilege('{role}', oid, 'EXECUTE') ORDER BY 1",
        table = site.table
    );
    Ok(site.session().await?.ask(&look).await?.lines().map(str::to_owned).collect())
}

pub(crate) async fn a_role_that_init_does_not_name_is_told_what_to_do(site: Site) -> Outcome {
    let role = site.new_role()?;
    assert!(callable(&site, &role).await?.is_empty());
    let error = Postgres::connect(&site.url_of(&role)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("cerrojo store init --grant"), "{error}");
    let error = Postgres::builder(&site.url_of(&role)).schema("another").init().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    // A role of its own needs no more than CREATE on the database.
    site.server.superuser_sql(&format!("GRANT CREATE ON DATABASE app TO {role}"))?;
    let own = || Postgres::builder(&site.url_of(&role)).schema(&site.table);
    own().init().await?;
    Ok(own().connect().await.map(drop)?)
}
