//! Calls for one key in one transaction, decided by the law.

use distlock_core::law::{AddressedPush, Parts, Record};
use distlock_core::rows::BadRow;
use distlock_core::{ClientId, Fault, Key};

use super::cells::RowError;
use super::load::{self, ExcerptQuery, LoadedRecord, ReadExtent};
use super::pipeline::{Pipeline, bytes};
use super::pool::ConnectionLease;
use super::save::DecidedRecord;
use super::verb::{Verb, VerbReply};

/// What became of calls, once the transaction is committed.
#[derive(Default)]
pub(super) struct CommittedCalls {
    pub(super) replies: Vec<Result<VerbReply, Fault>>,
    pub(super) notices: Vec<AddressedPush>,
    /// True if the key is free for a simple call now.
    pub(super) is_free: bool,
    /// The clock of the server.
    pub(super) clock_us: Option<u64>,
}

/// Serves calls for one key in two pipelines: the latch and what the first call has to see; what it
/// has changed and the end of the transaction. Asks that follow each other are decided together;
/// every other call, and every excerpt that was too short, takes one pipeline more.
pub(super) async fn run(
    lease: &mut ConnectionLease<'_>,
    key: &Key,
    verbs: &[Verb],
    client: ClientId,
    seen: u64,
) -> Result<CommittedCalls, tokio_postgres::Error> {
    let mut committed = CommittedCalls::default();
    let begin = lease.begin();
    // What the calls before have changed, until it is sent.
    let mut before: Option<DecidedRecord> = None;
    let mut pipeline = Pipeline::default();
    pipeline.control(&begin);
    pipeline.add(include_str!("../sql/latch.sql"), vec![bytes(key.as_str().as_bytes())]);
    pipeline.add(include_str!("../sql/lock_exclusive.sql"), vec![bytes(key.as_str().as_bytes())]);
    for step in verbs.chunk_by(|a, b| a.only_adds() && b.only_adds()) {
        if let Some(decided) = &before {
            decided.save(&mut pipeline, key);
        }
        let served = serve(lease, pipeline, key, step, client, seen).await?;
        pipeline = Pipeline::default();
        before = None;
        match served {
            Ok((decided, replies, notices)) => {
                committed.is_free = decided.leaves_free();
                committed.clock_us = Some(decided.clock_us());
                before = Some(decided);
                committed.replies.extend(replies.into_iter().map(Ok));
                committed.notices.extend(notices);
            }
            Err(why) => {
                let fault = Fault::permanent("read the rows", why).at_key(key);
                let fault = fault.advise(
                    "another program wrote rows of this key: delete them from holders, waiters, \
                     clients and keys",
                );
                let faults = step.iter().map(|verb| Err(fault.clone().during(verb.action())));
                committed.replies.extend(faults);
            }
        }
    }
    if let Some(decided) = &before {
        decided.save(&mut pipeline, key);
    }
    pipeline.control("COMMIT");
    lease.send(pipeline).await?;
    Ok(committed)
}

/// What was decided: the record, and the answers in the sequence of the calls.
type DecidedCalls = (DecidedRecord, Vec<VerbReply>, Vec<AddressedPush>);

/// Sends a pipeline, reads the record with it, and decides.
async fn serve<'a>(
    lease: &mut ConnectionLease<'_>,
    pipeline: Pipeline<'a>,
    key: &'a Key,
    verbs: &[Verb],
    client: ClientId,
    seen: u64,
) -> Result<Result<DecidedCalls, RowError>, tokio_postgres::Error> {
    let abouts: Vec<_> = verbs.iter().filter_map(Verb::about).collect();
    let whole = ReadExtent::Whole(abouts.clone());
    let every_verb_has_one = abouts.len() == verbs.len();
    let extent = if every_verb_has_one { ReadExtent::For(client, abouts) } else { whole.clone() };
    let loaded = match read(lease, pipeline, key, extent, seen).await? {
        Ok(loaded) => loaded,
        Err(why) => return Ok(Err(why)),
    };
    if let Some(served) = loaded.and_then(|loaded| decide(verbs, loaded, client)) {
        return Ok(Ok(served));
    }
    // The verbs admit more than the excerpt shows.
    let whole = read(lease, Pipeline::default(), key, whole, seen).await?;
    let served = whole.map(|whole| whole.and_then(|whole| decide(verbs, whole, client)));
    Ok(served.and_then(|served| served.ok_or_else(|| RowError::Bad(incomplete()))))
}

/// Sends a pipeline that ends with the statements of an excerpt, and reads the record. None if the
/// excerpt is too short.
async fn read<'a>(
    lease: &mut ConnectionLease<'_>,
    mut pipeline: Pipeline<'a>,
    key: &'a Key,
    extent: ReadExtent,
    seen: u64,
) -> Result<Result<Option<LoadedRecord>, RowError>, tokio_postgres::Error> {
    let is_whole = matches!(extent, ReadExtent::Whole(_));
    let excerpt = ExcerptQuery::ask(&mut pipeline, key, extent);
    let answers = lease.send(pipeline).await?;
    let mut loaded = match excerpt.read(key, &answers, seen) {
        Ok(Some(loaded)) => loaded,
        short_or_bad => return Ok(short_or_bad),
    };
    let reentries = load::reentries(&loaded);
    if !is_whole && !reentries.is_empty() {
        let mut pipeline = Pipeline::default();
        load::ask_reentries(&mut pipeline, key, &reentries);
        let answers = lease.send(pipeline).await?;
        let rows = answers.first().map_or(&[][..], Vec::as_slice);
        if let Err(why) = loaded.add_reentries(key, rows) {
            return Ok(Err(why));
        }
    }
    Ok(Ok(Some(loaded)))
}

/// None if the excerpt turns out to be too short.
fn decide(verbs: &[Verb], loaded: LoadedRecord, client: ClientId) -> Option<DecidedCalls> {
    let before = Record::from_parts(Parts { counter: loaded.sums.counter, ..loaded.parts.clone() });
    let (mut after, mut replies, mut notices) = (before.clone(), Vec::new(), Vec::new());
    for verb in verbs {
        let (reply, more) = verb.decide(&mut after, client, loaded.now);
        if !after.knows_its_head() {
            return None;
        }
        replies.push(reply);
        notices.extend(more);
    }
    Some((DecidedRecord::new(loaded, before, after), replies, notices))
}

fn incomplete() -> BadRow {
    let why = "the rows of the key do not make a record".to_owned();
    BadRow { column: "key", why }
}
