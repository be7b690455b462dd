//! Certificates of a test's own: an authority, and what it signs for a server and for a client.

use std::fs;
use std::path::PathBuf;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
};

use super::folder::TempFolder;

/// PEM files of a new authority, of a server and of a client. They go with this value.
#[derive(Debug)]
pub struct Certificates {
    folder: TempFolder,
}

impl Certificates {
    /// A server that is `127.0.0.1` and `localhost`.
    ///
    /// # Panics
    ///
    /// If the files cannot be written.
    pub fn for_loopback() -> Self {
        Self::for_names(&["127.0.0.1", "localhost"])
    }

    /// A server of these names.
    ///
    /// # Panics
    ///
    /// As [`for_loopback`](Self::for_loopback), and if a name cannot be in a certificate.
    pub fn for_names(names: &[&str]) -> Self {
        let made = Self { folder: TempFolder::new() };
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.distinguished_name = common_name("authority of a test");
        let key = KeyPair::generate().expect("keys can be made");
        let authority = CertifiedIssuer::self_signed(authority, key).expect("a sound authority");
        made.write("ca.pem", &authority.pem());
        made.sign("server", names, &authority);
        made.sign("client", &["client"], &authority);
        made
    }

    fn sign(&self, name: &str, names: &[&str], authority: &CertifiedIssuer<'_, KeyPair>) {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("sound names");
        params.distinguished_name = common_name(name);
        let key = KeyPair::generate().expect("keys can be made");
        let signed = params.signed_by(&key, authority).expect("the authority signs");
        self.write(&format!("{name}.pem"), &signed.pem());
        self.write(&format!("{name}.key"), &key.serialize_pem());
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("the folder is writable");
    }

    /// One of the files: `ca.pem`, `server.pem`, `server.key`, `client.pem`, `client.key`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The options that make a redis-server take TLS connections, without the port.
    pub(super) fn server_options(&self, clients: ClientCertificates) -> Vec<(&str, String)> {
        let path = |name| self.path(name).display().to_string();
        let clients = match clients {
            ClientCertificates::Required => "yes",
            ClientCertificates::Ignored => "no",
        };
        vec![
            ("tls-cert-file", path("server.pem")),
            ("tls-key-file", path("server.key")),
            ("tls-ca-cert-file", path("ca.pem")),
            ("tls-auth-clients", clients.to_owned()),
        ]
    }

    /// The query of a URL of a client that trusts the authority.
    pub fn query(&self) -> String {
        format!("ca={}", self.path("ca.pem").display())
    }

    /// The same of a client that also shows its own certificate.
    pub fn query_of_client(&self) -> String {
        let (cert, key) = (self.path("client.pem"), self.path("client.key"));
        format!("{}&cert={}&key={}", self.query(), cert.display(), key.display())
    }
}

/// OpenSSL takes a certificate that is called like its issuer for signed by itself.
fn common_name(name: &str) -> DistinguishedName {
    let mut made = DistinguishedName::new();
    made.push(DnType::CommonName, name);
    made
}

/// Whether a server asks clients for a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    /// Clients without one are refused.
    Required,
    /// Clients are not asked.
    Ignored,
}
