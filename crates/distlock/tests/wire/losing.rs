//! They took what was ours: we notice, and leave it to them.

use distlock::{Error, HoldEnd, LossReason};

use crate::foreign::Library;
use crate::kinds::Kind;
use crate::stage::{LONG, Stage, is_held, is_timeout, ms, soon};

#[tokio::test]
async fn a_hold_that_they_took_is_lost_at_the_next_renewal_and_stays_theirs() {
    let stage = Stage::bare();
    let locks = stage.locks.configure(|o| o.ttl(ms(3_000))).unwrap();
    let mut foreign = stage.foreign(Library::RedlockNpm).await;
    let mut holds = Vec::new();
    for kind in Kind::ALL {
        let key = format!("{kind:?}");
        let hold = kind.try_take(&locks, &key).await.unwrap();
        stage.delete(&key);
        assert!(foreign.take(&key, LONG).await, "{kind:?}");
        holds.push((kind, key.clone(), stage.value(&key), hold));
    }
    for (kind, key, theirs, hold) in holds {
        assert_eq!(soon(hold.guard().lost()).await, LossReason::Gone, "{kind:?}");
        assert_eq!(hold.release().await, HoldEnd::Lost(LossReason::Gone), "{kind:?}");
        assert_eq!(stage.value(&key), theirs, "{kind:?} was given back");
        assert!(stage.ttl(&key).is_some_and(|left| left > LONG / 2), "{kind:?}");
        assert!(foreign.release(&key).await, "{kind:?}");
    }
    stage.finish().await;
}

#[tokio::test]
async fn what_we_do_before_we_notice_leaves_theirs_alone() {
    let stage = Stage::bare();
    let mut foreign = stage.foreign(Library::RedisPy).await;
    for kind in Kind::ALL {
        let hold = kind.try_take(&stage.locks, "jobs").await.unwrap();
        stage.delete("jobs");
        assert!(foreign.take("jobs", LONG).await, "{kind:?}");
        let theirs = stage.value("jobs");
        assert_eq!(hold.release().await, HoldEnd::Lost(LossReason::Gone), "{kind:?}");
        assert_eq!(stage.value("jobs"), theirs, "{kind:?} was released");
        assert!(foreign.release("jobs").await, "{kind:?}");
    }
    // A writer that wants to be a reader.
    let writer = stage.locks.rwlock("jobs").unwrap().write().await.unwrap();
    stage.delete("jobs");
    assert!(foreign.take("jobs", LONG).await);
    let theirs = stage.value("jobs");
    let downgraded = writer.downgrade().await;
    assert!(matches!(downgraded, Err(Error::Lost { .. })), "{downgraded:?}");
    assert_eq!(stage.value("jobs"), theirs, "a writer was downgraded");
    assert!(foreign.release("jobs").await);
    // A second entry.
    let me = stage.locks.reentrant("jobs").unwrap().owner().unwrap();
    let outer = me.lock().await.unwrap();
    stage.delete("jobs");
    assert!(foreign.take("jobs", LONG).await);
    assert!(is_held(&me.try_lock().await), "the thread of work is not inside any more");
    assert_eq!(outer.release().await.unwrap(), HoldEnd::Lost(LossReason::Gone));
    assert!(foreign.release("jobs").await);
    stage.finish().await;
}

#[tokio::test]
async fn a_guard_that_is_dropped_does_not_release_theirs() {
    let stage = Stage::bare();
    let other = stage.other();
    let mut foreign = stage.foreign(Library::RedlockPy).await;
    for kind in Kind::ALL {
        let key = format!("{kind:?}");
        let hold = kind.try_take(&other, &key).await.unwrap();
        stage.delete(&key);
        assert!(foreign.take(&key, LONG).await, "{kind:?}");
        drop(hold);
    }
    // Closing waits until every release was answered.
    other.close().await.unwrap();
    for kind in Kind::ALL {
        let key = format!("{kind:?}");
        assert!(is_held(&Kind::Reader.try_take(&stage.locks, &key).await), "{kind:?}");
        assert!(foreign.release(&key).await);
    }
    stage.finish().await;
}

#[tokio::test]
async fn a_lease_that_ended_cannot_be_extended_over_theirs() {
    let stage = Stage::bare();
    let mut foreign = stage.foreign(Library::RedisPy).await;
    let leases = stage.locks.lease("jobs").unwrap().configure(|o| o.ttl(ms(200))).unwrap();
    let mut lease = leases.acquire().await.unwrap();
    assert!(foreign.wait("jobs", LONG).await);
    let theirs = stage.value("jobs");
    let extended = leases.extend(&mut lease).await;
    assert!(matches!(extended, Err(Error::NotHeld { .. } | Error::Lost { .. })), "{extended:?}");
    assert!(matches!(leases.release(&lease).await, Ok(HoldEnd::Lost(_))));
    let adopted = stage.locks.adopt(&lease).await;
    assert!(matches!(adopted, Err(Error::NotHeld { .. })), "{adopted:?}");
    let quick = leases.clone().configure(|o| o.max_wait(ms(50))).unwrap();
    let got = quick.acquire_or_extend(lease.id()).await;
    assert!(is_timeout(&got), "{got:?}");
    assert_eq!(stage.value("jobs"), theirs);
    assert!(stage.ttl("jobs").is_some_and(|left| left > LONG / 2));
    assert!(foreign.release("jobs").await);
    stage.finish().await;
}

#[tokio::test]
async fn readers_whose_hold_they_took_and_gave_back_stay_lost() {
    let stage = Stage::bare();
    let locks = stage.other().configure(|o| o.ttl(ms(3_000))).unwrap();
    let mut foreign = stage.foreign(Library::RedisPy).await;
    for kind in [Kind::Reader, Kind::Permit, Kind::Reentrant] {
        let old = kind.try_take(&locks, "jobs").await.unwrap();
        stage.delete("jobs");
        assert!(foreign.take("jobs", LONG).await && foreign.release("jobs").await);
        let new = kind.try_take(&stage.locks, "jobs").await.unwrap();
        assert!(new.guard().fence() > old.guard().fence(), "{kind:?}");
        assert_eq!(
            stage.locks.inspect("jobs").await.unwrap().holders_total,
            match kind {
                Kind::Reentrant => 2,
                _ => 1,
            }
        );
        assert_eq!(soon(old.guard().lost()).await, LossReason::Gone, "{kind:?}");
        old.release().await;
        assert!(!foreign.take("jobs", LONG).await, "{kind:?}");
        assert_eq!(new.release().await, HoldEnd::Released, "{kind:?}");
    }
    locks.close().await.unwrap();
    stage.finish().await;
}
