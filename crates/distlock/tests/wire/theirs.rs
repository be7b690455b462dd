//! Other libraries hold, and we are excluded until they release.

use std::time::Instant;

use distlock::{Error, Locks};

use crate::foreign::Library;
use crate::kinds::Kind;
use crate::stage::{LONG, Naming, SOON, Stage, is_held, is_timeout, ms, soon};

/// Every kind of ours is refused, and told that a foreign client holds.
async fn assert_excluded(locks: &Locks, key: &str) {
    for kind in Kind::ALL {
        let refused = kind.try_take(locks, key).await;
        assert!(is_held(&refused), "{kind:?} at {key}: {refused:?}");
    }
    let seen = locks.inspect(key).await.unwrap();
    assert_eq!((seen.holders_total, seen.waiters_total), (1, 0), "{seen:?}");
    let holder = &seen.holders[0];
    assert_eq!((holder.owner.as_str(), holder.exclusive), ("foreign", true), "{holder:?}");
}

#[tokio::test]
async fn a_foreign_hold_excludes_every_kind_of_ours() {
    for naming in Naming::BOTH {
        let stage = Stage::new(naming);
        for library in Library::ALL {
            let mut foreign = stage.foreign(library).await;
            assert!(foreign.take(&stage.name("jobs"), LONG).await, "{library:?}");
            let theirs = stage.value("jobs");
            assert_excluded(&stage.locks, "jobs").await;
            let seen = stage.locks.inspect("jobs").await.unwrap();
            assert!(seen.holders[0].expires_in.is_some_and(|left| left <= LONG), "{seen:?}");
            assert_eq!(stage.value("jobs"), theirs, "{library:?}: its value is its own");
            assert!(foreign.release(&stage.name("jobs")).await, "{library:?}");
            for kind in Kind::ALL {
                let hold = kind.try_take(&stage.locks, "jobs").await.unwrap();
                hold.release().await;
            }
        }
        stage.finish().await;
    }
}

#[tokio::test]
async fn a_foreign_lock_without_a_timeout_excludes_us_until_it_is_released() {
    let stage = Stage::bare();
    let mut foreign = stage.foreign(Library::RedisPy).await;
    assert!(foreign.take("jobs", None).await);
    assert_excluded(&stage.locks, "jobs").await;
    assert_eq!(stage.locks.inspect("jobs").await.unwrap().holders[0].expires_in, None);
    let refused = stage.locks.mutex("jobs").unwrap().try_lock().await;
    assert!(matches!(refused, Err(Error::Held { retry_after: None, .. })), "{refused:?}");
    assert_eq!(stage.ttl("jobs"), None, "it has no end");
    let waits = Kind::Mutex.wait(&stage.locks, "jobs", SOON);
    let releases = async {
        stage.queued("jobs", 1).await;
        assert!(foreign.release("jobs").await);
    };
    let (hold, ()) = tokio::join!(waits, releases);
    hold.unwrap().release().await;
    stage.finish().await;
}

#[tokio::test]
async fn a_waiter_of_any_kind_notices_the_foreign_release() {
    for (library, naming) in
        Library::ALL.into_iter().zip([Naming::Bare, Naming::Named, Naming::Bare])
    {
        let stage = Stage::new(naming);
        let mut foreign = stage.foreign(library).await;
        for kind in Kind::ALL {
            assert!(foreign.take(&stage.name("jobs"), LONG).await);
            let waits = kind.wait(&stage.locks, "jobs", SOON);
            let releases = async {
                stage.queued("jobs", 1).await;
                assert!(foreign.release(&stage.name("jobs")).await, "{kind:?} left it alone");
            };
            let (hold, ()) = tokio::join!(waits, releases);
            let hold = hold.unwrap_or_else(|error| panic!("{kind:?} after {library:?}: {error}"));
            assert!(!foreign.take(&stage.name("jobs"), LONG).await, "{kind:?} holds it now");
            hold.release().await;
        }
        stage.finish().await;
    }
}

#[tokio::test]
async fn the_first_in_line_looks_when_the_foreign_lease_ends() {
    let stage = Stage::bare();
    // The next heartbeat would come far too late.
    let locks = stage.locks.configure(|o| o.place(LONG)).unwrap();
    for library in Library::ALL {
        let mut foreign = stage.foreign(library).await;
        let began = Instant::now();
        assert!(foreign.take("jobs", ms(700)).await);
        let hold = Kind::Mutex.wait(&locks, "jobs", SOON).await.unwrap();
        assert!(began.elapsed() >= ms(699), "{library:?} had it until then");
        hold.release().await;
    }
    stage.finish().await;
}

