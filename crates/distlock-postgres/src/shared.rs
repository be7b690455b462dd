//! What the calls of one client share, and the tasks that serve them.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use distlock_core::law::AddressedPush;
use distlock_core::sync::lock;
use distlock_core::{Answer, ClientId, Fault, Key, Push, Standing};
use tokio::sync::{broadcast, oneshot};
use tokio::time::{Instant, timeout_at};

use super::config::PostgresConfig;
use super::listener::PushListener;
use super::notifier::Notifier;
use super::pool::{ConnectionEpoch, ConnectionLease, ConnectionPool};
use super::queue::{CallBatch, CallQueue};
use super::verb::{Verb, VerbReply};
use super::{simple, tidy, transaction};

/// How many pushes a client may fall behind. What it misses, its next heartbeat tells.
const POSTGRES_PUSHES_MAX: usize = 1024;

/// How many keys are remembered for which one statement did not do.
const CONTENDED_MAX: usize = 4096;

/// How many connections there are for what is no verb: looks, messages to others, the journal.
const OTHERS_MAX: usize = 2;

/// Fences further ahead of the clock than this were asked for, and are no floor for other keys.
const SEEN_AHEAD_MAX: u64 = 60 * 60 * 1_000_000;

/// What the calls of one client share.
#[derive(Debug)]
pub(super) struct PostgresShared {
    pub(super) config: Arc<PostgresConfig>,
    pub(super) client: ClientId,
    pub(super) epoch: Arc<ConnectionEpoch>,
    verbs: ConnectionPool,
    pub(super) renewals: ConnectionPool,
    pub(super) others: ConnectionPool,
    pub(super) pushes: broadcast::Sender<Push>,
    pub(super) listens: AtomicBool,
    pub(super) listener: PushListener,
    pub(super) notifier: Notifier,
    work: Mutex<PendingCalls>,
    /// The largest fence that this client knows of, and the clock of the server.
    seen: AtomicU64,
    clock: AtomicU64,
    pub(super) tidy: tidy::TidyTurn,
}

#[derive(Debug, Default)]
struct PendingCalls {
    queue: CallQueue<PendingCall>,
    /// How many tasks serve the queue.
    servers: usize,
    /// Keys that were not free when they were asked for last.
    contended: HashSet<Key>,
}

/// One call on its way.
#[derive(Debug)]
struct PendingCall {
    verb: Verb,
    deadline: Instant,
    reply: oneshot::Sender<Result<VerbReply, Fault>>,
    /// One statement may do.
    is_simple: bool,
}

impl PendingCall {
    fn answer(self, reply: Result<VerbReply, Fault>) {
        // A caller that has gone releases what it asked for, which is served after this.
        let _ = self.reply.send(reply);
    }
}

impl PostgresShared {
    pub(super) fn new(config: PostgresConfig) -> Result<Self, Fault> {
        let (config, epoch) = (Arc::new(config), Arc::new(ConnectionEpoch::default()));
        let pool = |most| ConnectionPool::new(Arc::clone(&config), Arc::clone(&epoch), most);
        Ok(Self {
            client: ClientId::random()?,
            verbs: pool(config.connections),
            renewals: pool(1),
            others: pool(OTHERS_MAX),
            epoch: Arc::clone(&epoch),
            config: Arc::clone(&config),
            pushes: broadcast::channel(POSTGRES_PUSHES_MAX).0,
            listens: AtomicBool::new(false),
            listener: PushListener::default(),
            notifier: Notifier::default(),
            work: Mutex::default(),
            seen: AtomicU64::new(0),
            clock: AtomicU64::new(0),
            tidy: tidy::TidyTurn::default(),
        })
    }

