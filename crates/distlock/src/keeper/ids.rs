//! Claim ids, drawn from the operating system many at a time.

use std::sync::Mutex;

use distlock_core::{ClaimId, Fault};

use crate::sync::lock;

/// How many are drawn at once.
const DRAW: usize = 64;

/// Claim ids that nobody has used. They belong to one client of the store, and with it to one
/// process: a fork of it could not share the connection either.
#[derive(Debug, Default)]
pub(crate) struct Ids(Mutex<Vec<ClaimId>>);

impl Ids {
    /// One that nobody else gets.
    pub(crate) fn draw(&self) -> Result<ClaimId, Fault> {
        let mut stock = lock(&self.0);
        if let Some(id) = stock.pop() {
            return Ok(id);
        }
        let [first, rest @ ..] = ClaimId::random_array::<DRAW>()?;
        stock.extend(rest);
        Ok(first)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_id_is_drawn_twice() {
        let ids = Ids::default();
        let drawn: BTreeSet<_> = (0..10 * DRAW).map(|_| ids.draw().unwrap()).collect();
        assert_eq!(drawn.len(), 10 * DRAW);
    }
}
