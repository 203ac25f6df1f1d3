//! TLS with the meanings of `sslmode` that PostgreSQL's users know.

use std::{
    io,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
};

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{
        CertificateDer, PrivateKeyDer, ServerName, UnixTime,
        pem::{self, PemObject},
    },
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::error::PgError;

/// How much of TLS is asked for. The names are libpq's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Disable,
    /// Only if the server does not let us in without.
    Allow,
    /// If the server offers it.
    Prefer,
    /// Encrypted, but whoever answers is believed; with a root certificate the same as verify-ca.
    Require,
    /// Certified by one whom we trust.
    VerifyCa,
    /// And for this very host.
    VerifyFull,
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "disable" => Self::Disable,
            "allow" => Self::Allow,
            "prefer" => Self::Prefer,
            "require" => Self::Require,
            "verify-ca" => Self::VerifyCa,
            "verify-full" => Self::VerifyFull,
            _ => {
                return Err(
                    "`sslmode` is disable, allow, prefer, require, verify-ca or verify-full".into(),
                );
            }
        })
    }
}

/// Files in PEM form; without a root those that the system trusts.
#[derive(Clone, Debug)]
pub(super) struct Tls {
    pub(super) mode: Mode,
    pub(super) root: Option<PathBuf>,
    pub(super) client: Option<(PathBuf, PathBuf)>,
}

impl Tls {
    /// What the driver makes connections with; not used where the mode is to have none.
    pub(super) fn connector(&self) -> Result<MakeRustlsConnect, PgError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(PgError::Tls)?
            .dangerous()
            .with_custom_certificate_verifier(self.verifier(provider)?);
        let config = match &self.client {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => builder
                .with_client_auth_cert(certificates(cert)?, private_key(key)?)
                .map_err(PgError::Tls)?,
        };
        Ok(MakeRustlsConnect::new(config))
    }

    fn verifier(&self, provider: Arc<CryptoProvider>) -> Result<Arc<Verifier>, PgError> {
        let checks_chain = match self.mode {
            Mode::VerifyCa | Mode::VerifyFull => true,
            Mode::Require => self.root.is_some(),
            Mode::Disable | Mode::Allow | Mode::Prefer => false,
        };
        let chain = match checks_chain {
            false => None,
            true => Some(
                WebPkiServerVerifier::builder_with_provider(
                    self.roots()?.into(),
                    Arc::clone(&provider),
                )
                .build()
                .map_err(|error| PgError::Roots(error.to_string()))?,
            ),
        };
        Ok(Arc::new(Verifier { chain, checks_name: self.mode == Mode::VerifyFull, provider }))
    }

    fn roots(&self) -> Result<RootCertStore, PgError> {
        let mut roots = RootCertStore::empty();
        let certificates = match &self.root {
            Some(path) => certificates(path)?,
            None => rustls_native_certs::load_native_certs().certs,
        };
        roots.add_parsable_certificates(certificates);
        Ok(roots)
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, PgError> {
    let read = |error| unreadable(path, error);
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).map_err(read)?.collect();
    found.map_err(read)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, PgError> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| unreadable(path, error))
}

fn unreadable(path: &Path, error: pem::Error) -> PgError {
    let error = match error {
        pem::Error::Io(error) => error,
        error => io::Error::other(error.to_string()),
    };
    PgError::Pem { path: path.to_owned(), error }
}

/// Checks what the mode asks for. That the other side has the certificate's key is always checked.
#[derive(Debug)]
struct Verifier {
    chain: Option<Arc<WebPkiServerVerifier>>,
    checks_name: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(chain) = &self.chain else {
            return Ok(ServerCertVerified::assertion());
        };
        let checked =
            chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match checked {
            // The name is looked at last.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.checks_name => Ok(ServerCertVerified::assertion()),
            checked => checked,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            cert,
            signed,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            cert,
            signed,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