    /// Has a verb served, and waits for its answer. Runs on the thread of this client.
    pub(super) async fn submit(self: &Arc<Self>, verb: Verb) -> Result<VerbReply, Fault> {
        let action = verb.action();
        if self.may_push_to_us(&verb) {
            self.listener.ensure(self).await;
        }
        let (reply, answer) = oneshot::channel();
        self.enqueue(verb, reply);
        answer.await.map_err(|_| Fault::transient(action, "the call was dropped"))?
    }

    fn enqueue(self: &Arc<Self>, verb: Verb, reply: oneshot::Sender<Result<VerbReply, Fault>>) {
        let Some(key) = verb.key().cloned() else { return };
        let deadline = Instant::now() + self.config.response_timeout;
        let mut work = lock(&self.work);
        let is_simple = verb.is_simple() && !work.contended.contains(&key);
        work.queue.push(key, PendingCall { verb, deadline, reply, is_simple });
        self.start_servers(&mut work);
    }

    /// Starts tasks for the keys that are ready, as far as there are connections for them.
    fn start_servers(self: &Arc<Self>, work: &mut PendingCalls) {
        let most = work.queue.ready().min(self.config.connections - work.servers);
        work.servers += most;
        for _ in 0..most {
            tokio::spawn(Arc::clone(self).serve_all());
        }
    }

    /// True for a verb after which others may have something to tell this client.
    fn may_push_to_us(&self, verb: &Verb) -> bool {
        let waits = match verb {
            Verb::Acquire(ask) => ask.wait.is_some(),
            Verb::Renew(renewals) => renewals.iter().any(|renewal| renewal.ticket.is_some()),
            _ => false,
        };
        waits && self.config.listen.is_some() && self.listens.load(Ordering::SeqCst)
    }

    /// Serves calls until none is left.
    async fn serve_all(self: Arc<Self>) {
        loop {
            let batch = {
                let mut work = lock(&self.work);
                let Some(batch) = work.queue.next(|job| job.is_simple) else {
                    work.servers -= 1;
                    return;
                };
                batch
            };
            match batch {
                CallBatch::Simple(jobs) => self.serve_simple(jobs).await,
                CallBatch::OfKey(key, jobs) => self.serve_key(&key, jobs).await,
            }
            tidy::take_turn(&self);
        }
    }

    async fn serve_simple(self: &Arc<Self>, jobs: Vec<(Key, PendingCall)>) {
        let deadline = jobs.iter().map(|(_, job)| job.deadline).min().unwrap_or_else(Instant::now);
        let verbs: Vec<_> = jobs.iter().map(|(key, job)| (key, &job.verb)).collect();
        let served = async {
            let mut lease = self.verbs.lease("reach the store").await?;
            let done = simple::run(&mut lease, &verbs, self.client, self.seen()).await;
            lease.finish("reach the store", done).await
        };
        let is_alone = jobs.len() == 1;
        let served = timeout_at(deadline, served).await.unwrap_or_else(|_| Err(self.late()));
        match served {
            Ok(simple::SimpleReplies { replies, clock_us }) => {
                self.note_clock(clock_us);
                for ((key, job), reply) in jobs.into_iter().zip(replies) {
                    match reply {
                        Some(reply) => self.finish(&key, vec![(job, Ok(reply))]),
                        None => self.serve_by_law(&key, job),
                    }
                }
            }
            // One call may have spoilt it for the others: each is served by itself.
            Err(_) if !is_alone && Instant::now() < deadline => {
                jobs.into_iter().for_each(|(key, job)| self.serve_by_law(&key, job));
            }
            Err(fault) => {
                for (key, job) in jobs {
                    let fault = named(&fault, &job.verb, &key);
                    self.finish(&key, vec![(job, Err(fault))]);
                }
            }
        }
    }

    /// Puts a call back that one statement could not serve.
    fn serve_by_law(self: &Arc<Self>, key: &Key, job: PendingCall) {
        let mut work = lock(&self.work);
        if work.contended.len() >= CONTENDED_MAX {
            work.contended.clear();
        }
        work.contended.insert(key.clone());
        work.queue.done(key, Some(PendingCall { is_simple: false, ..job }));
        self.start_servers(&mut work);
    }

