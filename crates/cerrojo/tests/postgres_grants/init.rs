//! Making the tables: by many at once, again while they are in use, by hand, and not over newer ones.

use cerrojo::{ErrorKind, Locker, backend::postgres::Postgres};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::site::{LONG, Locks, Outcome, Site, soon, ttl, until};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/backend/postgres/sql");
/// How often the tables are made again while they are in use.
const TIMES: usize = 20;

pub(crate) async fn sixteen_at_once_make_one_store(site: Site) -> Outcome {
    let url = site.url_of("postgres");
    // Neither the schema nor the table is there.
    let builder = move || Postgres::builder(&url).schema(format!("s{}", site.table));
    let mut all = JoinSet::new();
    for _ in 0..16 {
        all.spawn(builder().init());
    }
    while let Some(made) = all.join_next().await {
        made??;
    }
    let locks = Locker::new(builder().connect().await?);
    Ok(locks.acquire("a").await?.release().await?)
}

pub(crate) async fn init_while_locks_are_in_use_changes_nothing_and_interrupts_nobody(
    site: Site,
) -> Outcome {
    let (locks, others, observer) =
        (site.locks().await?, site.locks().await?, site.session().await?);
    let guard = locks.acquire("a").ttl(ttl(3_000)).await?;
    let waiter = tokio::spawn(async move { others.acquire("a").wait(LONG).await });
    until("a waiter", async || Ok(observer.waiting("a").await? == 1)).await?;
    let (before, ends) = (contents(&site).await?, CancellationToken::new());
    let traffic = tokio::spawn(cycle(site.locks().await?, ends.clone()));
    for _ in 0..TIMES {
        Postgres::builder(&site.url_of("postgres")).init().await?;
    }
    let renewals = guard.renewals();
    until("a renewal", async || Ok(guard.renewals() > renewals)).await?;
    assert_eq!(contents(&site).await?, before);
    ends.cancel();
    assert!(soon("the traffic", traffic).await??? > 0);
    guard.release().await?;
    Ok(soon("the waiter", waiter).await???.release().await?)
}

/// Whatever goes wrong goes up.
async fn cycle(locks: Locks, ends: CancellationToken) -> cerrojo::Result<usize> {
    let mut cycles = 0;
    while !ends.is_cancelled() {
        locks.acquire("b").wait(LONG).await?.release().await?;
        cycles += 1;
    }
    Ok(cycles)
}

async fn contents(site: &Site) -> Outcome<String> {
    let look = "SELECT name, owner, token, granted_at, ttl_ms, waiting FROM \"cerrojo\".\"lock\" WHERE name = 'a';
        SELECT name, place, owner FROM \"cerrojo\".\"lock_waiter\"; SELECT * FROM \"cerrojo\".\"lock_store\"";
    site.session().await?.ask(look).await
}

pub(crate) async fn a_newer_schema_is_refused_and_left_alone(site: Site) -> Outcome {
    let session = site.session().await?;
    session.ask("UPDATE \"cerrojo\".\"lock_store\" SET version = 7").await?;
    let before = definitions(&site).await?;
    let refusals = [
        Postgres::connect(&site.url()).await.map(drop),
        Postgres::builder(&site.url_of("postgres")).init().await,
    ];
    for refusal in refusals {
        let error = refusal.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("schema 7"), "{error}");
    }
    assert_eq!(session.ask("SELECT version FROM \"cerrojo\".\"lock_store\"").await?, "7");
    assert_eq!(definitions(&site).await?, before);
    Ok(())
}

pub(crate) async fn the_files_applied_one_by_one_make_the_same_as_init(made: Site) -> Outcome {
    let by_hand = Site { table: format!("by_hand_{}", made.table), server: made.server.clone() };
    for file in stated_order()? {
        let text = std::fs::read_to_string(format!("{FOLDER}/{file}.sql"))?;
        let text = text.replace("\"lock", &format!("\"{}", by_hand.table));
        by_hand.server.superuser_sql(&text.replace("\"a_role\"", "client"))?;
    }
    let definitions_made = definitions(&made).await?;
    assert_eq!(definitions(&by_hand).await?, definitions_made);
    // 1 type, 3 tables and their columns, and more than that.
    assert!(definitions_made.lines().count() > 100, "{definitions_made}");
    let locks = by_hand.locks().await?;
    Ok(locks.acquire("a").await?.release().await?)
}

/// As the first of the files has it: all of them but the one that is for `init` alone, and those that are statements of the library.
fn stated_order() -> Outcome<Vec<String>> {
    let text = std::fs::read_to_string(format!("{FOLDER}/tables.sql"))?.replace("\n-- ", " ");
    let (_, behind) = text.split_once("own the store: ").ok_or("no order is stated")?;
    let (order, _) = behind.split_once("; then grant").ok_or("grant does not come last")?;
    Ok(order.split(", ").chain(["grant"]).map(str::to_owned).collect())
}

/// All that stands in the catalog of a table and what belongs to it, as if it were called `lock`.
async fn definitions(site: &Site) -> Outcome<String> {
    let table = &site.table;
    let look = format!(
        "SELECT c.relname, c.relkind, c.reloptions, c.relacl, a.attname, a.atttypid::regtype, a.attnotnull,
             pg_get_expr(d.adbin, d.adrelid), col.collname
         FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
             LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
             LEFT JOIN pg_collation col ON col.oid = a.attcollation
         WHERE c.relnamespace = 'cerrojo'::regnamespace AND c.relname LIKE '{table}%' ORDER BY c.relname, a.attnum;
         SELECT s.seqtypid::regtype, s.seqmax, s.seqcache, s.seqcycle FROM pg_sequence s JOIN pg_class c ON c.oid = s.seqrelid
         WHERE c.relname LIKE '{table}%';
         SELECT n.conname, pg_get_constraintdef(n.oid) FROM pg_constraint n JOIN pg_class c ON c.oid = n.conrelid
         WHERE c.relname LIKE '{table}%' ORDER BY 1;
         SELECT pg_get_functiondef(p.oid), p.proacl FROM pg_proc p
         WHERE p.pronamespace = 'cerrojo'::regnamespace AND p.proname LIKE '{table}\\_%'
         ORDER BY p.proname"
    );
    Ok(site.session().await?.ask(&look).await?.replace(table, "lock"))
}
