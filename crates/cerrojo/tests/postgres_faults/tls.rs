//! Each `sslmode`, with what suits it and what does not.

use std::path::Path;

use cerrojo::ErrorKind;
use cerrojo_testbed::{Certificates, PostgresServer};
use libtest_mimic::Trial;

use crate::{
    faults::SECRET,
    refused::refused,
    site::{LONG, Outcome, ROLE, Shared, Site, connect, trial},
};

pub(crate) fn trials(shared: &Shared) -> Vec<Trial> {
    vec![
        trial("each_sslmode_checks_of_a_server_with_tls_what_libpq_checks", with_tls),
        shared.trial("each_sslmode_does_without_tls_or_refuses_as_libpq_does", without_tls),
        trial("a_client_certificate_that_is_missing_or_wrong_is_told", client_certificates),
        trial("certificate_files_that_are_not_there_are_named", files),
    ]
}

/// The server at 127.0.0.1 under this name.
fn url(site: &Site, name: &str, options: &str) -> String {
    let (port, password, table) = (site.server.port(), site.server.password(), &site.table);
    format!(
        "postgres:host={name} hostaddr=127.0.0.1 port={port} user={ROLE} password={password} dbname=app table={table} {options}"
    )
}

fn root(path: &Path) -> String {
    format!("sslrootcert={}", path.display())
}

async fn lets_in(site: &Site, name: &str, options: &str) -> Outcome {
    let connected = connect(&url(site, name, options)).await;
    let locks = connected.map_err(|why| format!("{name} {options}: {why}"))?;
    Ok(locks.acquire("a").wait(LONG).await?.release().await?)
}

async fn with_tls() -> Outcome {
    let (ours, strangers) = (Certificates::new()?, Certificates::new()?);
    let site = Site::of(&PostgresServer::builder().fast().tls(&ours)).await?;
    let (ca, other) = (root(&ours.authority()), root(&strangers.authority()));
    for options in ["", "sslmode=allow", "sslmode=prefer", "sslmode=require"] {
        lets_in(&site, "localhost", options).await?;
    }
    for (name, mode) in [
        ("localhost", "require"),
        ("localhost", "verify-ca"),
        ("localhost", "verify-full"),
        ("db.example.org", "require"),
        ("db.example.org", "verify-ca"),
        // Without a check nothing is looked at.
        ("db.example.org", "prefer"),
    ] {
        lets_in(&site, name, &format!("sslmode={mode} {ca}")).await?;
    }
    lets_in(&site, "localhost", &format!("sslmode=prefer {other}")).await?;
    let refused = |name: &str, options: String, words: &'static [&'static str]| {
        let url = url(&site, name, &options);
        async move { refused(&url, ErrorKind::Invalid, words).await }
    };
    refused("localhost", "sslmode=disable".into(), &["28000", "no encryption"]).await?;
    for mode in ["require", "verify-ca", "verify-full"] {
        refused(
            "localhost",
            format!("sslmode={mode} {other}"),
            &["invalid peer certificate", "sslrootcert"],
        )
        .await?;
    }
    refused("db.example.org", format!("sslmode=verify-full {ca}"), &["not valid for name"]).await?;
    for mode in ["verify-ca", "verify-full"] {
        // Nobody's system trusts it.
        refused("localhost", format!("sslmode={mode}"), &["ertificate", "sslrootcert"]).await?;
    }
    Ok(())
}

async fn without_tls(site: Site) -> Outcome {
    for options in ["", "sslmode=disable", "sslmode=allow", "sslmode=prefer"] {
        lets_in(&site, "localhost", options).await?;
    }
    for mode in ["require", "verify-ca", "verify-full"] {
        let url = url(&site, "localhost", &format!("sslmode={mode}"));
        refused(&url, ErrorKind::Invalid, &["TLS", "sslmode"]).await?;
    }
    Ok(())
}

async fn client_certificates() -> Outcome {
    let (ours, strangers) = (Certificates::new()?, Certificates::new()?);
    let site = Site::of(&PostgresServer::builder().fast().mutual_tls(&ours)).await?;
    let ca = root(&ours.authority());
    let with = |of: &Certificates| {
        let (cert, key) = (of.client(), of.client_key());
        format!("sslmode=verify-full {ca} sslcert={} sslkey={}", cert.display(), key.display())
    };
    lets_in(&site, "localhost", &with(&ours)).await?;
    let missing = url(&site, "localhost", &format!("sslmode=verify-full {ca}"));
    refused(&missing, ErrorKind::Invalid, &["certificate"]).await?;
    let strange = url(&site, "localhost", &with(&strangers));
    refused(&strange, ErrorKind::Invalid, &["UnknownCA", "sslcert"]).await?;
    site.server.create_role("other", "")?;
    let of_another = url(&site, "localhost", &with(&ours)).replace("user=client", "user=other");
    refused(&of_another, ErrorKind::Invalid, &["28P01", "user, password"]).await
}

async fn files() -> Outcome {
    let certificates = Certificates::new()?;
    let (ca, cert) = (root(&certificates.authority()), certificates.client());
    for (options, word) in [
        ("sslrootcert=/no/such/ca.pem".to_owned(), "cannot read /no/such/ca.pem: No such file"),
        (format!("{ca} sslcert=/no/cert.pem sslkey=/no/key.pem"), "cannot read /no/cert.pem"),
        (format!("{ca} sslcert={} sslkey=/no/key.pem", cert.display()), "cannot read /no/key.pem"),
        (format!("{ca} sslcert=/no/cert.pem"), "`sslcert` and `sslkey` go together"),
    ] {
        let url = format!("postgres:host=localhost user=u password={SECRET} sslmode=verify-ca");
        refused(&format!("{url} {options}"), ErrorKind::Invalid, &[word]).await?;
    }
    Ok(())
}
