//! The name of a resource, validated once.

use std::fmt;

use smol_str::SmolStr;

use crate::Invalid;

/// The name of the thing that must not be done twice at once, such as `deploy/prod`.
///
/// A key is 1 to 512 bytes of UTF-8. All of them count: nothing is trimmed, folded or normalised,
/// so two keys are the same only if they are equal byte for byte.
///
/// ```
/// use distlock_core::Key;
///
/// let key = Key::new("deploy/prod")?;
/// assert_eq!(key.as_str(), "deploy/prod");
/// assert!(Key::new("").is_err());
/// # Ok::<(), distlock_core::Invalid>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
// Most names are short: then they lie where the key does, and to pass them on counts no owners.
pub struct Key(SmolStr);

impl Key {
    /// The longest key, in bytes.
    pub const LEN_MAX: usize = 512;

    /// Validates a name.
    ///
    /// # Errors
    ///
    /// [`Invalid`] if the name is empty or longer than [`Key::LEN_MAX`] bytes.
    pub fn new(name: impl AsRef<str>) -> Result<Self, Invalid> {
        let name = name.as_ref();
        if name.is_empty() {
            return Err(Invalid::new("key", name, "must not be empty"));
        }
        if name.len() > Self::LEN_MAX {
            return Err(Invalid::new("key", name, "must be at most 512 bytes long"));
        }
        Ok(Self(SmolStr::new(name)))
    }

    /// The name as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<&str> for Key {
    type Error = Invalid;

    fn try_from(name: &str) -> Result<Self, Invalid> {
        Self::new(name)
    }
}

impl TryFrom<String> for Key {
    type Error = Invalid;

    fn try_from(name: String) -> Result<Self, Invalid> {
        Self::new(name)
    }
}

impl TryFrom<&String> for Key {
    type Error = Invalid;

    fn try_from(name: &String) -> Result<Self, Invalid> {
        Self::new(name)
    }
}

impl From<&Key> for Key {
    fn from(key: &Key) -> Self {
        key.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_is_counted_in_bytes() {
        assert!(Key::new("x".repeat(512)).is_ok());
        assert!(Key::new("x".repeat(513)).is_err());
        assert!(Key::new("é".repeat(256)).is_ok());
        assert!(Key::new("é".repeat(257)).is_err());
    }

    #[test]
    fn every_byte_counts() {
        for (a, b) in
            [("a", "a "), ("a", "A"), ("é", "e\u{301}"), ("a{b}", "a{b"), ("a:b", "a%3Ab")]
        {
            assert_ne!(Key::new(a).unwrap(), Key::new(b).unwrap(), "{a:?} and {b:?} are one key");
        }
        for odd in ["}", "{}", "%", "\0", "a\nb", "*", "}x{"] {
            assert_eq!(Key::new(odd).unwrap().as_str(), odd);
        }
    }

    #[test]
    fn a_refusal_names_the_value_and_does_not_repeat_all_of_it() {
        let refused = Key::new("x".repeat(100_000)).unwrap_err();
        assert_eq!(refused.what, "key");
        assert!(refused.to_string().len() < 400, "{refused}");
    }
}
