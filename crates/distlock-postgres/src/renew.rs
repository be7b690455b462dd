//! Renewing many exclusive holds with one statement.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use distlock_core::rows::as_number;
use distlock_core::{Fault, Key, Pending, Renewal, Standing};
use futures_util::stream::{self, FuturesUnordered};
use futures_util::{Stream, StreamExt};
use tokio::sync::mpsc;

use super::faults;
use super::pipeline::{Pipeline, many_bytes, many_numbers};
use super::shared::PostgresShared;
use super::verb::{Verb, VerbReply};

/// How many holds are renewed by one statement.
const HOLDS_MAX: usize = 1_000;

/// A standing and the index of its renewal.
type Answered = (usize, Result<Standing, Fault>);

/// True if nothing but the hold itself can be concerned.
fn is_plain(renewal: &Renewal) -> bool {
    renewal.ticket.is_none() && renewal.weight.is_none() && renewal.fence_floor.is_none()
}

/// Renews a batch: exclusive holds together, the others key by key. What is known is sent at once.
pub(super) async fn renew(
    shared: Arc<PostgresShared>,
    batch: Vec<Renewal>,
    tell: mpsc::Sender<Answered>,
) {
    let (plain, others): (Vec<_>, Vec<_>) =
        batch.into_iter().enumerate().partition(|(_, renewal)| is_plain(renewal));
    let plain = async {
        let mut left = Vec::new();
        for holds in plain.chunks(HOLDS_MAX) {
            match renew_holds(&shared, holds).await {
                Err(fault) => {
                    for (index, _) in holds {
                        // A caller that has gone needs no answer.
                        let _ = tell.send((*index, Err(fault.clone()))).await;
                    }
                }
                Ok(fences) => {
                    for (nth, (index, renewal)) in holds.iter().enumerate() {
                        match fences.get(&nth) {
                            Some(fence) => {
                                let held = Standing::Held { fence: *fence };
                                let _ = tell.send((*index, Ok(held))).await;
                            }
                            None => left.push((*index, renewal.clone())),
                        }
                    }
                }
            }
        }
        by_key(&shared, left, &tell).await;
    };
    tokio::join!(plain, by_key(&shared, others, &tell));
}

/// The fences of those among these renewals that are exclusive holds, by their place among them.
async fn renew_holds(
    shared: &PostgresShared,
    holds: &[(usize, Renewal)],
) -> Result<BTreeMap<usize, u64>, Fault> {
    let mut lease = shared.renewals.lease("renew").await?;
    let begin = lease.begin();
    let micros = |renewal: &Renewal| i64::try_from(renewal.span.as_micros()).unwrap_or(i64::MAX);
    let mut pipeline = Pipeline::default();
    pipeline.control(&begin);
    let at = pipeline.add(
        include_str!("../sql/renew_holds.sql"),
        vec![
            many_bytes(holds.iter().map(|(_, one)| one.claim.key.as_str().as_bytes())),
            many_bytes(holds.iter().map(|(_, one)| one.claim.id.as_bytes().as_slice())),
            many_numbers(holds.iter().map(|(_, one)| micros(one))),
        ],
    );
    pipeline.control("COMMIT");
    let sent = lease.send(pipeline).await;
    let answers = lease.finish("renew", sent).await?;
    let read = |row: &tokio_postgres::Row| {
        let nth = usize::try_from(row.try_get::<_, i64>(0)? - 1).unwrap_or(usize::MAX);
        Ok((nth, as_number(row.try_get(1)?)))
    };
    let fences = answers[at].iter().map(read).collect::<Result<_, _>>();
    fences.map_err(|error| faults::fault("renew", &error, &shared.config))
}

/// Renews by the law.
async fn by_key(
    shared: &Arc<PostgresShared>,
    renewals: Vec<(usize, Renewal)>,
    tell: &mpsc::Sender<Answered>,
) {
    let mut keys: BTreeMap<Key, Vec<(usize, Renewal)>> = BTreeMap::new();
    for (index, renewal) in renewals {
        keys.entry(renewal.claim.key.clone()).or_default().push((index, renewal));
    }
    let each = |of_key: Vec<(usize, Renewal)>| async move {
        let (indexes, renewals): (Vec<_>, Vec<_>) = of_key.into_iter().unzip();
        let answer = shared.submit(Verb::Renew(renewals)).await;
        (indexes, answer)
    };
    let mut pending: FuturesUnordered<_> = keys.into_values().map(each).collect();
    while let Some((indexes, answer)) = pending.next().await {
        for (nth, index) in indexes.into_iter().enumerate() {
            let standing = match &answer {
                Ok(VerbReply::Standings(standings)) => standings.get(nth).cloned().ok_or_else(lost),
                Ok(_) => Err(lost()),
                Err(fault) => Err(fault.clone()),
            };
            // A caller that has gone needs no answer.
            let _ = tell.send((index, standing)).await;
        }
    }
}

/// The answers of a batch, as they come; a fault for each that is not answered when the work is
/// over.
pub(super) fn answers<'a>(
    work: Pending<'a, ()>,
    answers: mpsc::Receiver<Answered>,
    count: usize,
) -> impl Stream<Item = Answered> + Send + 'a {
    struct State<'a> {
        work: Option<Pending<'a, ()>>,
        answers: mpsc::Receiver<Answered>,
        fault: Option<Fault>,
        left: BTreeSet<usize>,
    }
    let state = State { work: Some(work), answers, fault: None, left: (0..count).collect() };
    stream::unfold(state, |mut state| async move {
        loop {
            let over = async {
                match &mut state.work {
                    Some(work) => work.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                answered = state.answers.recv() => match answered {
                    Some((index, answer)) => {
                        state.left.remove(&index);
                        return Some(((index, answer), state));
                    }
                    // The work has dropped its end, or has never begun.
                    None => {
                        if let Some(work) = state.work.take()
                            && let Err(fault) = work.await
                        {
                            state.fault = Some(fault);
                        }
                        let index = state.left.pop_first()?;
                        let fault = state.fault.clone().unwrap_or_else(lost);
                        return Some(((index, Err(fault)), state));
                    }
                },
                done = over => {
                    state.work = None;
                    state.fault = done.err();
                }
            }
        }
    })
}

fn lost() -> Fault {
    Fault::transient("renew", "the answer was lost")
}
