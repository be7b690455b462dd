//! A quorum as a URL: `quorum:?node=redis://a&node=redis://b&node=redis://c`.

use std::sync::Arc;
use std::time::Duration;

use distlock_core::{Backend, Invalid, Journal};

use crate::journal::Journals;
use crate::{Quorum, QuorumOptions};

/// A store that a URL leads to, and the journal that it keeps, if it can.
pub type OpenedNode = (Arc<dyn Backend>, Option<Arc<dyn Journal>>);

/// Opens the quorum that a URL names; `open_node` opens the URL of each node. Sends nothing yet.
/// The quorum has a journal if every node has one.
///
/// What is special in the URL of a node is percent-encoded: `&` as `%26`, `%` as `%25`.
///
/// # Errors
///
/// [`Invalid`] if the URL or one of its options cannot be used, or a node cannot.
pub fn open(
    url: &str,
    mut open_node: impl FnMut(&str) -> Result<OpenedNode, Invalid>,
) -> Result<(Quorum, Option<Arc<dyn Journal>>), Invalid> {
    let config = QuorumConfig::parse(url)?;
    let (mut nodes, mut journals) = (Vec::new(), Vec::new());
    for url in &config.nodes {
        let name = name_of(url);
        if url.starts_with("quorum:") {
            return Err(Invalid::new("node", name, "must not be a quorum itself"));
        }
        let (backend, journal) = open_node(url)?;
        nodes.push((name, backend));
        journals.extend(journal);
    }
    let all = journals.len() == nodes.len();
    let journal = all.then(|| Arc::new(Journals::new(journals)) as Arc<dyn Journal>);
    Ok((Quorum::with_options(nodes, config.options)?, journal))
}

/// What the URL of a quorum says.
#[derive(Debug)]
struct QuorumConfig {
    /// The URLs of the nodes. They may contain secrets.
    nodes: Vec<String>,
    options: QuorumOptions,
}

impl QuorumConfig {
    fn parse(url: &str) -> Result<Self, Invalid> {
        let rest = url.strip_prefix("quorum:").unwrap_or_default();
        let query = rest.trim_start_matches('/').strip_prefix('?').ok_or_else(|| {
            let why = "must be like quorum:?node=redis://a&node=redis://b&node=redis://c";
            Invalid::new("URL", "(hidden)", why)
        })?;
        let mut config = Self { nodes: Vec::new(), options: QuorumOptions::default() };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decode(value)?;
            let options = &mut config.options;
            match name {
                "node" => config.nodes.push(value),
                "persistent" => options.persistent = yes_or_no(&value)?,
                "max_ttl_ms" => options.max_ttl = millis("max_ttl_ms", &value)?,
                "node_timeout_ms" => options.node_timeout = millis("node_timeout_ms", &value)?,
                _ => {
                    let why = "is not an option of this URL; known are node, persistent, \
                               max_ttl_ms, node_timeout_ms";
                    return Err(Invalid::new("URL option", name, why));
                }
            }
        }
        Ok(config)
    }
}

/// The name of a node: its URL without secrets and options, the same however it is spelled.
fn name_of(url: &str) -> String {
    let plain = url.split('?').next().unwrap_or_default();
    let (scheme, rest) = plain.split_once("://").unwrap_or(("", plain));
    let end = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host).to_lowercase();
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| {
        !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
    });
    let is_redis = matches!(scheme, "redis" | "rediss") && !host.is_empty();
    let port = if is_redis && !has_port { ":6379" } else { "" };
    format!("{scheme}://{host}{port}{}", path.trim_end_matches('/'))
}

fn yes_or_no(value: &str) -> Result<bool, Invalid> {
    match value {
        "true" | "yes" | "1" | "" => Ok(true),
        "false" | "no" | "0" => Ok(false),
        _ => Err(Invalid::new("persistent", value, "must be true or false")),
    }
}

fn millis(what: &'static str, value: &str) -> Result<Duration, Invalid> {
    match value.parse() {
        Ok(ms) => Ok(Duration::from_millis(ms)),
        Err(_) => Err(Invalid::new(what, value, "must be a number of milliseconds")),
    }
}

fn decode(text: &str) -> Result<String, Invalid> {
    let refuse = || Invalid::new("URL", "(hidden)", "has a % that is not followed by two digits");
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.bytes());
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let (high, low) = (digit().ok_or_else(refuse)?, digit().ok_or_else(refuse)?);
        bytes.push(u8::try_from(high * 16 + low).map_err(|_| refuse())?);
    }
    String::from_utf8(bytes).map_err(|_| refuse())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_and_options_are_read() {
        let url = "quorum:?node=redis://a/?namespace=x&node=redis://:p%2540ss@b%3Fdb=1%26user=u\
                   &node=redis://c&persistent=true&max_ttl_ms=90000&node_timeout_ms=250";
        let spec = QuorumConfig::parse(url).unwrap();
        let nodes = ["redis://a/?namespace=x", "redis://:p%40ss@b?db=1&user=u", "redis://c"];
        assert_eq!(spec.nodes, nodes);
        let options = QuorumOptions::default().persistent(true);
        let options = options.max_ttl(Duration::from_secs(90));
        assert_eq!(spec.options, options.node_timeout(Duration::from_millis(250)));
    }

    #[test]
    fn what_cannot_be_read_is_refused_and_no_secret_shown() {
        for url in [
            "quorum:redis://:s3cret@a",
            "quorum:?node=redis://:s3cret@a%2",
            "quorum:?node=redis://:s3cret@a&ttl=3",
            "quorum:?persistent=maybe",
            "quorum:?max_ttl_ms=long",
        ] {
            let refused = QuorumConfig::parse(url).unwrap_err().to_string();
            assert!(!refused.contains("s3cret"), "{refused}");
        }
    }

    #[test]
    fn a_name_has_no_secret_and_one_spelling() {
        for (url, name) in [
            ("redis://:s3cret@Host", "redis://host:6379"),
            ("redis://u:p@host:6379/", "redis://host:6379"),
            ("redis://host:7000/2?namespace=x", "redis://host:7000/2"),
            ("redis+unix:///run/r.sock", "redis+unix:///run/r.sock"),
        ] {
            assert_eq!(name_of(url), name, "{url}");
        }
    }
}
