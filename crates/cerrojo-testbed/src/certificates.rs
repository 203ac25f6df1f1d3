//! A throw-away certificate authority.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use tempfile::TempDir;

/// An authority of its own, and what it signed: a certificate for a server named `localhost` or 127.0.0.1, and
/// one for a client. PEM files in a temporary folder that goes with the last copy of this.
#[derive(Clone, Debug)]
pub struct Certificates {
    folder: Arc<TempDir>,
}

impl Certificates {
    /// Makes all of them anew.
    ///
    /// # Errors
    ///
    /// When a file cannot be written.
    pub fn new() -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("testbed-certificates-").tempdir()?;
        let authority = authority().map_err(io::Error::other)?;
        let made = Self { folder: Arc::new(folder) };
        fs::write(made.authority(), authority.pem())?;
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        made.sign(&authority, "server", &names)?;
        made.sign(&authority, "client", &[])?;
        Ok(made)
    }

    /// The authority's certificate: what both sides trust.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.path("authority.pem")
    }

    /// The server's certificate.
    #[must_use]
    pub fn server(&self) -> PathBuf {
        self.path("server.pem")
    }

    /// The server's key.
    #[must_use]
    pub fn server_key(&self) -> PathBuf {
        self.path("server.key")
    }

    /// The client's certificate.
    #[must_use]
    pub fn client(&self) -> PathBuf {
        self.path("client.pem")
    }

    /// The client's key.
    #[must_use]
    pub fn client_key(&self) -> PathBuf {
        self.path("client.key")
    }

    fn sign(&self, by: &Authority, name: &str, names: &[String]) -> io::Result<()> {
        let (certificate, key) = signed(by, name, names).map_err(io::Error::other)?;
        fs::write(self.path(format!("{name}.pem")), certificate)?;
        fs::write(self.path(format!("{name}.key")), key)
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(name)
    }
}

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Result<Authority, rcgen::Error> {
    let mut wanted = params("testbed authority", &[])?;
    wanted.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    wanted.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    CertifiedIssuer::self_signed(wanted, KeyPair::generate()?)
}

/// Certificate and key. Good for both sides of a connection, since a replica shows its server's.
fn signed(by: &Authority, name: &str, names: &[String]) -> Result<(String, String), rcgen::Error> {
    let mut wanted = params(name, names)?;
    wanted.use_authority_key_identifier_extension = true;
    wanted.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    wanted.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate()?;
    Ok((wanted.signed_by(&key, by)?.pem(), key.serialize_pem()))
}

fn params(name: &str, names: &[String]) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}
