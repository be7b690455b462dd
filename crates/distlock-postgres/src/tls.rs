//! TLS: rustls as the client crate wants it, and the certificate files that a URL names.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use distlock_core::Invalid;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

/// What of the server's certificate is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CertificateCheck {
    /// Nothing: this protects from eavesdropping, but not from an impostor.
    Nothing,
    /// Who signed it.
    Authority,
    /// Who signed it, and that it names the host.
    Full,
}

/// What the URL says of certificates. The files are read with every new connection, so that files
/// which an operator replaces are used without a restart.
#[derive(Clone, Debug)]
pub(super) struct PostgresTls {
    pub(super) verify: CertificateCheck,
    /// The authorities that may sign for the server; without it, those of the system.
    pub(super) ca: Option<PathBuf>,
    /// The certificate of this client and those that lead to its authority.
    pub(super) cert: Option<PathBuf>,
    /// The private key of that certificate.
    pub(super) key: Option<PathBuf>,
}

impl PostgresTls {
    /// Reads the files and names the one that cannot be used.
    pub(super) fn check(&self) -> Result<(), Invalid> {
        self.config().map(drop)
    }

    fn config(&self) -> Result<ClientConfig, Invalid> {
        let provider = Arc::new(ring::default_provider());
        let unusable = |error: rustls::Error| Invalid::new("TLS", error, "cannot be set up");
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(unusable)?;
        let verifier = CertificateVerifier {
            inner: self.authorities(&provider)?,
            verify: self.verify,
            provider,
        };
        let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
        match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                let chain = certificates("cert", cert)?;
                let secret =
                    PrivateKeyDer::from_pem_file(key).map_err(|e| refuse("key", key, &e))?;
                builder.with_client_auth_cert(chain, secret).map_err(|e| refuse("key", key, &e))
            }
            (None, None) => Ok(builder.with_no_client_auth()),
            (Some(cert), None) => {
                Err(Invalid::new("cert", cert.display(), "needs its key: add key=FILE"))
            }
            (None, Some(key)) => {
                Err(Invalid::new("key", key.display(), "needs its certificate: add cert=FILE"))
            }
        }
    }

    fn authorities(
        &self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Option<Arc<WebPkiServerVerifier>>, Invalid> {
        let mut roots = RootCertStore::empty();
        match &self.ca {
            Some(file) => {
                for certificate in certificates("ca", file)? {
                    roots.add(certificate).map_err(|error| refuse("ca", file, &error))?;
                }
            }
            None if self.verify == CertificateCheck::Nothing => return Ok(None),
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        let provider = Arc::clone(provider);
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = verifier.build();
        verifier.map(Some).map_err(|error| Invalid::new("ca", error, "name a file of authorities"))
    }
}

/// The certificates of a file, of which there is at least one.
fn certificates(what: &'static str, file: &Path) -> Result<Vec<CertificateDer<'static>>, Invalid> {
    let text = fs::read(file).map_err(|error| refuse(what, file, &error))?;
    let found = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    match found.map_err(|error| refuse(what, file, &error))? {
        none if none.is_empty() => Err(refuse(what, file, &"it contains no certificate")),
        found => Ok(found),
    }
}

fn refuse(what: &'static str, file: &Path, error: &dyn std::fmt::Display) -> Invalid {
    let why = format!("cannot be used: {error}; name a PEM file that this user can read");
    Invalid::new(what, file.display(), why)
}

/// Checks certificates as the modes of libpq do.
#[derive(Debug)]
struct CertificateVerifier {
    inner: Option<Arc<WebPkiServerVerifier>>,
    verify: CertificateCheck,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for CertificateVerifier {
    fn verify_server_cert(
        &self,
        end: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(inner) = &self.inner else { return Ok(ServerCertVerified::assertion()) };
        match inner.verify_server_cert(end, chain, name, ocsp, now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.verify == CertificateCheck::Authority => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for PostgresTls {
    type Stream = EncryptedStream<S>;
    type TlsConnect = TlsHandshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, domain: &str) -> io::Result<TlsHandshake> {
        let config = self.config().map_err(io::Error::other)?;
        // A socket of this machine has no name. It is not encrypted either.
        let name = ServerName::try_from(domain.to_owned());
        let name = name.or_else(|_| ServerName::try_from("localhost".to_owned()));
        Ok(TlsHandshake { config: Arc::new(config), name: name.map_err(io::Error::other)? })
    }
}

/// A connection that is about to be encrypted.
#[derive(Debug)]
pub(super) struct TlsHandshake {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for TlsHandshake {
    type Stream = EncryptedStream<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<EncryptedStream<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        let connected = TlsConnector::from(self.config).connect(self.name, stream);
        Box::pin(async move { connected.await.map(|stream| EncryptedStream(Box::new(stream))) })
    }
}

/// An encrypted connection.
#[derive(Debug)]
pub(super) struct EncryptedStream<S>(Box<tokio_rustls::client::TlsStream<S>>);

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for EncryptedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for EncryptedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for EncryptedStream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}
