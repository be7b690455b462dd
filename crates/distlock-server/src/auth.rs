//! Who is asking, and what they may do.
//!
//! A token is compared by its SHA-256 digest, with all digests and in constant time, so neither its
//! length nor how much of it was right can be told from the time an answer takes. Digests are all
//! that is kept of the tokens.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use subtle::{ConditionallySelectable, ConstantTimeEq};

use crate::Error;
use crate::guesses::Verdict;
use crate::problem::Problem;
use crate::state::{App, Peer};

/// The shortest token, in bytes: anything shorter can be guessed.
const TOKEN_LEN_MIN: usize = 16;

/// The longest credentials that are looked at.
const CREDENTIALS_LEN_MAX: usize = 4_096;

/// Where a request came from that nobody says anything of.
const NOWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The tokens that let clients in, each with what it is good for. Digests only.
#[derive(Clone, Debug, Default)]
pub struct Tokens(Vec<Token>);

#[derive(Clone)]
struct Token {
    digest: [u8; 32],
    scopes: Arc<[Scope]>,
}

/// Shows the scopes and nothing of the secret.
impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("scopes", &self.scopes).finish_non_exhaustive()
    }
}

/// What a token is good for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Scope {
    /// Look at everything.
    Read,
    /// Lock keys that begin with this, and look at them.
    Lock(String),
    /// Everything, and break other people's holds.
    Admin,
}

