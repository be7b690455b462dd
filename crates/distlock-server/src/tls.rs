//! TLS for the service: its certificate, its key, and the authority of client certificates.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use crate::ServerError;
use crate::tokens::check_private;

/// The longest PEM file that is read.
const PEM_FILE_LEN_MAX: u64 = 1024 * 1024;

/// What TLS connections are served with.
#[derive(Clone, Debug)]
pub struct ServerTls(Arc<ServerConfig>);

impl ServerTls {
    /// Reads PEM files: the certificate with its chain, its private key, and if clients have to
    /// present a certificate, the authority that has signed theirs.
    ///
    /// # Errors
    ///
    /// [`ServerError::Tls`] if a file cannot be read, has not what it should have, or is a key that
    /// other users can read; or if certificate and key do not belong together.
    pub fn read(cert: &Path, key: &Path, client_ca: Option<&Path>) -> Result<Self, ServerError> {
        let chain = certificates(cert)?;
        let refuse = |source| ServerError::Tls { path: key.to_owned(), source };
        let file = File::open(key).map_err(refuse)?;
        check_private(&file).map_err(refuse)?;
        let pem = contents(file).map_err(refuse)?;
        let secret = PrivateKeyDer::from_pem_slice(&pem)
            .map_err(|_| refuse(io::Error::other("there is no private key in it")))?;
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| refuse(io::Error::other(error)))?;
        let builder = match client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let refuse = |source| ServerError::Tls { path: path.to_owned(), source };
                let mut roots = RootCertStore::empty();
                for certificate in certificates(path)? {
                    roots.add(certificate).map_err(|error| refuse(io::Error::other(error)))?;
                }
                let roots = Arc::new(roots);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider)
                    .build()
                    .map_err(|error| refuse(io::Error::other(error)))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder
            .with_single_cert(chain, secret)
            .map_err(|error| refuse(io::Error::other(error)))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }

    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0)
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ServerError> {
    let refuse = |source| ServerError::Tls { path: path.to_owned(), source };
    let pem = File::open(path).and_then(contents).map_err(refuse)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(refuse(io::Error::other("there is no certificate in it"))),
    }
}

fn contents(file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(PEM_FILE_LEN_MAX + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > PEM_FILE_LEN_MAX {
        true => Err(io::Error::other("it is longer than 1 MiB")),
        false => Ok(bytes),
    }
}
