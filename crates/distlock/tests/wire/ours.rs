//! We hold, and other libraries are excluded until we release.

use distlock::HoldEnd;

use crate::foreign::Library;
use crate::kinds::Kind;
use crate::stage::{LONG, Naming, SOON, Stage, assert_all_end, ms, soon};

#[tokio::test]
async fn every_kind_of_ours_excludes_every_foreign_client() {
    for naming in Naming::BOTH {
        let stage = Stage::new(naming);
        let name = stage.name("jobs");
        for library in Library::ALL {
            let mut foreign = stage.foreign(library).await;
            for kind in Kind::ALL {
                let hold = kind.try_take(&stage.locks, "jobs").await.unwrap();
                let ours = stage.value("jobs");
                assert!(!foreign.take(&name, LONG).await, "{library:?} beside {kind:?}");
                assert_eq!(stage.value("jobs"), ours, "{library:?} beside {kind:?}");
                assert_eq!(hold.release().await, HoldEnd::Released);
                assert!(foreign.take(&name, LONG).await, "{library:?} after {kind:?}");
                assert!(foreign.release(&name).await, "{library:?} after {kind:?}");
            }
        }
        stage.finish().await;
    }
}

#[tokio::test]
async fn a_foreign_client_with_an_old_token_can_do_nothing_to_ours() {
    let stage = Stage::bare();
    for library in Library::ALL {
        let mut foreign = stage.foreign(library).await;
        for kind in Kind::ALL {
            assert!(foreign.take("jobs", LONG).await, "{library:?}");
            stage.delete("jobs");
            let hold = kind.try_take(&stage.locks, "jobs").await.unwrap();
            let ours = stage.value("jobs");
            assert!(!foreign.extend("jobs", LONG * 60).await, "{library:?} extends {kind:?}");
            let released = foreign.release("jobs").await;
            assert!(!released || library == Library::RedlockPy, "{library:?} releases {kind:?}");
            assert_eq!(stage.value("jobs"), ours, "{library:?} and {kind:?}");
            assert!(stage.ttl("jobs").is_some_and(|left| left <= LONG), "{library:?}, {kind:?}");
            assert_eq!(hold.release().await, HoldEnd::Released, "{library:?} and {kind:?}");
        }
    }
    stage.finish().await;
}

#[tokio::test]
async fn the_last_of_several_holders_still_excludes_them() {
    let stage = Stage::bare();
    let mut foreign = stage.foreign(Library::RedlockNpm).await;
    for kind in [Kind::Reader, Kind::Permit] {
        let other = stage.other();
        let one = kind.try_take(&stage.locks, "jobs").await.unwrap();
        let two = kind.try_take(&other, "jobs").await.unwrap();
        one.release().await;
        assert!(!foreign.take("jobs", LONG).await, "{kind:?}");
        two.release().await;
        assert!(foreign.take("jobs", LONG).await && foreign.release("jobs").await, "{kind:?}");
        other.close().await.unwrap();
    }
    // Out of order: the entry that began last goes last.
    let me = stage.locks.reentrant("jobs").unwrap().owner().unwrap();
    let (outer, inner) = (me.lock().await.unwrap(), me.lock().await.unwrap());
    outer.release().await.unwrap();
    assert!(!foreign.take("jobs", LONG).await);
    inner.release().await.unwrap();
    assert!(foreign.take("jobs", LONG).await && foreign.release("jobs").await);
    stage.finish().await;
}

#[tokio::test]
async fn a_renewed_hold_excludes_them_long_after_its_first_lease() {
    let stage = Stage::bare();
    let locks = stage.locks.configure(|o| o.ttl(ms(600))).unwrap();
    let mut foreign = stage.foreign(Library::RedisPy).await;
    let mut holds = Vec::new();
    for kind in Kind::ALL {
        holds.push(kind.try_take(&locks, &format!("{kind:?}")).await.unwrap());
    }
    tokio::time::sleep(ms(1_500)).await;
    for (kind, hold) in Kind::ALL.into_iter().zip(holds) {
        assert!(hold.guard().is_held(), "{kind:?} was lost: {:?}", hold.guard().loss());
        assert!(!foreign.take(&format!("{kind:?}"), LONG).await, "{kind:?}");
        hold.release().await;
    }
    stage.finish().await;
}

