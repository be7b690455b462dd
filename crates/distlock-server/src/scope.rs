//! What a token may do.

/// One permission of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Look at every key.
    Read,
    /// Read the numbers for Prometheus.
    Metrics,
    /// Lock keys that begin with this, and look at them.
    Lock(String),
    /// Read and write Terraform states whose key begins with this.
    State(String),
    /// Everything, and break holds of others.
    Admin,
}

impl Scope {
    pub(crate) fn parse(word: &str) -> Result<Self, &'static str> {
        match (word, word.split_once(':')) {
            ("read", _) => Ok(Self::Read),
            ("metrics", _) => Ok(Self::Metrics),
            ("admin", _) => Ok(Self::Admin),
            (_, Some(("lock", prefix))) => Ok(Self::Lock(prefix.to_owned())),
            (_, Some(("state", prefix))) => Ok(Self::State(prefix.to_owned())),
            _ => Err("a scope is read, metrics, lock:<prefix>, state:<prefix> or admin"),
        }
    }
}
