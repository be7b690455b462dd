//! When an answer of the store equals one of the model.

use std::collections::BTreeMap;
use std::time::Duration;

use distlock_core::{Answer, Busy, Holder, Snapshot, Standing};

/// How far two durations may be apart, on a machine that is busy: below half of what two ends that
/// are not the same are apart.
const NEAR: Duration = Duration::from_millis(90);

/// Numbers of the model and the store's numbers for the same things. Both grow together.
#[derive(Clone, Debug, Default)]
pub(super) struct Numbers(BTreeMap<u64, u64>);

type Comparison = Result<(), String>;

impl Numbers {
    /// The largest number seen, of the model and of the store.
    pub(super) fn last(&self) -> (u64, u64) {
        self.0.last_key_value().map_or((0, 0), |(model, store)| (*model, *store))
    }

    /// What the store calls a number of the model.
    pub(super) fn store(&self, model: u64) -> Option<u64> {
        self.0.get(&model).copied()
    }

    /// Takes in a pair. Their sequence is the same on both sides.
    pub(super) fn pair(&mut self, what: &str, model: u64, store: u64) -> Comparison {
        if let Some(known) = self.0.get(&model) {
            return same(what, known, &store);
        }
        let below = self.0.range(..model).next_back();
        let above = self.0.range(model..).next();
        if let Some((_, below)) = below.filter(|(_, below)| **below >= store) {
            return Err(format!("{what} {store} is not larger than {below}, which is earlier"));
        }
        if let Some((_, above)) = above.filter(|(_, above)| **above <= store) {
            return Err(format!("{what} {store} is not smaller than {above}, which is later"));
        }
        self.0.insert(model, store);
        Ok(())
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, model: &T, store: &T) -> Comparison {
    if model == store {
        return Ok(());
    }
    Err(format!("{what}: the law says {model:?}, the store says {store:?}"))
}

fn near(what: &str, model: Option<Duration>, store: Option<Duration>) -> Comparison {
    let close = match (model, store) {
        (Some(model), Some(store)) => model.abs_diff(store) <= NEAR,
        (None, None) => true,
        _ => false,
    };
    if close {
        return Ok(());
    }
    Err(format!("{what}: the law says {model:?}, the store says {store:?}"))
}

/// Compares answers; `seen` is the model's view of the key after the answer.
pub(super) fn answers(
    numbers: &mut Numbers,
    model: &Answer,
    store: &Answer,
    seen: &Snapshot,
) -> Comparison {
    match (model, store) {
        (Answer::Granted { fence: model }, Answer::Granted { fence: store }) => {
            numbers.pair("fence", *model, *store)
        }
        (Answer::Busy(model), Answer::Busy(store)) => busy(numbers, model, store, seen),
        _ => same("answer", model, store),
    }
}

fn busy(numbers: &mut Numbers, model: &Busy, store: &Busy, seen: &Snapshot) -> Comparison {
    same("ahead", &model.ahead, &store.ahead)?;
    near("retry_after", model.retry_after, store.retry_after)?;
    tickets(numbers, model.ticket, store.ticket)?;
    let (Some(first), Some(shown)) = (&model.holder, &store.holder) else {
        return same("holder shown", &model.holder.is_some(), &store.holder.is_some());
    };
    // Leases that end at about the same time may be told apart either way.
    let last = first.expires_in.unwrap_or(Duration::MAX).saturating_sub(NEAR);
    let mut latest = seen.holders.iter().filter(|h| h.expires_in.is_none_or(|e| e >= last));
    match latest.find(|holder| holder.owner == shown.owner) {
        Some(model) => holder(numbers, model, shown),
        None => same("holder whose lease ends last", &first.owner, &shown.owner),
    }
}

fn tickets(numbers: &mut Numbers, model: Option<u64>, store: Option<u64>) -> Comparison {
    match (model, store) {
        (Some(model), Some(store)) => numbers.pair("ticket", model, store),
        _ => same("ticket", &model, &store),
    }
}

fn holder(numbers: &mut Numbers, model: &Holder, store: &Holder) -> Comparison {
    same("owner", &model.owner, &store.owner)?;
    same("reason", &model.reason, &store.reason)?;
    same("weight", &model.weight, &store.weight)?;
    same("exclusive", &model.exclusive, &store.exclusive)?;
    same("group", &model.group, &store.group)?;
    near("held_for", Some(model.held_for), Some(store.held_for))?;
    near("expires_in", model.expires_in, store.expires_in)?;
    numbers.pair("fence", model.fence, store.fence)
}

pub(super) fn standings(numbers: &mut Numbers, model: &Standing, store: &Standing) -> Comparison {
    match (model, store) {
        (Standing::Held { fence: model }, Standing::Held { fence: store }) => {
            numbers.pair("fence", *model, *store)
        }
        (Standing::Waiting(model), Standing::Waiting(store)) => {
            same("ahead", &model.ahead, &store.ahead)?;
            near("retry_after", model.retry_after, store.retry_after)?;
            numbers.pair("ticket", model.ticket, store.ticket)
        }
        _ => same("standing", model, store),
    }
}

pub(super) fn snapshots(numbers: &mut Numbers, model: &Snapshot, store: &Snapshot) -> Comparison {
    same("order", &model.order, &store.order)?;
    same("number of holders", &model.holders_total, &store.holders_total)?;
    same("number of waiters", &model.waiters_total, &store.waiters_total)?;
    same("holders shown", &model.holders.len(), &store.holders.len())?;
    for seen in &store.holders {
        match model.holders.iter().find(|model| model.owner == seen.owner) {
            Some(model) => holder(numbers, model, seen)?,
            None => return Err(format!("{:?} holds only at the store", seen.owner)),
        }
    }
    let ends: Vec<_> = store.holders.iter().map(|holder| holder.expires_in).collect();
    // Stores round to milliseconds, each lease for itself.
    let rounding = Duration::from_millis(2);
    let end = |end: &Option<Duration>| end.unwrap_or(Duration::MAX);
    if !ends.is_sorted_by(|a, b| end(a).saturating_add(rounding) >= end(b)) {
        return Err(format!("holders are not shown by the end of their lease: {ends:?}"));
    }
    same("waiters shown", &model.waiters.len(), &store.waiters.len())?;
    for (model, store) in model.waiters.iter().zip(&store.waiters) {
        near("waited", Some(model.waited), Some(store.waited))?;
        let waited = model.waited;
        let store = distlock_core::Waiter { waited, ..store.clone() };
        same("waiter in line", model, &store)?;
    }
    Ok(())
}

/// The name of an answer's kind, for the report.
pub(super) fn kind(answer: &impl std::fmt::Debug) -> String {
    let shown = format!("{answer:?}");
    let end = shown.find(|c: char| !c.is_alphanumeric()).unwrap_or(shown.len());
    shown[..end].to_lowercase()
}