    async fn serve_key(self: &Arc<Self>, key: &Key, jobs: Vec<PendingCall>) {
        let deadline = jobs.iter().map(|job| job.deadline).min().unwrap_or_else(Instant::now);
        let verbs: Vec<Verb> = jobs.iter().map(|job| job.verb.clone()).collect();
        let served = async {
            let mut lease = self.verbs.lease("reach the store").await?;
            let done = self.transact(&mut lease, key, &verbs).await;
            lease.finish("reach the store", done).await
        };
        let served = timeout_at(deadline, served).await.unwrap_or_else(|_| Err(self.late()));
        match served {
            Ok(committed) => {
                if committed.is_free {
                    lock(&self.work).contended.remove(key);
                }
                self.tell(&committed.notices);
                self.finish(key, jobs.into_iter().zip(committed.replies).collect());
            }
            Err(fault) => {
                let answered = jobs.into_iter().map(|job| {
                    let fault = named(&fault, &job.verb, key);
                    (job, Err(fault))
                });
                self.finish(key, answered.collect());
            }
        }
    }

    async fn transact(
        &self,
        lease: &mut ConnectionLease<'_>,
        key: &Key,
        verbs: &[Verb],
    ) -> Result<transaction::CommittedCalls, tokio_postgres::Error> {
        let committed = transaction::run(lease, key, verbs, self.client, self.seen()).await?;
        self.note_clock(committed.clock_us);
        Ok(committed)
    }

    fn note_clock(&self, us: Option<u64>) {
        self.clock.fetch_max(us.unwrap_or(0), Ordering::SeqCst);
    }

    /// Answers calls, and gives the key to the next ones.
    fn finish(&self, key: &Key, answered: Vec<(PendingCall, Result<VerbReply, Fault>)>) {
        lock(&self.work).queue.done(key, None);
        for (job, reply) in answered {
            self.note(&reply);
            job.answer(reply);
        }
    }

    /// Remembers the largest fence: a server that has lost some of its past, or whose clock is
    /// behind, gives out no smaller one to this client.
    fn note(&self, reply: &Result<VerbReply, Fault>) {
        let known = match reply {
            Ok(VerbReply::Answer(Answer::Granted { fence })) => Some(*fence),
            Ok(VerbReply::Standings(standings)) => standings
                .iter()
                .filter_map(|standing| match standing {
                    Standing::Held { fence } => Some(*fence),
                    _ => None,
                })
                .max(),
            _ => None,
        };
        if let Some(fence) = known {
            self.seen.fetch_max(fence, Ordering::SeqCst);
        }
    }

    fn seen(&self) -> u64 {
        let (seen, clock) = (self.seen.load(Ordering::SeqCst), self.clock.load(Ordering::SeqCst));
        if seen > clock.saturating_add(SEEN_AHEAD_MAX) { 0 } else { seen }
    }

    /// Tells clients what was decided about them.
    pub(super) fn tell(self: &Arc<Self>, notices: &[AddressedPush]) {
        for notice in notices.iter().filter(|notice| notice.to == self.client) {
            // A client without a receiver is no error: the heartbeat finds the grant.
            let _ = self.pushes.send(notice.push);
        }
        let others = notices.iter().filter(|notice| notice.to != self.client);
        self.notifier.tell(self, others.copied());
    }

    fn late(&self) -> Fault {
        let within = self.config.response_timeout;
        let fault = Fault::transient("reach the store", format!("no answer within {within:?}"));
        fault
            .at_store(self.config.location())
            .advise("check the network and how busy the server is")
    }
}

/// The fault of a transaction as that of one call in it.
fn named(fault: &Fault, verb: &Verb, key: &Key) -> Fault {
    fault.clone().during(verb.action()).at_key(key)
}
