//! Other products' protocols, spoken as their clients expect: Terraform's http backend and Dapr's
//! lock API. Their clients are not ours, so what they send is read with a tolerant eye.

pub(crate) mod dapr;
pub(crate) mod states;
pub(crate) mod terraform;

use distlock::ClaimId;
use sha2::{Digest, Sha256};

/// A claim id that everybody who knows the words can make again, and nobody else.
fn derived(words: &[&str]) -> ClaimId {
    let mut hash = Sha256::new();
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
        assert_ne!(derived(&["ab", "c"]), derived(&["a", "bc"]));
        assert_eq!(derived(&["ab", "c"]), derived(&["ab", "c"]));
    }

    #[test]
    fn any_text_becomes_a_label() {
        for text in ["a\nb", &"é".repeat(300), "\u{1b}[2J"] {
            assert!(distlock::Label::new("owner", label(text)).is_ok(), "{text:?}");
        }
    }
}
