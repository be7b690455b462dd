//! Where a store is, as messages name it: host and port or path, and never a secret.

/// A store's URL without its user, its password and its options.
pub(crate) fn name(url: &str) -> String {
    let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
    if scheme == "sqlite" && (rest.is_empty() || rest.starts_with('?')) {
        return "sqlite: (your own file)".to_owned();
    }
    let place = match (rest.split_once('@'), rest.find(['?', '#'])) {
        (None, _) => rest,
        // What follows the only @ is the host, unless a question mark before it may be part of a
        // password: then nothing is certain.
        (Some((before, host)), _) if !host.contains('@') && !before.contains(['?', '#']) => host,
        (Some(_), _) => "",
    };
    let place = place.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
    let place = place.trim_start_matches("//");
    if place.is_empty() {
        return format!("the {scheme} store");
    }
    let slashes = if rest.starts_with("//") { "//" } else { "" };
    format!("{scheme}:{slashes}{place}")
}

/// True for a store that is gone with the process: no other command sees its locks.
pub(crate) fn is_private(url: &str) -> bool {
    let place = url.split('?').next().unwrap_or_default();
    matches!(place, "memory:" | "memory://")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_named_without_its_secrets() {
        for (url, shown) in [
            ("sqlite:", "sqlite: (your own file)"),
            ("sqlite:?response_timeout_ms=5", "sqlite: (your own file)"),
            ("sqlite:/run/locks.db?journal=off", "sqlite:/run/locks.db"),
            ("sqlite:///run/locks.db", "sqlite:///run/locks.db"),
            ("redis://127.0.0.1:1/", "redis://127.0.0.1:1"),
            ("redis://:pw@h:7/2?pass=pw", "redis://h:7/2"),
            ("redis://user:p/w@h", "redis://h"),
            ("redis-sentinel://h1:1,h2:2/main", "redis-sentinel://h1:1,h2:2/main"),
            ("redis://:p?w@h", "the redis store"),
            ("redis://:p@w@h", "the redis store"),
            ("redis://h/?pass=p@w", "the redis store"),
            ("quorum:?node=redis://:pw@a&node=redis://b", "the quorum store"),
            ("nonsense", "the nonsense store"),
        ] {
            assert_eq!(name(url), shown, "{url}");
            assert!(!name(url).contains("pw"), "{url}");
        }
    }

    #[test]
    fn memory_is_private_to_a_process() {
        assert!(is_private("memory:") && is_private("memory:?journal=off"));
        assert!(!is_private("memory:x") && !is_private("sqlite:memory:"));
    }
}
