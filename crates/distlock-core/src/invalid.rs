//! A value that was refused at the door, with its name and the reason.

use std::borrow::Cow;
use std::fmt;

/// The most of a refused value that an error repeats, in characters.
const REFUSED_SHOWN_MAX: usize = 120;

/// A value that cannot be accepted. Nothing was sent to any backend.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Invalid {
    /// The name of the option or argument, as the user wrote it: `ttl`, `key`, `permits`.
    pub what: &'static str,
    /// The offending value, shortened if it is long.
    pub value: String,
    /// What would have been acceptable.
    pub why: Cow<'static, str>,
}

impl Invalid {
    /// Refuses `value` for `what`.
    pub fn new(
        what: &'static str,
        value: impl fmt::Display,
        why: impl Into<Cow<'static, str>>,
    ) -> Self {
        let text = value.to_string();
        let shown = match text.char_indices().nth(REFUSED_SHOWN_MAX) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        };
        Self { what, value: shown, why: why.into() }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}: {}", self.what, self.value, self.why)
    }
}

impl std::error::Error for Invalid {}
