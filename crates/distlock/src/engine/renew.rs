//! Renewing and releasing a single claim from within a call, with a deadline.

use std::time::Duration;

use distlock_core::{
    Backend, Fault, Key, ReleaseOptions, ReleaseOutcome, Renewal, Standing, Target,
};
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
    let answer = match tokio::time::timeout(patience, answers.next()).await {
        Ok(Some((_, standing))) => standing,
        Ok(None) => Err(Fault::transient("renew", "the backend did not answer")),
        Err(_) => Err(silence("renew", patience)),
    };
    answer.map_err(|fault| located(backend, &batch[0].claim.key, fault))
}

/// Releases a claim or an attempt; silence for longer than `patience` is a fault.
pub(crate) async fn release(
    backend: &dyn Backend,
    target: &Target,
    how: ReleaseOptions,
    patience: Duration,
) -> Result<ReleaseOutcome, Fault> {
    needs_runtime("release")?;
    let answer = match tokio::time::timeout(patience, backend.release(target, how)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(silence("release", patience)),
    };
    answer.map_err(|fault| located(backend, target.key(), fault))
}

/// The fault with the key and the store that it is about.
pub(crate) fn located(backend: &dyn Backend, key: &Key, fault: Fault) -> Fault {
    fault.at_key(key).at_store(backend.extensions().location)
}

/// No answer for so long.
pub(crate) fn silence(action: &'static str, patience: Duration) -> Fault {
    Fault::transient(action, format!("no answer within {patience:?}"))
        .advise("check that the store runs and how busy it is")
}

/// Deadlines need a timer, and a timer needs a runtime.
fn needs_runtime(action: &'static str) -> Result<(), Fault> {
    let here = tokio::runtime::Handle::try_current();
    here.map(|_| ()).map_err(|error| Fault::permanent(action, error))
}
