//! Resources are named by any text.

use cerrojo::fence::postgres::TableError;

use crate::site::{Outcome, Site, stores, token};

pub(crate) async fn hostile_resources_are_fenced_one_to_one(site: Site) -> Outcome {
    let long = "ä".repeat(512);
    let names = [
        "a",
        "A",
        " a",
        "a ",
        "a\n",
        "á",
        "a\u{301}",
        "'",
        "''",
        "\"",
        "\\",
        "\\'",
        "$1",
        "%",
        "_",
        "NULL",
        "$$",
        "'); DROP TABLE account; --",
        "\u{202e}",
        "🔒",
        "\u{1}",
        long.as_str(),
    ];
    let mut client = site.client().await?;
    let [store, _] = stores();
    for (at, name) in names.iter().enumerate() {
        let transaction = client.transaction().await?;
        site.fence.admit(&transaction, store, name, token(10 + u64::try_from(at)?)).await?;
        transaction.commit().await?;
    }
    for (at, name) in names.iter().enumerate() {
        let number = 10 + u64::try_from(at)?;
        let transaction = client.transaction().await?;
        let refused = site.fence.admit(&transaction, store, name, token(number - 1)).await;
        let fits = |both: &cerrojo::fence::Stale| both.highest == number;
        assert!(
            matches!(&refused, Err(TableError::Stale(both)) if fits(both)),
            "{name:?}: {refused:?}"
        );
    }
    Ok(())
}

pub(crate) async fn what_cannot_name_a_resource_is_refused(site: Site) -> Outcome {
    let long = "a".repeat(1_025);
    let mut client = site.client().await?;
    for name in ["", "a\0b", long.as_str()] {
        let transaction = client.transaction().await?;
        let refused = site.fence.admit(&transaction, stores()[0], name, token(1)).await;
        assert!(matches!(refused, Err(TableError::Failed { .. })), "{name:?}: {refused:?}");
    }
    Ok(())
}
