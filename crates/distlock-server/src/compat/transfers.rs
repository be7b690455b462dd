//! How many states each caller may have on their way, so that the stalled transfers of one caller
//! do not stop those of others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::auth::Caller;
use crate::problem::Problem;
use crate::sync::lock;

/// How many uploads, and how many downloads, of one caller there may be at once.
const TRANSFERS_MAX: usize = 64;

/// Which way a state goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Direction {
    Up,
    Down,
}

/// The transfers under way, by caller.
#[derive(Clone, Debug, Default)]
pub(crate) struct Transfers(Arc<Mutex<HashMap<(String, Direction), usize>>>);

/// A transfer, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Transfer {
    of: (String, Direction),
    all: Transfers,
}

impl Transfers {
    pub(crate) fn begin(&self, caller: &Caller, way: Direction) -> Result<Transfer, Problem> {
        let of = (caller.name().to_owned(), way);
        let mut all = lock(&self.0);
        let count = all.entry(of.clone()).or_default();
        if *count >= TRANSFERS_MAX {
            return Err(Problem::too_many("too many states of this token are on their way"));
        }
        *count += 1;
        Ok(Transfer { of, all: self.clone() })
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        let mut all = lock(&self.all.0);
        if let Some(count) = all.get_mut(&self.of) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.of);
            }
        }
    }
}
