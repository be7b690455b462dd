//! Listing keys, page by page, over all nodes of a store.

use std::collections::HashSet;

use distlock_core::{Cursor, Fault, FaultKind, Page, SNAPSHOT_MAX};

use super::RedisClient;

/// Where a listing stands: which node, how far its scan has come, and how much of that step was
/// shown before.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    node: usize,
    scan: String,
    shown: usize,
}

impl Place {
    fn start(node: usize) -> Self {
        Self { node, scan: "0".to_owned(), shown: 0 }
    }

    /// Reads a cursor; whatever is not one of ours starts from the beginning.
    fn read(cursor: Option<&Cursor>) -> Self {
        let read = |Cursor(text): &Cursor| {
            let mut parts = text.splitn(3, ':');
            let node = parts.next()?.parse().ok()?;
            let scan: u64 = parts.next()?.parse().ok()?;
            Some(Self { node, scan: scan.to_string(), shown: parts.next()?.parse().ok()? })
        };
        cursor.and_then(read).unwrap_or_else(|| Self::start(0))
    }

    fn write(&self) -> Cursor {
        Cursor(format!("{}:{}:{}", self.node, self.scan, self.shown))
    }

    /// Where to go on after a step of the scan that found `found` keys.
    fn next(&self, scanned: String, found: usize, nodes: usize) -> Option<Self> {
        if found > self.shown + SNAPSHOT_MAX {
            return Some(Self { shown: self.shown + SNAPSHOT_MAX, ..self.clone() });
        }
        if scanned != "0" {
            return Some(Self { node: self.node, scan: scanned, shown: 0 });
        }
        (self.node + 1 < nodes).then(|| Self::start(self.node + 1))
    }
}

impl RedisClient {
    pub(super) async fn page(&self, prefix: &str, cursor: Option<&Cursor>) -> Result<Page, Fault> {
        let place = Place::read(cursor);
        let nodes = self.connections.nodes().await?;
        let Some(node) = nodes.get(place.node) else { return Ok(Page::default()) };
        let mut cmd = redis::cmd("SCAN");
        cmd.arg(&place.scan).arg("MATCH").arg(self.namespace.pattern(prefix));
        cmd.arg("COUNT").arg(SNAPSHOT_MAX).arg("TYPE").arg("string");
        let answer = self.connections.run_at(node, "list", &cmd).await?;
        let (scanned, mains): (String, Vec<Vec<u8>>) =
            redis::from_redis_value(answer).map_err(|error| Fault::permanent("list", error))?;
        let mut seen = HashSet::new();
        let keys: Vec<_> = mains
            .iter()
            .filter_map(|main| self.namespace.key_of(str::from_utf8(main).ok()?))
            .filter(|key| key.as_str().starts_with(prefix) && seen.insert(key.clone()))
            .collect();
        let shown: Vec<_> = keys.iter().skip(place.shown).take(SNAPSHOT_MAX).collect();
        let looks = futures_util::future::join_all(shown.iter().map(|key| self.inspect(key))).await;
        let mut locks = Vec::with_capacity(looks.len());
        for (key, look) in shown.into_iter().zip(looks) {
            match look {
                Ok(lock) if lock.is_free() => {}
                Ok(lock) => locks.push(lock),
                Err(fault) if fault.kind() == FaultKind::Transient => return Err(fault),
                // What others wrote there is the fault of that key alone.
                Err(fault) => tracing::warn!(%key, %fault, "a key is left out of the list"),
            }
        }
        let next = place.next(scanned, keys.len(), nodes.len());
        Ok(Page { locks, next: next.map(|place| place.write()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_reads_back_and_anything_else_starts_anew() {
        let place = Place { node: 2, scan: "17".to_owned(), shown: 100 };
        assert_eq!(Place::read(Some(&place.write())), place);
        for odd in ["", "x", "1:2", "1:x:3", "a:b:c"] {
            assert_eq!(Place::read(Some(&Cursor(odd.to_owned()))), Place::start(0), "{odd}");
        }
    }

    #[test]
    fn a_listing_goes_through_every_step_of_every_node() {
        let start = Place::start(0);
        let more = start.next("0".into(), 150, 2).unwrap();
        assert_eq!(more.shown, SNAPSHOT_MAX, "the rest of a long step");
        assert_eq!(more.next("9".into(), 150, 2).unwrap().scan, "9", "the next step");
        assert_eq!(start.next("0".into(), 5, 2), Some(Place::start(1)), "the next node");
        assert_eq!(Place::start(1).next("0".into(), 5, 2), None, "the end");
    }
}
