//! Several keys in one step, for stores that run the law in a transaction.

use crate::{Answer, Ask, Claim, ManyAnswer};

/// What to do to one record.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// Ask once: [`Record::acquire`](super::Record::acquire).
    Acquire(&'a Ask),
    /// Give up a grant of this very transaction: [`Record::release`](super::Record::release).
    Release(&'a Claim),
}

/// Takes all keys or none. `run` carries out one step and returns the answer to an ask; all steps
/// have to be part of one transaction.
///
/// # Errors
///
/// The first error of `run`. The transaction is then to be rolled back.
pub fn acquire_all<E>(
    asks: &[Ask],
    mut run: impl FnMut(Step<'_>) -> Result<Option<Answer>, E>,
) -> Result<ManyAnswer, E> {
    let mut fences = Vec::with_capacity(asks.len());
    for (at, ask) in asks.iter().enumerate() {
        match run(Step::Acquire(ask))? {
            Some(Answer::Granted { fence }) => fences.push(fence),
            Some(answer) => {
                for granted in &asks[..at] {
                    run(Step::Release(&granted.claim))?;
                }
                return Ok(ManyAnswer::Refused { at, answer });
            }
            None => {}
        }
    }
    Ok(ManyAnswer::Granted { fences })
}
