//! Every public async fn, ready to be called.

use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use distlock::{Locks, QueueOutcome};
use tokio::time::{sleep, timeout};

use crate::prop::{ID, Prop, guard, lease, nothing, reentrant, waiter, writer};
use crate::stage::KEY;

/// A call that has been made and not been polled yet.
pub(crate) type Running = Pin<Box<dyn Future<Output = ()>>>;

/// By when a hold that an operator meets is broken.
const BROKEN_BY: Duration = Duration::from_millis(200);

/// Several keys, one of which may be in use.
const KEYS: [&str; 3] = ["swept/after", KEY, "swept/zzz"];

/// How long the bounded forms wait.
const WAIT: Duration = Duration::from_millis(90);

/// How long protected work takes.
const WORK: Duration = Duration::from_millis(15);

/// A ttl longer than that of all others.
const LONGER: Duration = Duration::from_secs(90);

/// Who is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rival {
    /// Nothing: the key is ours.
    None,
    /// Holds the key alone.
    Mutex,
    Reader,
    Writer,
    /// An operator breaks what is held midway.
    Breaks,
}

/// One public async fn.
pub(crate) struct Call {
    pub(crate) name: &'static str,
    pub(crate) rival: Rival,
    pub(crate) prepare: fn(Locks) -> Pin<Box<dyn Future<Output = Prop>>>,
    pub(crate) run: fn(Locks, Rc<Prop>) -> Running,
}

/// `"Type::name": rival, what is there before, |locks, prop| the call;`
macro_rules! calls {
    ($($name:literal: $rival:ident, $prepare:ident, |$locks:ident, $prop:ident| $call:expr;)*) => {
        pub(crate) const CALLS: &[Call] = &[$(Call {
            name: $name,
            rival: Rival::$rival,
            prepare: |locks| Box::pin($prepare(locks)),
            run: |$locks, $prop| Box::pin(async move {
                let _ = (&$locks, &$prop);
                let _dropped_at_the_end = $call;
            }),
        },)*];
    };
}

