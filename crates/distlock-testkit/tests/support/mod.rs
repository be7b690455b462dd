//! A store that runs the law on a clock of the test, with a switch for planted bugs.

#![allow(dead_code, reason = "every test file uses a part of it")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use distlock_core::law::{AddressedPush, Now, Record};
use distlock_core::{
    Answer, Ask, Backend, Capabilities, Claim, ClaimId, ClientId, Cursor, Extensions, Fault,
    Health, Key, Label, Moment, Page, Pending, Push, ReleaseOptions, ReleaseOutcome, Renewal,
    Snapshot, Standing, Streaming, Target,
};
use futures_util::stream;
use tokio::sync::broadcast;
use tokio::time::Instant;

/// A client of a store in memory that runs on tokio's clock.
#[derive(Debug)]
pub(crate) struct Store {
    shelf: Arc<Mutex<Shelf>>,
    client: ClientId,
    created: Instant,
    bug: Bug,
}

/// What the store does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    None,
    ForgetsWaiters,
    RepeatsFences,
    SwallowsPushes,
    IgnoresBury,
    GrantsEverything,
}

#[derive(Debug, Default)]
struct Shelf {
    records: HashMap<Key, Record>,
    clients: HashMap<ClientId, broadcast::Sender<Push>>,
}

impl Store {
    pub(crate) fn clients(count: u8, bug: Bug) -> Vec<Arc<dyn Backend>> {
        let shelf = Arc::new(Mutex::new(Shelf::default()));
        let created = Instant::now();
        let one = |number: u8| {
            let client = ClientId::from_bytes([number; 16]);
            shelf.lock().expect("no panic").clients.insert(client, broadcast::channel(1024).0);
            Arc::new(Self { shelf: Arc::clone(&shelf), client, created, bug }) as Arc<dyn Backend>
        };
        (1..=count).map(one).collect()
    }

    fn decide<T>(
        &self,
        key: &Key,
        verb: impl FnOnce(&mut Record, Now) -> (T, Vec<AddressedPush>),
    ) -> T {
        let now = self.now();
        let mut shelf = self.shelf.lock().expect("no panic");
        let record = shelf.records.entry(key.clone()).or_insert_with(|| Record::new(0));
        let (outcome, notices) = verb(record, now);
        for notice in notices.iter().filter(|_| self.bug != Bug::SwallowsPushes) {
            let _ = shelf.clients[&notice.to].send(notice.push);
        }
        outcome
    }

    fn now(&self) -> Now {
        let micros = u64::try_from(self.created.elapsed().as_micros()).expect("a short test");
        Now { at: Moment::from_micros(micros), seed: 1_000_000 + micros }
    }
}

impl Backend for Store {
    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
    }

    fn acquire<'a>(&'a self, ask: &'a Ask) -> Pending<'a, Answer> {
        Box::pin(async move {
            let mut ask = ask.clone();
            if self.bug == Bug::ForgetsWaiters && ask.wait.is_some_and(|w| w.waiters_max > 2) {
                ask.wait = None;
            }
            if self.bug == Bug::GrantsEverything {
                ask.claim.key = Key::new(format!("{:?}", ask.claim.id)).expect("short");
            }
            let key = ask.claim.key.clone();
            let answer = self.decide(&key, |r, now| r.acquire(&ask, self.client, now));
            Ok(match answer {
                Answer::Granted { .. } if self.bug == Bug::RepeatsFences => {
                    Answer::Granted { fence: 1 }
                }
                answer => answer,
            })
        })
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
    ) -> Streaming<'a, (usize, Result<Standing, Fault>)> {
        Box::pin(stream::iter(batch.iter().enumerate().map(|(index, renewal)| {
            let key = &renewal.claim.key;
            (index, Ok(self.decide(key, |r, now| r.renew(renewal, self.client, now))))
        })))
    }

    fn release<'a>(
        &'a self,
        target: &'a Target,
        mut how: ReleaseOptions,
    ) -> Pending<'a, ReleaseOutcome> {
        if self.bug == Bug::IgnoresBury {
            how.bury = std::time::Duration::ZERO;
        }
        Box::pin(async move {
            Ok(self.decide(target.key(), |record, now| record.release(target, how, now)))
        })
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Pending<'a, Snapshot> {
        Box::pin(async move {
            let now = self.now().at;
            let shelf = self.shelf.lock().expect("no panic");
            let record = shelf.records.get(key);
            Ok(record.map_or_else(|| Snapshot::free(key.clone()), |r| r.inspect(key, now)))
        })
    }

    fn list<'a>(&'a self, _: &'a str, _: Option<&'a Cursor>) -> Pending<'a, Page> {
        Box::pin(async { Err(Fault::unsupported("listing")) })
    }

    fn probe(&self) -> Pending<'_, Health> {
        Box::pin(async { Ok(Health::new("test", "test")) })
    }

    fn pushes(&self) -> Streaming<'static, Push> {
        let receiver = self.shelf.lock().expect("no panic").clients[&self.client].subscribe();
        Box::pin(stream::unfold(receiver, |mut receiver| async move {
            receiver.recv().await.ok().map(|push| (push, receiver))
        }))
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions::at("a store of the tests")
    }
}

/// A claim on `key` whose id is a number.
pub(crate) fn claim(key: &str, number: u128) -> Claim {
    Claim::new(Key::new(key).expect("short"), ClaimId::from_bytes(number.to_be_bytes()))
}

/// A one-shot ask for a mutex.
pub(crate) fn ask(key: &str, number: u128, ttl: std::time::Duration) -> Ask {
    Ask::new(claim(key, number), Label::new("owner", "test").expect("short"), ttl)
}
