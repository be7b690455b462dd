//! The files that a URL names: what is wrong with one is said before anything is sent.

use std::fs;

use distlock::{Error, Locks};
use distlock_testkit::servers::Certificates;

fn refused(url: &str) -> String {
    match Locks::connect(url) {
        Err(error @ Error::Url(_)) => error.to_string(),
        other => panic!("{url}: {other:?}"),
    }
}

#[test]
fn a_file_that_is_missing_or_broken_is_named() {
    let certificates = Certificates::for_loopback();
    let path = |name| certificates.path(name).display().to_string();
    for name in ["empty.pem", "broken.pem"] {
        fs::write(certificates.path(name), "").unwrap();
    }
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    fs::write(certificates.path("broken.pem"), broken).unwrap();
    let (cert, key, ca) = (path("client.pem"), path("client.key"), path("ca.pem"));
    let other = Certificates::for_loopback();
    let other_key = other.path("client.key").display().to_string();
    for scheme in ["rediss://h/", "rediss-sentinel://a,b/main", "rediss-cluster://a,b"] {
        for (query, option, file) in [
            (format!("ca={}", path("none.pem")), "ca", path("none.pem")),
            (format!("ca={}", path("empty.pem")), "ca", path("empty.pem")),
            (format!("ca={}", path("broken.pem")), "ca", path("broken.pem")),
            (format!("ca={key}"), "ca", key.clone()),
            (format!("ca={}", path("")), "ca", path("")),
            (format!("cert={}&key={key}", path("none")), "cert", path("none")),
            (format!("cert={}&key={key}", path("empty.pem")), "cert", path("empty.pem")),
            (format!("cert={cert}&key={}", path("none")), "key", path("none")),
            (format!("cert={cert}&key={cert}"), "key", cert.clone()),
            (format!("cert={cert}&key={other_key}"), "key", other_key.clone()),
        ] {
            let text = refused(&format!("{scheme}?{query}"));
            assert!(text.contains(&format!("{option} \"")), "{query}: {text}");
            assert!(text.contains(&file), "{query}: {text}");
        }
        assert!(Locks::connect(&format!("{scheme}?ca={ca}&cert={cert}&key={key}")).is_ok());
    }
}

#[test]
fn options_that_make_no_sense_together_are_refused() {
    let certificates = Certificates::for_loopback();
    let (ca, cert) = (certificates.query(), certificates.path("client.pem"));
    for (url, says) in [
        (format!("rediss://h/?cert={}", cert.display()), "key="),
        (format!("rediss://h/?key={}", cert.display()), "cert="),
        (format!("redis://h/?{ca}"), "rediss://"),
        (format!("redis-cluster://h?{ca}"), "rediss-cluster://"),
        (format!("redis-sentinel://h/main?{ca}"), "rediss-sentinel://"),
        ("rediss://h/#insecure".to_owned(), "fragment"),
    ] {
        let text = refused(&url);
        assert!(text.contains(says), "{url}: {text}");
    }
}
