//! Text for people: who holds, and why. It decides nothing.

use std::fmt;
use std::sync::Arc;

use crate::Invalid;

/// A short line of text for people: an owner, a reason, the name of a group of readers.
///
/// 1 to 256 bytes of UTF-8 without control characters, so that it can be printed as it is. An
/// owner label never decides who holds; two claims with the same label are two claims.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label(Arc<str>);

impl Label {
    /// The longest label, in bytes.
    pub const LEN_MAX: usize = 256;

    /// Validates a label; `what` names it in the error.
    ///
    /// # Errors
    ///
    /// [`Invalid`] if the text is empty, longer than [`Label::LEN_MAX`] bytes or has control
    /// characters.
    pub fn new(what: &'static str, text: impl AsRef<str>) -> Result<Self, Invalid> {
        let text = text.as_ref();
        if text.is_empty() {
            return Err(Invalid::new(what, text, "must not be empty"));
        }
        if text.len() > Self::LEN_MAX {
            return Err(Invalid::new(what, text, "must be at most 256 bytes long"));
        }
        if text.chars().any(char::is_control) {
            return Err(Invalid::new(what, text, "must not contain control characters"));
        }
        Ok(Self(text.into()))
    }

    /// The text as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_one_printable_line() {
        assert!(Label::new("owner", "deploy@ci-7 (release 1.9)").is_ok());
        for bad in ["", "a\nb", "\u{1b}[2J", &"x".repeat(257)] {
            assert_eq!(Label::new("owner", bad).unwrap_err().what, "owner");
        }
    }
}
