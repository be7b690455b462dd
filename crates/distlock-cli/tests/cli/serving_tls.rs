//! `distlock serve --tls-cert`: what curl accepts, and what the service accepts.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use rustix::process::Signal;

use crate::serving::Serving;
use crate::support::*;

/// Certificates in a folder, made by openssl.
struct Authority<'a> {
    folder: &'a Folder,
    name: &'a str,
}

impl<'a> Authority<'a> {
    fn new(folder: &'a Folder, name: &'a str) -> Self {
        let authority = Self { folder, name };
        authority.openssl(&format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
             -subj /CN={name} -keyout {name}.key -out {name}.pem"
        ));
        authority
    }

    /// Signs a certificate for loopback under a name: `NAME.pem` and `NAME.key`.
    fn sign(&self, name: &str) {
        let ca = self.name;
        self.openssl(&format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN={name} \
             -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout {name}.key -out {name}.csr"
        ));
        self.openssl(&format!(
            "x509 -req -in {name}.csr -CA {ca}.pem -CAkey {ca}.key -CAcreateserial -days 2 \
             -copy_extensions copy -out {name}.pem"
        ));
        let key = self.folder.path(&format!("{name}.key"));
        fs::set_permissions(key, Permissions::from_mode(0o600)).unwrap();
    }

    fn openssl(&self, line: &str) {
        let mut command = Command::new("openssl");
        let done = command.args(line.split_whitespace()).current_dir(self.folder.path("")).output();
        let done = done.expect("openssl is installed");
        assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
    }

    fn file(&self, name: &str) -> String {
        self.folder.path(name).display().to_string()
    }
}

fn flags(authority: &Authority<'_>, more: &str) -> String {
    let (cert, key) = (authority.file("server.pem"), authority.file("server.key"));
    format!("--listen 127.0.0.1:0 --tls-cert {cert} --tls-key {key} {more}")
}

/// What curl exits with if it does not trust the certificate.
const UNTRUSTED: i32 = 60;

#[test]
fn a_client_that_trusts_the_authority_is_served_and_no_other() {
    let folder = Folder::new();
    let (ours, other) = (Authority::new(&folder, "ours"), Authority::new(&folder, "other"));
    ours.sign("server");
    let locker = on(&some()).inside(&folder);
    let mut serving = Serving::with(&locker, &folder, &flags(&ours, ""));
    assert!(serving.url.starts_with("https://127.0.0.1:"), "{}", serving.url);
    let (trusted, foreign) = (ours.file("ours.pem"), other.file("other.pem"));
    let health = format!("{}/health", serving.url);
    curl(&["--cacert", &trusted, &health]).code(0).shows("distributed-lock");
    curl(&["--cacert", &foreign, &health]).code(UNTRUSTED);
    let port = serving.url.rsplit(':').next().unwrap().to_owned();
    let (elsewhere, wrong) =
        (format!("wrong.example:{port}:127.0.0.1"), format!("https://wrong.example:{port}/health"));
    curl(&["--cacert", &trusted, "--resolve", &elsewhere, &wrong]).code(UNTRUSTED);
    let plain = curl(&[&format!("http://127.0.0.1:{port}/health")]);
    assert_ne!(plain.status.code(), Some(0), "it answers without TLS");

    // A lease is taken, found again and given back on connections of their own.
    let id = "0123456789abcdef0123456789abcdef";
    let url = format!("{}/api/v1/locks/over-tls/lease", serving.url);
    let body = format!("{{\"leaseId\":\"{id}\",\"ttlMs\":60000}}");
    let json = "content-type: application/json";
    let ask = ["--cacert", &trusted, "-X", "POST", "-H", json, "-d", &body];
    let granted = curl(&[&ask[..], &[&format!("{url}s")]].concat()).code(0).json();
    assert!(granted["fence"].is_u64(), "{granted}");
    locker.run("status --exit-code over-tls").code(75);
    let header = format!("Lease-Id: {id}");
    let status = ["--cacert", &trusted, "-w", "%{http_code}", "-o", "/dev/null", "-H", &header];
    curl(&[&status[..], &["-X", "PUT", &url]].concat()).code(0).prints("200");
    curl(&[&status[..], &["-X", "DELETE", &url]].concat()).code(0).prints("204");

    // A new certificate is taken up without a restart.
    other.sign("server");
    serving.signal(Signal::HUP);
    serving.until_says("certificate again");
    curl(&["--cacert", &trusted, &health]).code(UNTRUSTED);
    curl(&["--cacert", &foreign, &health]).code(0);
    assert_eq!(serving.stop().0, Some(0));
}

#[test]
fn a_client_certificate_is_required_where_an_authority_for_clients_is_given() {
    let folder = Folder::new();
    let (ours, other) = (Authority::new(&folder, "ours"), Authority::new(&folder, "other"));
    ours.sign("server");
    ours.sign("client");
    other.sign("stranger");
    let locker = on(&some()).inside(&folder);
    let trusted = ours.file("ours.pem");
    let more = format!("--client-ca {trusted}");
    let serving = Serving::with(&locker, &folder, &flags(&ours, &more));
    let health = format!("{}/health", serving.url);
    let with = |name: &str| {
        let (cert, key) = (ours.file(&format!("{name}.pem")), ours.file(&format!("{name}.key")));
        curl(&["--cacert", &trusted, "--cert", &cert, "--key", &key, &health])
    };
    with("client").code(0).shows("distributed-lock");
    assert_ne!(with("stranger").status.code(), Some(0));
    let bare = curl(&["--cacert", &trusted, &health]);
    assert_ne!(bare.status.code(), Some(0), "{}", bare.stdout);
    assert_eq!(bare.stdout, "");
    assert_eq!(serving.stop().0, Some(0));
}

#[test]
fn files_that_cannot_serve_are_refused_by_name() {
    let folder = Folder::new();
    let ours = Authority::new(&folder, "ours");
    ours.sign("server");
    ours.sign("client");
    let serve = |cert: &str, key: &str| {
        let (cert, key) = (ours.file(cert), ours.file(key));
        on(&some()).run(&format!("serve --listen 127.0.0.1:0 --tls-cert {cert} --tls-key {key}"))
    };
    serve("nowhere.pem", "server.key").code(78).says("nowhere.pem");
    serve("server.key", "server.key").code(78).says("no certificate");
    serve("server.pem", "server.pem").code(77).says("chmod 600");
    serve("server.pem", "client.key").code(78).says("client.key");
    fs::set_permissions(folder.path("server.key"), Permissions::from_mode(0o644)).unwrap();
    serve("server.pem", "server.key").code(77).says("chmod 600");
    on(&some()).run("serve --tls-cert a.pem").code(64).says("--tls-key");
}
