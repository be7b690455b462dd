//! How many replicas have a hold on their disk.

use std::sync::Arc;
use std::time::Duration;

use distlock_core::{Confirmed, Fault, Renewal, Standing};
use tokio::time::Instant;

use super::pipeline::{Pipeline, number, real, text};
use super::shared::PostgresShared;
use super::verb::{Verb, VerbReply};

const CONFIRM_ACTION: &str = "confirm by replicas";

/// How long the server pauses between two looks at its replicas.
const PAUSE: Duration = Duration::from_millis(2);

/// Renews a hold, and waits until so many replicas have all that was committed until then.
pub(super) async fn confirm(
    shared: &Arc<PostgresShared>,
    renewal: Renewal,
    replicas: u32,
) -> Result<Confirmed, Fault> {
    let until = Instant::now() + shared.config.response_timeout.mul_f64(0.8);
    match shared.submit(Verb::Renew(vec![renewal])).await? {
        VerbReply::Standings(standings)
            if matches!(standings.first(), Some(Standing::Held { .. })) => {}
        _ => return Ok(Confirmed::Gone),
    }
    let position = position(shared).await?;
    loop {
        let is_over = Instant::now() >= until;
        let pause = if is_over { 0.0 } else { PAUSE.as_secs_f64() };
        let have = count(shared, &position, replicas, pause).await?;
        if have >= replicas || is_over {
            return Ok(Confirmed::By(have));
        }
    }
}

async fn position(shared: &PostgresShared) -> Result<String, Fault> {
    let mut lease = shared.others.lease(CONFIRM_ACTION).await?;
    let mut pipeline = Pipeline::default();
    pipeline.add(include_str!("../sql/position.sql"), Vec::new());
    let sent = lease.send(pipeline).await;
    let answers = lease.finish(CONFIRM_ACTION, sent).await?;
    let position = answers[0].first().and_then(|row| row.try_get(0).ok());
    position.ok_or_else(|| {
        Fault::transient(CONFIRM_ACTION, "the server does not say where its log ends")
    })
}

/// How many replicas have the log up to a position.
async fn count(
    shared: &PostgresShared,
    position: &str,
    wanted: u32,
    pause: f64,
) -> Result<u32, Fault> {
    let mut lease = shared.others.lease(CONFIRM_ACTION).await?;
    let mut pipeline = Pipeline::default();
    let values = vec![text(position), number(i64::from(wanted)), real(pause)];
    pipeline.add(include_str!("../sql/replicas.sql"), values);
    let sent = lease.send(pipeline).await;
    let answers = lease.finish(CONFIRM_ACTION, sent).await?;
    let row = answers[0].first();
    let is_allowed = row.and_then(|row| row.try_get(1).ok()).unwrap_or(false);
    if !is_allowed {
        let why = "the role may not see how far replicas are";
        let fault = Fault::denied(CONFIRM_ACTION, why).at_store(shared.config.location());
        return Err(fault.advise("GRANT pg_read_all_stats TO the role of the URL"));
    }
    let have = row.and_then(|row| row.try_get::<_, i64>(0).ok()).unwrap_or(0);
    Ok(u32::try_from(have).unwrap_or(u32::MAX))
}
