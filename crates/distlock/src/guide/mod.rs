//! Pages to read before you choose, and before you trust.

#[doc = include_str!("choosing.md")]
pub mod choosing {}

#[doc = include_str!("guarantees.md")]
pub mod guarantees {}

#[doc = include_str!("quorum.md")]
pub mod quorum {}
