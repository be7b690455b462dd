//! The spans that a tracer sees.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use distlock::Locks;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata};

use crate::support::*;

/// Every span with its fields, by id.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<Fields>>>);

#[derive(Clone, Debug, Default)]
struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.to_string(), format!("{value:?}"));
    }
}

impl tracing::Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target().starts_with("distlock")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields::default();
        fields.0.insert("span".into(), span.metadata().name().into());
        span.record(&mut fields);
        let mut spans = self.0.lock().unwrap();
        spans.push(fields);
        Id::from_u64(spans.len() as u64)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        let mut spans = self.0.lock().unwrap();
        let at = usize::try_from(id.into_u64()).unwrap() - 1;
        values.record(&mut spans[at]);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn a_tracer_sees_the_wait_the_hold_and_the_release() {
    let spans = Spans::default();
    let _listening = tracing::subscriber::set_default(spans.clone());
    let locks = Locks::memory().configure(|o| o.owner("ann")).unwrap();
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    let fence = guard.fence().to_string();
    assert!(locks.mutex("k").unwrap().try_lock_for(ms(5)).await.is_err());
    guard.release().await.unwrap();
    locks.close().await.unwrap();
    let spans = spans.0.lock().unwrap().clone();
    let find = |name: &str, outcome: &str| {
        let is = |fields: &&Fields| {
            let get = |name| fields.0.get(name).map_or("", |text| text.trim_matches('"'));
            get("span") == name && get("outcome") == outcome && get("key") == "k"
        };
        let found = spans.iter().find(is).unwrap_or_else(|| panic!("{name} {outcome}: {spans:?}"));
        found.0.clone()
    };
    let acquired = find("lock.acquire", "granted");
    assert_eq!((&acquired["owner"], &acquired["fence"]), (&"ann".to_owned(), &fence));
    assert_eq!(find("lock.acquire", "timeout")["position"], "1");
    let held = find("lock.hold", "released");
    assert_eq!((&held["owner"], &held["fence"]), (&"ann".to_owned(), &fence));
    assert_eq!(find("lock.release", "released")["fence"], fence);
}
