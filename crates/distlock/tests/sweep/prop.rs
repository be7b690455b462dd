//! What a call needs to find: a guard, a lease, a waiter.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use distlock::{ClaimId, Error, Guard, Lease, Locks, ReentrantGuard, ReentrantOwner, WriteGuard};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::stage::KEY;

/// A claim id of the caller's. Every stage has a store of its own.
pub(crate) const ID: ClaimId = ClaimId::from_bytes([7; 16]);

/// What was there before the call, and what the call got.
#[derive(Default)]
pub(crate) struct Prop {
    guard: RefCell<Option<Guard>>,
    writer: RefCell<Option<WriteGuard>>,
    entry: RefCell<Option<(ReentrantOwner, Option<ReentrantGuard>)>>,
    lease: RefCell<Option<Lease>>,
    /// The lease must be there in the end, whatever happens to the call.
    stays: Cell<bool>,
    bystander: Option<JoinHandle<()>>,
}

pub(crate) async fn nothing(_: Locks) -> Prop {
    Prop::default()
}

pub(crate) async fn guard(locks: Locks) -> Prop {
    let guard = locks.mutex(KEY).unwrap().lock().await.unwrap();
    Prop { guard: RefCell::new(Some(guard)), ..Prop::default() }
}

pub(crate) async fn writer(locks: Locks) -> Prop {
    let writer = locks.rwlock(KEY).unwrap().write().await.unwrap();
    Prop { writer: RefCell::new(Some(writer)), ..Prop::default() }
}

/// The owner holds the mutex already.
pub(crate) async fn reentrant(locks: Locks) -> Prop {
    let owner = locks.reentrant(KEY).unwrap().owner().unwrap();
    let entry = owner.lock().await.unwrap();
    Prop { entry: RefCell::new(Some((owner, Some(entry)))), ..Prop::default() }
}

pub(crate) async fn lease(locks: Locks) -> Prop {
    let lease = locks.lease(KEY).unwrap().acquire().await.unwrap();
    Prop { lease: RefCell::new(Some(lease)), stays: Cell::new(true), ..Prop::default() }
}

/// One holds and another waits behind it.
pub(crate) async fn waiter(locks: Locks) -> Prop {
    let prop = guard(locks.clone()).await;
    let bystander = tokio::spawn(async move {
        // Told that the locks are closed; or granted, on a stage that was never played on.
        drop(locks.mutex(KEY).unwrap().lock().await);
    });
    sleep(Duration::from_millis(5)).await;
    Prop { bystander: Some(bystander), ..prop }
}

impl Prop {
    pub(crate) fn take_guard(&self) -> Guard {
        self.guard.take().unwrap()
    }

    pub(crate) fn take_writer(&self) -> WriteGuard {
        self.writer.take().unwrap()
    }

    pub(crate) fn owner(&self) -> ReentrantOwner {
        self.entry.borrow().as_ref().unwrap().0.clone()
    }

    pub(crate) fn take_entry(&self) -> ReentrantGuard {
        self.entry.borrow_mut().as_mut().unwrap().1.take().unwrap()
    }

    pub(crate) fn lease(&self) -> Lease {
        self.lease.borrow().clone().unwrap()
    }

    /// The call was answered with a lease, which no client but this test releases.
    pub(crate) fn got(&self, lease: Result<Lease, Error>) {
        if let Ok(lease) = lease {
            self.lease.replace(Some(lease));
            self.stays.set(true);
        }
    }

    /// From now on the lease is there or not.
    pub(crate) fn may_be_gone(&self) {
        self.stays.set(false);
    }

    /// Drops everything. A lease that must be there is there until then.
    pub(crate) async fn leaves(self, clean: &Locks) -> Result<(), String> {
        let Self { guard, writer, entry, lease, stays, bystander } = self;
        drop((guard, writer, entry));
        if let Some(bystander) = bystander {
            bystander.await.expect("a client that waits is told");
        }
        let Some(lease) = lease.into_inner() else { return Ok(()) };
        // A closing release of another claim must not have hit it.
        sleep(Duration::from_secs(1)).await;
        let held = clean.inspect(KEY).await.unwrap().holders;
        let there = held.iter().any(|holder| holder.fence == lease.fence());
        clean.lease(KEY).unwrap().release(&lease).await.unwrap();
        if there || !stays.get() {
            return Ok(());
        }
        Err(format!("the lease is gone, held: {held:?}"))
    }
}
