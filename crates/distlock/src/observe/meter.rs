//! Numbers for those who watch, through the facade `metrics`.
//!
//! No key ever becomes a label: keys are without number, and may contain what others must not read.
//! What comes before the first slash of a key is its group, and only so many groups get a name.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use distlock_core::Key;
use metrics::{Recorder, SharedString, Unit, counter, gauge, histogram};

use super::WakeCause;
use distlock_core::sync::lock;

/// How many groups get a name of their own.
const METER_GROUPS_MAX: usize = 200;

/// How much of a group's name is shown.
const GROUP_LEN_MAX: usize = 64;

/// The group of all further keys.
const OTHER_GROUP: &str = "other";

/// The group of keys without a slash.
const NO_GROUP: &str = "-";

/// Counts what happens.
pub(crate) struct Meter {
    groups: Mutex<HashSet<Arc<str>>>,
    /// Where the numbers go; without one they go to the recorder of the whole program.
    recorder: OnceLock<Arc<dyn Recorder + Send + Sync>>,
}

impl Meter {
    pub(crate) fn new() -> Self {
        describe();
        Self { groups: Mutex::default(), recorder: OnceLock::new() }
    }

    /// Where the numbers go from now on. The first one stays.
    pub(crate) fn set_recorder(&self, recorder: Arc<dyn Recorder + Send + Sync>) {
        if self.recorder.set(recorder).is_ok() {
            self.record(describe);
        }
    }

    /// Does something whose numbers go where they belong.
    pub(crate) fn record<T>(&self, work: impl FnOnce() -> T) -> T {
        match self.recorder.get() {
            Some(recorder) => metrics::with_local_recorder(&**recorder, work),
            None => work(),
        }
    }

    /// An acquisition ended so, after this long.
    pub(crate) fn acquired(&self, key: &Key, outcome: &'static str, waited: Duration) {
        let group = self.group(key);
        self.record(|| {
            if outcome == "granted" {
                let waits = histogram!("distlock_acquire_wait_seconds", "group" => group.clone());
                waits.record(waited);
            }
            counter!("distlock_acquire_total", "outcome" => outcome, "group" => group).increment(1);
        });
    }

    /// This many more wait, or fewer.
    pub(crate) fn waiters(&self, key: &Key, change: f64) {
        let group = self.group(key);
        self.record(|| gauge!("distlock_waiters", "group" => group).increment(change));
    }

    /// This many more are held, or fewer.
    pub(crate) fn held(&self, key: &Key, change: f64) {
        let group = self.group(key);
        self.record(|| gauge!("distlock_held", "group" => group).increment(change));
    }

    /// A hold ended so, after this long.
    pub(crate) fn ended(&self, key: &Key, end: &'static str, held: Duration) {
        let group = self.group(key);
        let record = || histogram!("distlock_hold_seconds", "end" => end, "group" => group);
        self.record(|| record().record(held));
    }

    pub(crate) fn lost(&self, key: &Key, reason: &'static str) {
        let group = self.group(key);
        let count = || counter!("distlock_lost_total", "reason" => reason, "group" => group);
        self.record(|| count().increment(1));
    }

    /// A renewal was answered so.
    pub(crate) fn renewed(&self, key: &Key, outcome: &'static str) {
        let group = self.group(key);
        let count = || counter!("distlock_renew_total", "outcome" => outcome, "group" => group);
        self.record(|| count().increment(1));
    }

    /// This much was left of a lease when it was renewed.
    pub(crate) fn margin(&self, key: &Key, margin: Duration) {
        let group = self.group(key);
        let record = || histogram!("distlock_renew_margin_seconds", "group" => group);
        self.record(|| record().record(margin));
    }

    pub(crate) fn woken(&self, by: WakeCause) {
        let source = match by {
            WakeCause::Push => "push",
            WakeCause::Heartbeat => "heartbeat",
            WakeCause::Poll => "poll",
        };
        self.record(|| counter!("distlock_wake_total", "source" => source).increment(1));
    }

    /// A call to the store took this long.
    pub(crate) fn called(&self, op: &'static str, took: Duration) {
        self.record(|| histogram!("distlock_backend_op_seconds", "op" => op).record(took));
    }

    /// The part of a key before its first slash, if there are not too many already.
    fn group(&self, key: &Key) -> SharedString {
        let Some((group, _)) = key.as_str().split_once('/') else { return NO_GROUP.into() };
        let group = &*plain(group);
        let mut groups = lock(&self.groups);
        if let Some(known) = groups.get(group) {
            return Arc::clone(known).into();
        }
        if groups.len() >= METER_GROUPS_MAX {
            return OTHER_GROUP.into();
        }
        let group: Arc<str> = group.into();
        groups.insert(Arc::clone(&group));
        group.into()
    }
}

/// A group as a label: short, and without what means something to those who read labels.
fn plain(group: &str) -> Cow<'_, str> {
    let odd = |c: char| c.is_control() || matches!(c, '"' | '\\');
    if group.len() <= GROUP_LEN_MAX && !group.contains(odd) {
        return group.into();
    }
    let kept = group.chars().take(GROUP_LEN_MAX);
    kept.map(|c| if odd(c) { '_' } else { c }).collect::<String>().into()
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter").finish_non_exhaustive()
    }
}

/// Tells the recorder, if there is one already, what the numbers mean.
fn describe() {
    use metrics::describe_histogram as spread;
    use metrics::{describe_counter as count, describe_gauge as level};
    count!("distlock_acquire_total", "Acquisitions, by how they ended");
    spread!("distlock_acquire_wait_seconds", Unit::Seconds, "How long grants took");
    spread!("distlock_hold_seconds", Unit::Seconds, "How long locks were held");
    level!("distlock_held", "Locks held now");
    level!("distlock_waiters", "Calls that wait now");
    count!("distlock_renew_total", "Renewals, by how they were answered");
    let margin = "What was left of a lease when it was renewed: the early warning";
    spread!("distlock_renew_margin_seconds", Unit::Seconds, margin);
    count!("distlock_lost_total", "Locks lost, by reason");
    count!("distlock_wake_total", "How those who waited found out that it is their turn");
    spread!("distlock_backend_op_seconds", Unit::Seconds, "How long calls to the store took");
    level!("distlock_quorum_nodes_up", "Nodes of a quorum that answered last time");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_few_and_no_key_is_one() {
        let meter = Meter::new();
        let group = |key: &str| meter.group(&Key::new(key).unwrap()).to_string();
        assert_eq!(group("deploy/prod"), "deploy");
        assert_eq!(group("deploy/test/eu"), "deploy");
        assert_eq!(group("a-secret-name"), "-");
        assert_eq!(group("/x"), "");
        assert_eq!(group("a\"b\\c\n/x"), "a_b_c_");
        assert_eq!(group(&format!("{}/x", "y".repeat(400))), "y".repeat(GROUP_LEN_MAX));
        for n in 0..1_000 {
            group(&format!("tenant-{n}/job"));
        }
        assert_eq!(group("tenant-7/job"), "tenant-7", "the first group has a name");
        assert_eq!(group("tenant-999/job"), "other");
        assert_eq!(lock(&meter.groups).len(), METER_GROUPS_MAX);
    }
}