calls! {
    "Mutex::lock": Mutex, nothing, |l, p| l.mutex(KEY).unwrap().lock().await;
    "Mutex::try_lock": Mutex, nothing, |l, p| l.mutex(KEY).unwrap().try_lock().await;
    "Mutex::try_lock_for": Mutex, nothing, |l, p| l.mutex(KEY).unwrap().try_lock_for(WAIT).await;
    "Mutex::with": Mutex, nothing,
        |l, p| l.mutex(KEY).unwrap().with(async |_| sleep(WORK).await).await;

    "RwLock::read": Writer, nothing, |l, p| l.rwlock(KEY).unwrap().read().await;
    "RwLock::try_read": Writer, nothing, |l, p| l.rwlock(KEY).unwrap().try_read().await;
    "RwLock::try_read_for": Writer, nothing,
        |l, p| l.rwlock(KEY).unwrap().try_read_for(WAIT).await;
    "RwLock::with_read": Writer, nothing,
        |l, p| l.rwlock(KEY).unwrap().with_read(async |_| sleep(WORK).await).await;
    "RwLock::write": Writer, nothing, |l, p| l.rwlock(KEY).unwrap().write().await;
    "RwLock::write": Reader, nothing, |l, p| l.rwlock(KEY).unwrap().write().await;
    "RwLock::try_write": Reader, nothing, |l, p| l.rwlock(KEY).unwrap().try_write().await;
    "RwLock::try_write_for": Reader, nothing,
        |l, p| l.rwlock(KEY).unwrap().try_write_for(WAIT).await;
    "RwLock::with_write": Reader, nothing,
        |l, p| l.rwlock(KEY).unwrap().with_write(async |_| sleep(WORK).await).await;
    "WriteGuard::downgrade": None, writer, |l, p| p.take_writer().downgrade().await;
    "WriteGuard::downgrade": Breaks, writer, |l, p| p.take_writer().downgrade().await;
    "WriteGuard::release": None, writer, |l, p| p.take_writer().release().await;

    "Semaphore::acquire": Mutex, nothing,
        |l, p| l.semaphore(KEY, 3).unwrap().acquire().await;
    "Semaphore::acquire_many": Mutex, nothing,
        |l, p| l.semaphore(KEY, 3).unwrap().acquire_many(2).await;
    "Semaphore::try_acquire": Mutex, nothing,
        |l, p| l.semaphore(KEY, 3).unwrap().try_acquire().await;
    "Semaphore::try_acquire_many": Mutex, nothing,
        |l, p| l.semaphore(KEY, 3).unwrap().try_acquire_many(3).await;
    "Semaphore::try_acquire_for": Mutex, nothing,
        |l, p| l.semaphore(KEY, 3).unwrap().try_acquire_for(WAIT).await;
    "Semaphore::try_acquire_many_for": Mutex, nothing,
        |l, p| l.semaphore(KEY, 3).unwrap().try_acquire_many_for(2, WAIT).await;
    "Semaphore::available": Mutex, nothing,
        |l, p| l.semaphore(KEY, 3).unwrap().available().await;
    "Semaphore::with": Mutex, nothing,
        |l, p| l.semaphore(KEY, 3).unwrap().with(async |_| sleep(WORK).await).await;

    "ReentrantOwner::lock": Mutex, nothing,
        |l, p| l.reentrant(KEY).unwrap().owner().unwrap().lock().await;
    "ReentrantOwner::lock": None, reentrant, |l, p| p.owner().lock().await;
    "ReentrantOwner::try_lock": Mutex, nothing,
        |l, p| l.reentrant(KEY).unwrap().owner().unwrap().try_lock().await;
    "ReentrantOwner::try_lock_for": Mutex, nothing,
        |l, p| l.reentrant(KEY).unwrap().owner().unwrap().try_lock_for(WAIT).await;
    "ReentrantOwner::with": Mutex, nothing, |l, p| {
        let me = l.reentrant(KEY).unwrap().owner().unwrap();
        me.with(async |_| me.with(async |_| sleep(WORK).await).await).await
    };
    "ReentrantGuard::release": None, reentrant, |l, p| p.take_entry().release().await;

    "Guard::lost": Breaks, guard, |l, p| p.take_guard().lost().await;
    "Guard::run": None, guard, |l, p| p.take_guard().run(sleep(WORK)).await;
    "Guard::run": Breaks, guard, |l, p| p.take_guard().run(std::future::pending::<()>()).await;
    "Guard::release": None, guard, |l, p| p.take_guard().release().await;
    "Guard::release": Breaks, guard, |l, p| p.take_guard().release().await;
    "HoldWatcher::ended": Breaks, guard, |l, p| {
        let guard = p.take_guard();
        guard.watch().ended().await
    };

    "MultiLock::lock": Mutex, nothing, |l, p| l.all(KEYS).unwrap().lock().await;
    "MultiLock::try_lock": Mutex, nothing, |l, p| l.all(KEYS).unwrap().try_lock().await;
    "MultiLock::try_lock_for": Mutex, nothing,
        |l, p| l.all(KEYS).unwrap().try_lock_for(WAIT).await;
    "MultiLock::with": Mutex, nothing,
        |l, p| l.all(KEYS).unwrap().with(async |_| sleep(WORK).await).await;
    "MultiGuard::lost": Breaks, nothing, |l, p| {
        match l.all(KEYS).unwrap().lock().await {
            Ok(guard) => timeout(BROKEN_BY, guard.lost()).await.ok(),
            Err(_) => None,
        }
    };
    "MultiGuard::run": Breaks, nothing, |l, p| {
        match l.all(KEYS).unwrap().lock().await {
            Ok(guard) => guard.run(sleep(BROKEN_BY)).await,
            Err(error) => Err(error),
        }
    };
    "MultiGuard::release": Mutex, nothing, |l, p| {
        match l.all(KEYS).unwrap().lock().await {
            Ok(guard) => guard.release().await.len(),
            Err(_) => 0,
        }
    };

    "Election::campaign": Mutex, nothing, |l, p| l.election(KEY).unwrap().campaign().await;
    "Election::try_campaign": Mutex, nothing,
        |l, p| l.election(KEY).unwrap().try_campaign().await;
    "Election::campaign_for": Mutex, nothing,
        |l, p| l.election(KEY).unwrap().campaign_for(WAIT).await;
    "Election::run": Mutex, nothing,
        |l, p| l.election(KEY).unwrap().run(async |_| sleep(WORK).await).await;
    "Election::run": Breaks, nothing, |l, p| {
        let mut terms = 0;
        l.election(KEY).unwrap().run(async |_| {
            terms += 1;
            sleep(if terms == 1 { WAIT } else { WORK }).await;
        }).await
    };
    "Election::leader": Mutex, nothing, |l, p| l.election(KEY).unwrap().leader().await;
    "Election::standby": Mutex, nothing, |l, p| l.election(KEY).unwrap().standby().await;
    "Leadership::resign": Mutex, nothing, |l, p| {
        match l.election(KEY).unwrap().campaign().await {
            Ok(leadership) => leadership.resign().await.is_ok(),
            Err(_) => false,
        }
    };

    "Leases::acquire": Mutex, nothing, |l, p| p.got(l.lease(KEY).unwrap().acquire().await);
    "Leases::try_acquire": Mutex, nothing,
        |l, p| p.got(l.lease(KEY).unwrap().try_acquire().await);
    "Leases::try_acquire_for": Mutex, nothing,
        |l, p| p.got(l.lease(KEY).unwrap().try_acquire_for(WAIT).await);
    "Leases::acquire_as": Mutex, nothing,
        |l, p| p.got(l.lease(KEY).unwrap().acquire_as(ID).await);
    "Leases::try_acquire_as": Mutex, nothing,
        |l, p| p.got(l.lease(KEY).unwrap().try_acquire_as(ID).await);
    "Leases::acquire_or_queue": Mutex, nothing, |l, p| {
        let leases = l.lease(KEY).unwrap().configure(|o| o.max_wait(WAIT)).unwrap();
        match leases.acquire_or_queue(ID).await {
            Ok(QueueOutcome::Granted(lease)) => p.got(Ok(lease)),
            // The place is the caller's now.
            Ok(_) => {
                p.got(Ok(leases.lease_of(ID)));
                p.may_be_gone();
            }
            Err(_) => {}
        }
    };
    "Leases::find": None, lease, |l, p| l.lease(KEY).unwrap().find(p.lease().id()).await;
    "Leases::extend": None, lease,
        |l, p| l.lease(KEY).unwrap().extend(&mut p.lease()).await;
    "Leases::extend_for": None, lease,
        |l, p| l.lease(KEY).unwrap().extend_for(&mut p.lease(), LONGER).await;
    "Leases::extend_retrying": None, lease,
        |l, p| l.lease(KEY).unwrap().extend_retrying(&mut p.lease()).await;
    "Leases::acquire_or_extend": Mutex, nothing,
        |l, p| p.got(l.lease(KEY).unwrap().acquire_or_extend(ID).await);
    "Leases::acquire_or_extend": None, lease, |l, p| {
        let id = p.lease().id();
        l.lease(KEY).unwrap().acquire_or_extend(id).await
    };
    "Leases::release": None, lease, |l, p| {
        let lease = p.lease();
        p.may_be_gone();
        l.lease(KEY).unwrap().release(&lease).await
    };

    "Leases::give_up": None, lease, |l, p| {
        let lease = p.lease();
        p.may_be_gone();
        l.lease(KEY).unwrap().give_up(&lease).await
    };

    "Locks::adopt": None, lease, |l, p| {
        let adopted = l.adopt(&p.lease()).await;
        if adopted.is_ok() {
            p.may_be_gone();
        }
        adopted
    };
    "Locks::inspect": Mutex, nothing, |l, p| l.inspect(KEY).await;
    "Locks::list": Mutex, nothing, |l, p| l.list("", None).await;
    "Locks::break_hold": None, guard, |l, p| {
        let held = p.take_guard();
        l.break_hold(KEY, held.fence()).await
    };
    "Locks::history": Mutex, nothing, |l, p| l.history(KEY, 9).await;
    "Locks::journal_page": Mutex, nothing, |l, p| l.journal_page(None, 9).await;
    "Locks::flush_journal": Mutex, nothing, |l, p| l.flush_journal().await;
    "Locks::probe": Mutex, nothing, |l, p| l.probe().await;
    "Locks::drained": None, guard, |l, p| {
        drop(p.take_guard());
        l.drained().await
    };
    "Locks::release_everywhere": None, lease, |l, p| l.release_everywhere(&p.lease()).await;
    "Locks::close": None, guard, |l, p| l.close().await;
    "Locks::close": None, waiter, |l, p| l.close().await;
}