impl Tokens {
    /// Reads a file of tokens: one a line, followed by its scopes, separated by blanks.
    ///
    /// ```text
    /// # a comment
    /// 8Tq0cF2kXv7hYw3Zr5Nd  read
    /// sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08  lock:jobs/ read
    /// Lm4pQ9sB1xUe6GtHj0Wa  admin
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::TokenFile`] or [`Error::TokenLine`]. The text of a line is never repeated.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let refuse = |source| Error::TokenFile { path: path.to_owned(), source };
        Self::parse(&std::fs::read_to_string(path).map_err(refuse)?)
    }

    /// Reads tokens from text; see [`read`](Self::read).
    ///
    /// # Errors
    ///
    /// [`Error::TokenLine`] for a line without a scope, with an unknown one, or with a token of
    /// fewer than 16 bytes.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut tokens = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            tokens.push(token(line).map_err(|why| Error::TokenLine { line: number + 1, why })?);
        }
        if tokens.is_empty() {
            return Err(Error::TokenLine { line: 1, why: "there is no token in the file" });
        }
        Ok(Self(tokens))
    }

    /// True if nobody has to say who they are.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The number of the token that somebody presents, counted from 1; zero if it is none of them.
    /// Takes the same time whichever it is.
    fn find(&self, secret: &[u8]) -> u32 {
        let digest: [u8; 32] = Sha256::digest(secret).into();
        let mut found = 0_u32;
        for (number, token) in (1_u32..).zip(&self.0) {
            let same = token.digest.ct_eq(&digest);
            found.conditional_assign(&number, same);
        }
        found
    }
}

fn token(line: &str) -> Result<Token, &'static str> {
    let mut words = line.split_whitespace();
    let secret = words.next().unwrap_or_default();
    let digest = match secret.strip_prefix("sha256:") {
        Some(hex) => unhex(hex).ok_or("sha256: wants 64 hexadecimal digits")?,
        None if secret.len() < TOKEN_LEN_MIN => return Err("a token needs 16 bytes or more"),
        None => Sha256::digest(secret).into(),
    };
    let scopes: Result<Vec<_>, _> = words.map(scope).collect();
    let scopes = scopes?;
    if scopes.is_empty() {
        return Err("a token needs a scope: read, lock:<prefix> or admin");
    }
    Ok(Token { digest, scopes: scopes.into() })
}

fn scope(word: &str) -> Result<Scope, &'static str> {
    match word {
        "read" => Ok(Scope::Read),
        "admin" => Ok(Scope::Admin),
        _ => match word.strip_prefix("lock:") {
            Some(prefix) => Ok(Scope::Lock(prefix.to_owned())),
            None => Err("a scope is read, lock:<prefix> or admin"),
        },
    }
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 32];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

/// Whoever sent a request, with what they may do.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// The number of the token, from 1; zero where there are no tokens.
    pub(crate) number: usize,
    /// None where there are no tokens: then everything is allowed.
    scopes: Option<Arc<[Scope]>>,
}

impl Caller {
    /// May this caller look at everything?
    pub(crate) fn may_read(&self) -> Result<(), Problem> {
        self.check(|scope| matches!(scope, Scope::Read), "read")
    }

    /// May this caller look at keys that begin with this?
    pub(crate) fn may_look_at(&self, prefix: &str) -> Result<(), Problem> {
        let allows = |scope: &Scope| match scope {
            Scope::Read => true,
            Scope::Lock(theirs) => prefix.starts_with(theirs.as_str()),
            Scope::Admin => true,
        };
        self.check(allows, "read")
    }

    /// May this caller lock this key?
    pub(crate) fn may_lock(&self, key: &str) -> Result<(), Problem> {
        let allows = |scope: &Scope| matches!(scope, Scope::Lock(p) if key.starts_with(p.as_str()));
        self.check(allows, "lock:<prefix>")
    }

    /// May this caller break other people's holds?
    pub(crate) fn may_break(&self) -> Result<(), Problem> {
        self.check(|_| false, "admin")
    }

    fn check(&self, allows: impl Fn(&Scope) -> bool, needed: &'static str) -> Result<(), Problem> {
        let Some(scopes) = &self.scopes else { return Ok(()) };
        if scopes.iter().any(|scope| *scope == Scope::Admin || allows(scope)) {
            return Ok(());
        }
        let problem = Problem::new(StatusCode::FORBIDDEN, "forbidden", "Not allowed");
        Err(problem.detail(format!("the token needs the scope {needed} for this")))
    }

    fn find(app: &App, from: IpAddr, headers: &HeaderMap) -> Result<Self, Problem> {
        let tokens = &app.config.tokens;
        if tokens.is_empty() {
            return Ok(Self { number: 0, scopes: None });
        }
        // Whoever presents nothing guesses nothing.
        let Some(secret) = secret(headers) else { return Err(Problem::unauthorized()) };
        let number = tokens.find(&secret) as usize;
        match app.guesses.judge(from, number, Instant::now()) {
            Verdict::Welcome => {}
            Verdict::Wrong => {
                app.metrics.refused("wrong");
                return Err(Problem::unauthorized());
            }
            Verdict::Wait(wait) => {
                app.metrics.refused("not-heard");
                tracing::debug!(%from, "too many wrong tokens");
                let problem = Problem::too_many("too many wrong tokens came from this address");
                return Err(problem.retry_after(wait));
            }
        }
        match number.checked_sub(1).and_then(|index| tokens.0.get(index)) {
            Some(token) => Ok(Self { number, scopes: Some(Arc::clone(&token.scopes)) }),
            None => Err(Problem::unauthorized()),
        }
    }
}

/// What somebody presents as a token: as bearer, as the password of Basic, or Dapr's own way.
fn secret(headers: &HeaderMap) -> Option<Vec<u8>> {
    if let Some(token) = headers.get("dapr-api-token") {
        return Some(token.as_bytes().to_vec());
    }
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    if value.len() > CREDENTIALS_LEN_MAX {
        return None;
    }
    let blank = value.iter().position(|byte| *byte == b' ')?;
    let (scheme, rest) = (&value[..blank], value[blank..].trim_ascii());
    if scheme.eq_ignore_ascii_case(b"bearer") {
        return Some(rest.to_vec());
    }
    if scheme.eq_ignore_ascii_case(b"basic") {
        let decoded = STANDARD.decode(rest).ok()?;
        let colon = decoded.iter().position(|byte| *byte == b':')?;
        return Some(decoded[colon + 1..].to_vec());
    }
    None
}

impl FromRequestParts<Arc<App>> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let from = parts.extensions.get().map_or(NOWHERE, |Peer(peer)| peer.ip());
        Self::find(app, from, &parts.headers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_by_line_and_bad_lines_are_named_and_not_repeated() {
        let good = "# note\n\n0123456789abcdef read lock:a/\n fedcba9876543210 admin \n";
        assert_eq!(Tokens::parse(good).unwrap().len(), 2);
        for (line, bad) in [
            (1, "short read"),
            (2, "#\n0123456789abcdef"),
            (1, "0123456789abcdef write"),
            (1, "sha256:12 read"),
            (1, ""),
        ] {
            let refused = Tokens::parse(bad).unwrap_err().to_string();
            assert!(refused.contains(&format!("line {line}")), "{refused}");
            assert!(!refused.contains("0123456789"), "{refused}");
        }
    }

    #[test]
    fn a_digest_stands_for_its_token() {
        let digest = "sha256:9f9f5111f7b27a781f1f1ddde5ebc2dd2b796bfc7365c9c28b548e564176929f";
        let plain = Tokens::parse("0123456789abcdef admin").unwrap();
        let hashed = Tokens::parse(&format!("{digest} admin")).unwrap();
        assert_eq!(plain.0[0].digest, hashed.0[0].digest);
        assert_eq!((plain.find(b"0123456789abcdef"), plain.find(b"0123456789abcdeF")), (1, 0));
        assert!(!format!("{plain:?}").contains("0123456789"));
    }
}