#[tokio::test]
async fn a_hand_over_among_us_leaves_them_no_gap() {
    let stage = Stage::bare();
    let other = stage.other();
    let mut foreign = stage.foreign(Library::RedisPy).await;
    for (first, next) in [
        (Kind::Mutex, Kind::Mutex),
        (Kind::Reader, Kind::Writer),
        (Kind::Writer, Kind::Reader),
        (Kind::AllPermits, Kind::Permit),
        (Kind::Reentrant, Kind::Reentrant),
    ] {
        let hold = first.try_take(&stage.locks, "jobs").await.unwrap();
        let releases = async {
            stage.queued("jobs", 1).await;
            hold.release().await;
            assert!(!foreign.take("jobs", LONG).await, "{next:?} was next");
        };
        let (got, ()) = tokio::join!(next.wait(&other, "jobs", SOON), releases);
        got.unwrap().release().await;
    }
    other.close().await.unwrap();
    stage.finish().await;
}

#[tokio::test]
async fn a_writer_that_turns_into_a_reader_still_excludes_them() {
    let stage = Stage::new(Naming::Named);
    let name = stage.name("jobs");
    let mut foreign = stage.foreign(Library::RedlockPy).await;
    let writer = stage.locks.rwlock("jobs").unwrap().write().await.unwrap();
    let reader = writer.downgrade().await.unwrap();
    assert!(!foreign.take(&name, LONG).await);
    let second = Kind::Reader.try_take(&stage.locks, "jobs").await.unwrap();
    reader.release().await.unwrap();
    assert!(!foreign.take(&name, LONG).await);
    second.release().await;
    assert!(foreign.take(&name, LONG).await && foreign.release(&name).await);
    stage.finish().await;
}

/// What was released stays buried for a while, so counters are not all that remains.
async fn assert_kept_for_the_rest_only(kind: Kind) {
    let stage = Stage::bare();
    let locks = stage.locks.configure(|o| o.hold_at_least(ms(1_500))).unwrap();
    let mut foreign = stage.foreign(Library::RedisPy).await;
    kind.try_take(&locks, "jobs").await.unwrap().release().await;
    assert!(!foreign.take("jobs", LONG).await, "{kind:?} is kept");
    let left = stage.ttl("jobs");
    assert!(left.is_some_and(|left| left <= ms(1_500)), "{kind:?} keeps them out for {left:?}");
    assert!(foreign.wait("jobs", LONG).await && foreign.release("jobs").await, "{kind:?}");
    assert_all_end(&stage.server);
}

#[tokio::test]
async fn a_key_that_is_kept_after_an_exclusive_hold_excludes_them_for_the_rest() {
    assert_kept_for_the_rest_only(Kind::Mutex).await;
}

#[tokio::test]
async fn a_key_that_is_kept_after_a_shared_hold_excludes_them_for_the_rest() {
    assert_kept_for_the_rest_only(Kind::Reader).await;
}

#[tokio::test]
async fn the_lease_of_a_reader_that_left_keeps_nobody_out() {
    let stage = Stage::bare();
    let quick = stage.locks.configure(|o| o.ttl(ms(1_000))).unwrap();
    let mut foreign = stage.foreign(Library::RedisPy).await;
    let long = Kind::Reader.try_take(&stage.locks, "jobs").await.unwrap();
    let short = Kind::Reader.try_take(&quick, "jobs").await.unwrap();
    long.release().await;
    assert!(!foreign.take("jobs", LONG).await, "one reader is left");
    let left = stage.ttl("jobs");
    assert!(left.is_some_and(|left| left <= ms(1_000)), "its lease ends in {left:?}");
    short.release().await;
    stage.finish().await;
}

#[tokio::test]
async fn they_wait_for_our_release_and_for_the_end_of_our_lease() {
    let stage = Stage::bare();
    let mut foreign = stage.foreign(Library::RedisPy).await;
    let hold = Kind::Writer.try_take(&stage.locks, "jobs").await.unwrap();
    let releases = async {
        tokio::time::sleep(ms(50)).await;
        hold.release().await;
    };
    let (got, ()) = tokio::join!(foreign.wait("jobs", LONG), releases);
    assert!(got && foreign.release("jobs").await);
    for kind in [Kind::Mutex, Kind::Reader] {
        let locks = stage.locks.configure(|o| o.ttl(ms(400))).unwrap();
        kind.try_take(&locks, "jobs").await.unwrap().crash();
        assert!(soon(foreign.wait("jobs", LONG)).await, "{kind:?}");
        assert!(foreign.release("jobs").await);
        // One of our clients asks and clears up.
        Kind::Mutex.try_take(&stage.locks, "jobs").await.unwrap().release().await;
    }
    stage.finish().await;
}
