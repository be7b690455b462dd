//! The journal of a quorum: written to all nodes as far as they can be reached, read from one.
//!
//! Every node has an order and ids of its own, so the client that reads on stays with the node that
//! gave out the id. If that one does not answer, reading goes on at the end of another, and says
//! that entries may be missing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use distlock_core::{
    EntryId, Fault, Invalid, JOURNAL_PAGE_MAX, Journal, JournalEntry, JournalPage, Key, Note,
    Pending, Retention,
};
use futures_util::future::join_all;

/// How long a node may take.
const NODE_MAX: Duration = Duration::from_secs(1);

const READ_NODE_JOURNAL: &str = "read the journal";

/// The journals of the nodes, in their order.
#[derive(Debug)]
pub(super) struct Journals {
    nodes: Vec<Arc<dyn Journal>>,
    /// The node that answered last: it is asked first.
    first: AtomicUsize,
}

impl Journals {
    pub(super) fn new(nodes: Vec<Arc<dyn Journal>>) -> Self {
        Self { nodes, first: AtomicUsize::new(0) }
    }

    /// The answer of the first node that has one, and which node that is.
    async fn any<'a, T>(
        &'a self,
        ask: impl Fn(&'a dyn Journal) -> Pending<'a, T>,
    ) -> Result<(usize, T), Fault> {
        let (first, count) = (self.first.load(Ordering::Relaxed), self.nodes.len());
        let mut last = Fault::transient(READ_NODE_JOURNAL, "no node answers");
        for index in (first..first + count).map(|index| index % count) {
            match in_time(READ_NODE_JOURNAL, ask(&*self.nodes[index])).await {
                Ok(answer) => {
                    self.first.store(index, Ordering::Relaxed);
                    return Ok((index, answer));
                }
                Err(fault) => last = fault,
            }
        }
        Err(last)
    }

    /// The newest entry of some node, for those whose own node does not answer.
    async fn end_of_another(&self) -> Result<JournalPage, Fault> {
        let (index, _) = self.any(|node| node.last()).await?;
        let (node, mut newest) = (&self.nodes[index], None::<JournalEntry>);
        loop {
            let after = newest.as_ref().map(|entry| &entry.id);
            let page = in_time(READ_NODE_JOURNAL, node.page(after, JOURNAL_PAGE_MAX)).await?;
            let is_last = page.entries.len() < JOURNAL_PAGE_MAX;
            newest = page.entries.into_iter().last().or(newest);
            if is_last {
                break;
            }
        }
        let entries = newest.into_iter().map(|entry| of_node(index, entry)).collect();
        Ok(JournalPage { entries, missed: true })
    }

    /// The node that gave out an id, and what it calls it.
    fn node_of(&self, id: &EntryId) -> Result<(usize, EntryId), Fault> {
        let parts = id.as_str().split_once('.').and_then(|(node, id)| {
            let node = node.parse().ok().filter(|node| *node < self.nodes.len())?;
            Some((node, EntryId::new(id).ok()?))
        });
        let why = || Invalid::new("entry id", id, "must be one that this journal gave out");
        parts.ok_or_else(|| Fault::permanent(READ_NODE_JOURNAL, why()))
    }
}

impl Journal for Journals {
    fn append<'a>(
        &'a self,
        notes: &'a [(Note, Duration)],
        retention: Retention,
    ) -> Pending<'a, ()> {
        Box::pin(async move {
            let append = |node: &'a Arc<dyn Journal>| {
                in_time("write the journal", node.append(notes, retention))
            };
            let mut answers = join_all(self.nodes.iter().map(append)).await;
            // One that has it is enough; written again, the others would have it twice.
            match answers.iter().position(Result::is_ok) {
                Some(_) => Ok(()),
                None => answers.swap_remove(0),
            }
        })
    }

    fn page<'a>(&'a self, after: Option<&'a EntryId>, limit: usize) -> Pending<'a, JournalPage> {
        Box::pin(async move {
            let Some(after) = after else {
                let (index, page) = self.any(|node| node.page(None, limit)).await?;
                return Ok(of_node_all(index, page));
            };
            let (index, after) = self.node_of(after)?;
            match in_time(READ_NODE_JOURNAL, self.nodes[index].page(Some(&after), limit)).await {
                Ok(page) => Ok(of_node_all(index, page)),
                Err(fault) if fault.is_transient() => self.end_of_another().await,
                Err(fault) => Err(fault),
            }
        })
    }

    fn past<'a>(&'a self, key: &'a Key, limit: usize) -> Pending<'a, Vec<JournalEntry>> {
        Box::pin(async move {
            let (index, past) = self.any(|node| node.past(key, limit)).await?;
            Ok(past.into_iter().map(|entry| of_node(index, entry)).collect())
        })
    }

    fn last(&self) -> Pending<'_, Option<EntryId>> {
        Box::pin(async move {
            let (index, last) = self.any(|node| node.last()).await?;
            Ok(last.map(|id| id_of_node(index, &id)))
        })
    }
}

async fn in_time<T>(action: &'static str, call: Pending<'_, T>) -> Result<T, Fault> {
    let late = |elapsed| Err(Fault::transient(action, elapsed));
    tokio::time::timeout(NODE_MAX, call).await.unwrap_or_else(late)
}

fn of_node_all(index: usize, page: JournalPage) -> JournalPage {
    let entries = page.entries.into_iter().map(|entry| of_node(index, entry)).collect();
    JournalPage { entries, ..page }
}

fn of_node(index: usize, entry: JournalEntry) -> JournalEntry {
    JournalEntry { id: id_of_node(index, &entry.id), ..entry }
}

fn id_of_node(index: usize, id: &EntryId) -> EntryId {
    EntryId::new(format!("{index}.{id}"))
        .expect("ids of journals are much shorter than they may be")
}
