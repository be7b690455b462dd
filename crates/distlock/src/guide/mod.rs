//! Pages to read before you choose, and before you trust.

#[cfg(feature = "blocking")]
#[doc = include_str!("blocking.md")]
pub mod blocking {}

#[doc = include_str!("choosing.md")]
pub mod choosing {}

#[doc = include_str!("election.md")]
pub mod election {}
#[doc = include_str!("coming_from.md")]
pub mod coming_from {}

// Its examples are run by `distlock-fenced`, which has the clients that they need.
#[cfg_attr(not(doctest), doc = include_str!("fencing.md"))]
pub mod fencing {}

#[doc = include_str!("guarantees.md")]
pub mod guarantees {}

#[doc = include_str!("many_keys.md")]
pub mod many_keys {}

#[doc = include_str!("quorum.md")]
pub mod quorum {}
