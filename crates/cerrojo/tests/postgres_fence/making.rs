//! How the table is made, and who may do what with it.

use cerrojo::fence::postgres::FenceTable;

use crate::site::{Outcome, RESOURCE, ROLE, Site, stores, token};

pub(crate) async fn many_make_the_table_at_once(site: Site) -> Outcome {
    // The schema does not exist either.
    let schema = site.account();
    let mut makers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let fence = FenceTable::named(&schema, "fence")?;
        let mut client = site.client_of("postgres").await?;
        makers.spawn(async move { fence.init(&mut client, &[ROLE]).await });
    }
    while let Some(made) = makers.join_next().await {
        made??;
    }
    let mut client = site.client().await?;
    let transaction = client.transaction().await?;
    let fence = FenceTable::named(&schema, "fence")?;
    Ok(fence.admit(&transaction, stores()[0], RESOURCE, token(1)).await?)
}

pub(crate) async fn a_role_may_admit_and_nothing_else(site: Site) -> Outcome {
    let mut client = site.client().await?;
    site.pass(&mut client, 1).await?;
    let refused = site.fence.adopt(&client, stores()[1], RESOURCE).await.unwrap_err();
    assert!(refused.to_string().contains("42501"), "{refused}");
    for action in ["SELECT * FROM", "UPDATE", "DELETE FROM", "TRUNCATE"] {
        let more = if action == "UPDATE" { "SET highest = 0" } else { "" };
        let refused = client.batch_execute(&format!("{action} {} {more}", site.table())).await;
        assert_eq!(refused.unwrap_err().code().unwrap().code(), "42501", "{action}");
    }
    assert!(site.fence.init(&mut client, &[]).await.is_err());
    site.server.create_role(&format!("stranger_{}", site.account()), "")?;
    let mut stranger = site.client_of(&format!("stranger_{}", site.account())).await?;
    let refused = site.pass(&mut stranger, 2).await.unwrap_err();
    assert!(refused.to_string().contains("FenceTable::init"), "{refused}");
    Ok(())
}

pub(crate) async fn what_is_missing_is_told(site: Site) -> Outcome {
    let mut client = site.client().await?;
    for fence in [FenceTable::named("nowhere", "fence")?, FenceTable::named("fences", "nothing")?] {
        let transaction = client.transaction().await?;
        let refused = fence.admit(&transaction, stores()[0], RESOURCE, token(1)).await.unwrap_err();
        assert!(refused.to_string().contains("FenceTable::init"), "{refused}");
    }
    let reading = client.build_transaction().read_only(true).start().await?;
    let refused = site.admit(&reading, 1).await.unwrap_err();
    assert!(refused.to_string().contains("READ ONLY"), "{refused}");
    Ok(())
}

/// What a program in another language does: the file as it is, and the call.
pub(crate) async fn psql_alone_makes_it_and_passes_it(site: Site) -> Outcome {
    let file = include_str!("../../src/fence/sql/fence.sql");
    let admit = |number: &str| {
        let store = "0a1b2c3d4e5f60718293a4b5c6d7e8f9";
        let call = format!("SELECT \"cerrojo\".\"fence_admit\"('{store}', 'psql', {number})");
        site.server.superuser_sql(&format!("BEGIN; {call}; COMMIT;"))
    };
    for _ in 0..2 {
        site.server.superuser_sql(&format!("BEGIN; {file} COMMIT;"))?;
        admit("34")?;
    }
    for (number, why) in
        [("33", "34 has been admitted"), ("0", "from 1 on"), ("NULL", "null value")]
    {
        let refused = admit(number).unwrap_err().to_string();
        assert!(refused.contains(why), "{number}: {refused}");
    }
    let highest = "SELECT highest FROM cerrojo.fence WHERE resource = 'psql'";
    assert_eq!(site.server.superuser_sql(highest)?, "34");
    Ok(())
}
