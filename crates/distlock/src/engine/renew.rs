//! Renewing and releasing a single claim from within a call, with a deadline.

use std::time::Duration;

use distlock_core::{Backend, Claim, Fault, How, Outcome, Renewal, Standing, Target};
use futures_util::StreamExt;

/// Renews one claim; silence for longer than `patience` is a fault.
pub(crate) async fn renew(
    backend: &dyn Backend,
    renewal: Renewal,
    patience: Duration,
) -> Result<Standing, Fault> {
    needs_runtime("renew")?;
    let batch = [renewal];
    let mut answers = backend.renew(&batch);
    match tokio::time::timeout(patience, answers.next()).await {
        Ok(Some((_, standing))) => standing,
        Ok(None) => Err(Fault::transient("renew", "the backend did not answer")),
        Err(elapsed) => Err(Fault::transient("renew in time", elapsed)),
    }
}

/// Releases one claim; silence for longer than `patience` is a fault.
pub(crate) async fn release(
    backend: &dyn Backend,
    claim: Claim,
    how: How,
    patience: Duration,
) -> Result<Outcome, Fault> {
    needs_runtime("release")?;
    let target = Target::Claim(claim);
    match tokio::time::timeout(patience, backend.release(&target, how)).await {
        Ok(outcome) => outcome,
        Err(elapsed) => Err(Fault::transient("release in time", elapsed)),
    }
}

/// Deadlines need a timer, and a timer needs a runtime.
fn needs_runtime(action: &'static str) -> Result<(), Fault> {
    let here = tokio::runtime::Handle::try_current();
    here.map(|_| ()).map_err(|error| Fault::permanent(action, error))
}
