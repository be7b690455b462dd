//! Other products' protocols, spoken as their clients expect: Terraform's http backend and Dapr's
//! lock API. Their clients are not ours, so what they send is read with a tolerant eye.

pub(crate) mod dapr;
mod spool;
pub(crate) mod states;
pub(crate) mod terraform;
pub(crate) mod terraform_state;
pub(crate) mod transfers;

use distlock::ClaimId;
use sha2::{Digest, Sha256};

use crate::auth::Caller;

/// The claim id of some words. The same token and the same words make the same id, on every replica
/// and after a restart. The words may be public: without the token they are of no use. Where there
/// are no tokens every client may release every hold anyway.
fn derived(caller: &Caller, words: &[&str]) -> ClaimId {
    sealed(caller.seal(), words)
}

fn sealed(seal: &[u8], words: &[&str]) -> ClaimId {
    let mut hash = Sha256::new();
    hash.update((seal.len() as u64).to_be_bytes());
    hash.update(seal);
    for word in words {
        hash.update((word.len() as u64).to_be_bytes());
        hash.update(word);
    }
    let digest: [u8; 32] = hash.finalize().into();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    ClaimId::from_bytes(bytes)
}

/// Text as a label: without control characters, and cut to fit.
fn label(text: &str) -> String {
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let mut end = clean.len().min(distlock::Label::LEN_MAX);
    while !clean.is_char_boundary(end) {
        end -= 1;
    }
    clean[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_run_into_each_other_nowhere() {
        assert_ne!(sealed(b"", &["ab", "c"]), sealed(b"", &["a", "bc"]));
        assert_eq!(sealed(b"x", &["ab", "c"]), sealed(b"x", &["ab", "c"]));
        assert_ne!(sealed(b"x", &["ab", "c"]), sealed(b"", &["ab", "c"]));
    }

    #[test]
    fn any_text_becomes_a_label() {
        for text in ["a\nb", &"é".repeat(300), "\u{1b}[2J"] {
            assert!(distlock::Label::new("owner", label(text)).is_ok(), "{text:?}");
        }
    }
}
