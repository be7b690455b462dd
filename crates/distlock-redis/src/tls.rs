//! TLS: the certificate files that a URL names, and the provider that rustls needs.

use std::fs;
use std::path::{Path, PathBuf};

use distlock_core::Invalid;
use redis::{ClientTlsConfig, TlsCertificates};
use rustls::RootCertStore;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

/// The files of a URL. They are read with every new connection, so that files which an operator
/// replaces are used without a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TlsFiles {
    /// The authorities that may sign for the server; without it, those of the system.
    pub(super) ca: Option<PathBuf>,
    /// The certificate of this client and those that lead to its authority.
    pub(super) cert: Option<PathBuf>,
    /// The private key of that certificate.
    pub(super) key: Option<PathBuf>,
}

impl TlsFiles {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Reads and checks the files, and names the one that cannot be used.
    pub(super) fn read(&self) -> Result<TlsCertificates, Invalid> {
        let root_cert = self.ca.as_deref().map(authorities).transpose()?;
        let client_tls = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => Some(client(cert, key)?),
            (None, None) => None,
            (Some(cert), None) => {
                return Err(Invalid::new("cert", cert.display(), "needs its key: add key=FILE"));
            }
            (None, Some(key)) => {
                let why = "needs its certificate: add cert=FILE";
                return Err(Invalid::new("key", key.display(), why));
            }
        };
        Ok(TlsCertificates { client_tls, root_cert })
    }
}

fn authorities(file: &Path) -> Result<Vec<u8>, Invalid> {
    let text = read("ca", file)?;
    let mut store = RootCertStore::empty();
    for certificate in certificates("ca", file, &text)? {
        store.add(certificate).map_err(|error| unusable("ca", file, &error))?;
    }
    Ok(text)
}

fn client(cert: &Path, key: &Path) -> Result<ClientTlsConfig, Invalid> {
    let (client_cert, client_key) = (read("cert", cert)?, read("key", key)?);
    let chain = certificates("cert", cert, &client_cert)?;
    let refuse = |error: &dyn std::fmt::Display| unusable("key", key, error);
    let secret = PrivateKeyDer::from_pem_slice(&client_key).map_err(|error| refuse(&error))?;
    CertifiedKey::from_der(chain, secret, &provider()).map_err(|error| refuse(&error))?;
    Ok(ClientTlsConfig { client_cert, client_key })
}

fn read(what: &'static str, file: &Path) -> Result<Vec<u8>, Invalid> {
    fs::read(file).map_err(|error| unusable(what, file, &error))
}

/// The certificates of a file, of which there is at least one.
fn certificates(
    what: &'static str,
    file: &Path,
    text: &[u8],
) -> Result<Vec<CertificateDer<'static>>, Invalid> {
    let found = CertificateDer::pem_slice_iter(text).collect::<Result<Vec<_>, _>>();
    match found.map_err(|error| unusable(what, file, &error))? {
        none if none.is_empty() => Err(unusable(what, file, &"it contains no certificate")),
        found => Ok(found),
    }
}

fn unusable(what: &'static str, file: &Path, error: &dyn std::fmt::Display) -> Invalid {
    let why = format!("cannot be used: {error}; name a PEM file that this user can read");
    Invalid::new(what, file.display(), why)
}

fn provider() -> CryptoProvider {
    ring::default_provider()
}

/// Gives rustls a provider of cryptography. Without one it panics with the first connection, and
/// so it does where the features of the program's dependencies leave it two to choose from. A
/// provider that the program has installed stays.
pub(super) fn install_provider() {
    if CryptoProvider::get_default().is_none() {
        // Another thread may have been quicker, which is as good.
        let _ = provider().install_default();
    }
}