async fn assert_extension_counts(library: Library) {
    let stage = Stage::bare();
    let mut foreign = stage.foreign(library).await;
    // Long enough for the extension to come in time on a busy machine.
    assert!(foreign.take("jobs", ms(1_500)).await);
    let extends = async {
        stage.queued("jobs", 1).await;
        assert!(foreign.extend("jobs", LONG).await, "{library:?}");
    };
    let waits = Kind::Writer.wait(&stage.locks, "jobs", ms(1_800));
    let (waited, ()) = tokio::join!(waits, extends);
    assert!(is_timeout(&waited), "{library:?}: {waited:?}");
    assert!(foreign.release("jobs").await);
    stage.finish().await;
}

#[tokio::test]
async fn a_foreign_extension_keeps_us_waiting() {
    let (py, npm) = (Library::RedisPy, Library::RedlockNpm);
    tokio::join!(assert_extension_counts(py), assert_extension_counts(npm));
}

#[tokio::test]
async fn a_one_shot_call_after_a_foreign_release_does_not_overtake_a_waiter() {
    let stage = Stage::bare();
    let patient = stage.other().configure(|o| o.place(LONG)).unwrap();
    let mut foreign = stage.foreign(Library::RedisPy).await;
    assert!(foreign.take("jobs", LONG).await);
    let overtakes = async {
        stage.queued("jobs", 1).await;
        assert!(foreign.release("jobs").await);
        Kind::Mutex.try_take(&stage.locks, "jobs").await
    };
    let (hold, overtaken) = tokio::join!(Kind::Mutex.wait(&patient, "jobs", SOON), overtakes);
    assert!(is_held(&overtaken), "{overtaken:?}");
    hold.unwrap().release().await;
    patient.close().await.unwrap();
    stage.finish().await;
}

#[tokio::test]
async fn any_number_of_readers_enter_after_the_foreign_release() {
    let stage = Stage::bare();
    let others = [stage.other(), stage.other(), stage.other()];
    let mut foreign = stage.foreign(Library::RedlockNpm).await;
    assert!(foreign.take("jobs", LONG).await);
    let [a, b, c] = others.each_ref().map(|locks| Kind::Reader.wait(locks, "jobs", SOON));
    let releases = async {
        stage.queued("jobs", 3).await;
        assert!(foreign.release("jobs").await);
    };
    let (a, b, c, ()) = tokio::join!(a, b, c, releases);
    for reader in [a, b, c] {
        assert!(!foreign.take("jobs", LONG).await);
        reader.unwrap().release().await;
    }
    assert!(foreign.take("jobs", LONG).await && foreign.release("jobs").await);
    for locks in &others {
        soon(locks.close()).await.unwrap();
    }
    stage.finish().await;
}

#[tokio::test]
async fn a_key_has_the_same_name_for_both_of_us() {
    let bare = ["jobs", "lock:{a}b", "ключ", "a b", "100%7B", "}{", "distlock:{jobs}", "*"];
    let named = [("jobs", "jobs"), ("a{b}", "a%7Bb%7D"), ("100%", "100%25"), ("ключ", "ключ")];
    let (one, two) = (Stage::bare(), Stage::new(Naming::Named));
    let names = bare.map(|key| (&one, key, key)).into_iter();
    let names = names.chain(named.map(|(key, escaped)| (&two, key, escaped)));
    let mut foreign = [one.foreign(Library::RedisPy).await, two.foreign(Library::RedisPy).await];
    for (stage, key, name) in names {
        let foreign = &mut foreign[usize::from(std::ptr::eq(stage, &two))];
        let name = stage.name(name);
        assert!(foreign.take(&name, LONG).await, "{key}");
        assert_excluded(&stage.locks, key).await;
        assert!(foreign.release(&name).await, "{key}");
        let hold = Kind::Reader.try_take(&stage.locks, key).await.unwrap();
        assert!(!foreign.take(&name, LONG).await, "{key}");
        hold.release().await;
    }
    one.finish().await;
    two.finish().await;
}
