//! The identities: a claim, the client that makes it, the thread of work it belongs to.

use std::fmt;
use std::str::FromStr;

use crate::{Fault, Invalid, Key};

/// The largest fence or ticket: integers above it are not exact in JSON, Lua or JavaScript.
pub const FENCE_MAX: u64 = (1 << 53) - 1;

/// The number of a place in a queue. It comes from the fence counter, so it never repeats, not
/// even after the queue was empty; a push is trusted only with the ticket last acknowledged.
pub type Ticket = u64;

macro_rules! secret_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 16]);

        impl $name {
            /// A new id of 128 bits from the operating system.
            ///
            /// # Errors
            ///
            /// A permanent [`Fault`] if the operating system has no random bytes to give.
            pub fn random() -> Result<Self, Fault> {
                let mut bytes = [0; 16];
                getrandom::fill(&mut bytes)
                    .map_err(|error| Fault::permanent(concat!("make a ", $what), error))?;
                Ok(Self(bytes))
            }

            /// An id with the given bytes. They must be unguessable: a client that knows a claim id
            /// can renew and release the claim.
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(bytes)
            }

            /// The secret bytes.
            pub const fn as_bytes(&self) -> &[u8; 16] {
                &self.0
            }

            /// The secret as 32 lower-case hexadecimal digits, the form that parses back.
            pub fn reveal(&self) -> String {
                let digit = |half: u8| char::from(b"0123456789abcdef"[usize::from(half)]);
                let mut text = String::with_capacity(32);
                for byte in self.0 {
                    text.push(digit(byte >> 4));
                    text.push(digit(byte & 15));
                }
                text
            }
        }

        /// Shows a short hash: enough to tell two ids apart in a log, of no use to release one.
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "(#{:08x})"), short_hash(&self.0))
            }
        }

        impl FromStr for $name {
            type Err = Invalid;

            fn from_str(text: &str) -> Result<Self, Invalid> {
                // The refused text is not repeated: it may be most of a secret.
                let why = "must be a UUID or 32 hexadecimal digits";
                let refuse = || Invalid::new($what, "(hidden)", why);
                let digits = without_hyphens(text).ok_or_else(refuse)?;
                let number = u128::from_str_radix(&digits, 16).map_err(|_| refuse())?;
                Ok(Self(number.to_be_bytes()))
            }
        }
    };
}

secret_id! {
    /// The id of one acquisition, the secret that lets its owner renew and release.
    ///
    /// It is made anew for every acquisition and is constant over that acquisition's retries, so
    /// asking again after a lost reply gets the same answer and a stale guard can never touch a
    /// newer lease.
    ClaimId, "claim id"
}

secret_id! {
    /// The id of one call for a claim whose id the caller chose and may repeat. The clean-up of the
    /// call gives up its attempt, and the claim only if no other attempt of it is left.
    AttemptId, "attempt id"
}

impl AttemptId {
    /// The id under which a store remembers that this attempt for that claim is dead. The claim
    /// itself is not: another attempt may still get it.
    pub fn tombstone(&self, claim: &ClaimId) -> ClaimId {
        let (attempt, claim) = (self.as_bytes(), claim.as_bytes());
        ClaimId::from_bytes(std::array::from_fn(|at| attempt[at] ^ claim[at]))
    }
}

secret_id! {
    /// The id of one thread of work that may enter a reentrant mutex again while it is inside.
    ReentryId, "reentry id"
}

secret_id! {
    /// The id of one client of a store. Waiting places live as long as their client is heard of.
    ClientId, "client id"
}

/// The 32 digits of an id, which may be written as a UUID.
fn without_hyphens(text: &str) -> Option<String> {
    let is_digit = |byte: u8| byte.is_ascii_hexdigit();
    let fits = match text.len() {
        32 => text.bytes().all(is_digit),
        36 => text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => is_digit(byte),
        }),
        _ => false,
    };
    fits.then(|| text.replace('-', ""))
}

/// FNV-1a. Thirty-two bits of hash give away nothing useful of 128 random ones.
fn short_hash(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// What a client asks for, holds or waits for: a key and the id of this acquisition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Claim {
    /// The resource.
    pub key: Key,
    /// The acquisition.
    pub id: ClaimId,
}

impl Claim {
    /// A claim on `key` under `id`.
    pub fn new(key: Key, id: ClaimId) -> Self {
        Self { key, id }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_are_unique_and_of_full_width() {
        let ids: BTreeSet<_> = (0..1000).map(|_| ClaimId::random().unwrap()).collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| id.reveal().len() == 32));
    }

    #[test]
    fn debug_hides_the_secret() {
        let id = ClaimId::random().unwrap();
        let claim = Claim::new(Key::new("k").unwrap(), id);
        let shown = format!("{claim:?}");
        assert!(!shown.contains(&id.reveal()) && !shown.contains(&id.reveal()[..16]), "{shown}");
    }

    #[test]
    fn a_uuid_is_an_id() {
        let digits = "0123456789abcdef0123456789ABCDEF";
        let uuid = "01234567-89ab-cdef-0123-456789ABCDEF";
        assert_eq!(uuid.parse::<ClaimId>().unwrap(), digits.parse().unwrap());
        for bad in [
            "0123456789ab-cdef-0123-456789ABCDEF01",
            "01234567-89ab-cdef-0123-456789ABCDE-",
            "01234567+89ab-cdef-0123-456789ABCDEF",
            "{0123456789abcdef0123456789ABCDEF12}",
        ] {
            assert!(bad.parse::<ClaimId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_revealed_form_parses_back_and_nothing_else_does() {
        let id = ClaimId::random().unwrap();
        assert_eq!(id.reveal().parse::<ClaimId>().unwrap(), id);
        let secret = id.reveal();
        for bad in ["", "12", &secret[..31], &format!("+{}", &secret[1..]), &format!("{secret}0")] {
            let refused = bad.parse::<ClaimId>().unwrap_err().to_string();
            assert!(bad.len() < 8 || !refused.contains(bad), "{refused}");
        }
    }
}
