//! The tokens that clients present: their file, their names, what each may do and until when.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};
use subtle::{ConditionallySelectable, ConstantTimeEq};

use crate::ServerError;
use crate::scope::Scope;
use crate::token_line;

/// The longest file of tokens that is read.
const TOKEN_FILE_LEN_MAX: u64 = 1024 * 1024;

/// The tokens that let clients in, each with a name and what it may do. Digests only.
#[derive(Clone, Debug, Default)]
pub struct Tokens(Vec<Arc<Token>>);

/// One token. What is kept of the secret is its SHA-256 digest.
#[derive(Clone)]
pub(crate) struct Token {
    pub(crate) digest: [u8; 32],
    pub(crate) name: String,
    pub(crate) scopes: Vec<Scope>,
    pub(crate) expires: Option<SystemTime>,
    pub(crate) ttl_max: Option<Duration>,
}

impl Token {
    pub(crate) fn has_expired(&self, now: SystemTime) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

/// Shows everything but the digest.
impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token")
            .field("name", &self.name)
            .field("scopes", &self.scopes)
            .field("expires", &self.expires)
            .field("ttl_max", &self.ttl_max)
            .finish_non_exhaustive()
    }
}

impl Tokens {
    /// Reads a file of tokens: one a line, followed by what it may do, separated by blanks.
    ///
    /// ```text
    /// # a comment
    /// 8Tq0cF2kXv7hYw3Zr5Nd  name=grafana  read
    /// Lm4pQ9sB1xUe6GtHj0Wa  name=ci  lock:jobs/ read  ttl-max=10m  expires=2030-01-31T18:00:00Z
    /// sha256:9f9f5111f7b27a781f1f1ddde5ebc2dd2b796bfc7365c9c28b548e564176929f  admin
    /// ```
    ///
    /// # Errors
    ///
    /// [`ServerError::TokenFile`] if the file cannot be read, or others than its owner may read it.
    /// [`ServerError::TokenLine`] for a line that makes no sense. The text of a line is never
    /// repeated.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ServerError> {
        let path = path.as_ref();
        let refuse = |source| ServerError::TokenFile { path: path.to_owned(), source };
        let mut text = String::new();
        let file = File::open(path).map_err(refuse)?;
        check_private(&file).map_err(refuse)?;
        file.take(TOKEN_FILE_LEN_MAX + 1).read_to_string(&mut text).map_err(refuse)?;
        if text.len() as u64 > TOKEN_FILE_LEN_MAX {
            return Err(refuse(io::Error::other("it is longer than 1 MiB")));
        }
        Self::parse(&text)
    }

    /// Reads tokens from text; see [`read`](Self::read).
    ///
    /// # Errors
    ///
    /// [`ServerError::TokenLine`] for a line without a scope, with a word that means nothing, with
    /// a token that is short or easy to guess, or with a token or a name that an earlier line has.
    pub fn parse(text: &str) -> Result<Self, ServerError> {
        let mut tokens: Vec<Arc<Token>> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let refuse = |why| ServerError::TokenLine { line: number + 1, why };
            let token = token_line::parse(line, number + 1).map_err(refuse)?;
            if tokens.iter().any(|earlier| earlier.digest == token.digest) {
                return Err(refuse("the token is already on an earlier line"));
            }
            if tokens.iter().any(|earlier| earlier.name == token.name) {
                return Err(refuse("the name is already on an earlier line"));
            }
            tokens.push(Arc::new(token));
        }
        if tokens.is_empty() {
            return Err(ServerError::TokenLine { line: 1, why: "there is no token in the file" });
        }
        Ok(Self(tokens))
    }

    /// True if there are none: clients that can connect need no token.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many tokens there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The names of the tokens, in the order of their lines.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|token| token.name.as_str())
    }

    /// The names of tokens whose expiry has passed.
    pub fn expired(&self, now: SystemTime) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |token| token.has_expired(now)).map(|token| token.name.as_str())
    }

    /// True if a token is still there, and may still do the same.
    pub(crate) fn contains(&self, token: &Token) -> bool {
        let same = |each: &Token| each.digest == token.digest && each.scopes == token.scopes;
        self.0.iter().any(|each| same(each))
    }

    /// The token that a client presents. All digests are compared, in constant time, so the time
    /// tells neither which token it was nor how much of it was right.
    pub(crate) fn find(&self, secret: &[u8]) -> Option<&Arc<Token>> {
        let digest: [u8; 32] = Sha256::digest(secret).into();
        let mut found = 0_u32;
        for (number, token) in (1_u32..).zip(&self.0) {
            found.conditional_assign(&number, token.digest.ct_eq(&digest));
        }
        self.0.get((found as usize).checked_sub(1)?)
    }
}

/// Refuses a file with secrets that other users may read or replace: as PostgreSQL does for keys,
/// 0600 or less if it is this user's own, 0640 or less if it is root's.
#[cfg(unix)]
pub(crate) fn check_private(file: &File) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    let metadata = file.metadata()?;
    let own = rustix::process::geteuid().as_raw();
    let others = match metadata.uid() {
        uid if uid == own => 0o077,
        0 => 0o037,
        uid => {
            let why = format!("it belongs to user {uid}: chown it to this user ({own}) or to root");
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
    };
    if metadata.mode() & others == 0 {
        return Ok(());
    }
    let why = format!("mode {:04o} lets other users at it: chmod 600", metadata.mode() & 0o7777);
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

#[cfg(not(unix))]
pub(crate) fn check_private(_: &File) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_lines_are_named_by_number_and_not_repeated() {
        let good = "# note\n\n0i9k8j7h6g5f4d3s read lock:a/\n q1w2e3r4t5y6u7i8 name=ci admin \n";
        let tokens = Tokens::parse(good).unwrap();
        assert_eq!(tokens.names().collect::<Vec<_>>(), ["token-3", "ci"]);
        for (line, bad) in [
            (1, "short read"),
            (2, "#\n0i9k8j7h6g5f4d3s"),
            (1, "0i9k8j7h6g5f4d3s write"),
            (1, "sha256:12 read"),
            (1, ""),
            (2, "0i9k8j7h6g5f4d3s read\n0i9k8j7h6g5f4d3s name=b admin"),
            (2, "0i9k8j7h6g5f4d3s name=a read\nq1w2e3r4t5y6u7i8 name=a admin"),
        ] {
            let refused = Tokens::parse(bad).unwrap_err().to_string();
            assert!(refused.contains(&format!("line {line}")), "{refused}");
            assert!(!refused.contains("0i9k8j7h6g5f4d3s"), "{refused}");
        }
    }

    #[test]
    fn a_digest_stands_for_its_token() {
        let digest = Sha256::digest("0i9k8j7h6g5f4d3s");
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let hashed = Tokens::parse(&format!("sha256:{hex} name=a admin")).unwrap();
        assert_eq!(hashed.find(b"0i9k8j7h6g5f4d3s").unwrap().name, "a");
        assert!(hashed.find(b"0i9k8j7h6g5f4d3S").is_none());
        let both = format!("0i9k8j7h6g5f4d3s read\nsha256:{hex} admin");
        assert!(Tokens::parse(&both).is_err(), "the same token twice");
        let plain = Tokens::parse("0i9k8j7h6g5f4d3s name=a admin").unwrap();
        assert!(!format!("{plain:?}").contains("0i9k8j"));
    }
}
