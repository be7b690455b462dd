//! Every bad value is refused by name before anything is sent.

use std::time::Duration;

use distlock::{Error, Key, Locks, Options};

use crate::support::{World, ms, scripted, secs};

const YEAR: Duration = secs(365 * 24 * 60 * 60);

type Change = Box<dyn Fn(Options) -> Options>;

fn bad_options() -> Vec<(&'static str, Change)> {
    fn case(
        what: &'static str,
        change: impl Fn(Options) -> Options + 'static,
    ) -> (&'static str, Change) {
        (what, Box::new(change))
    }
    let mut all = Vec::new();
    for ttl in [0, 1, 999, 1_000, 2_000, 2_019].map(Duration::from_micros) {
        all.push(case("ttl", move |o| o.ttl(ttl)));
    }
    for ttl in [YEAR + Duration::from_nanos(1), Duration::from_millis(u64::MAX), Duration::MAX] {
        all.push(case("ttl", move |o| o.ttl(ttl)));
    }
    for fraction in [0.0, -0.0, 1.0, -0.5, 2.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        all.push(case("renew_at", move |o| o.renew_at(fraction)));
    }
    for drift in [-0.01, 0.51, f64::NAN, f64::INFINITY] {
        all.push(case("drift", move |o| o.drift(drift)));
    }
    for place in [ms(0), ms(49), YEAR + ms(1), Duration::MAX] {
        all.push(case("place", move |o| o.place(place)));
    }
    for text in [String::new(), "a\nb".into(), "\u{1b}[2J".into(), "x".repeat(257), "é".repeat(129)]
    {
        let reason = text.clone();
        all.push(case("owner", move |o| o.owner(text.clone())));
        all.push(case("reason", move |o| o.reason(reason.clone())));
    }
    all.push(case("lock_delay", |o| o.lock_delay(YEAR)));
    all.push(case("lock_delay", |o| o.lock_delay(Duration::MAX)));
    all.push(case("hold_at_least", |o| o.hold_at_least(YEAR + ms(1))));
    all.push(case("max_hold", |o| o.max_hold(ms(0))));
    all.push(case("waiters_max", |o| o.waiters_max(0)));
    all
}

/// The error of `configure` on every lock kind.
fn refusals(locks: &Locks, change: &Change) -> [(&'static str, Option<Error>); 6] {
    let (mutex, rwlock) = (locks.mutex("k").unwrap(), locks.rwlock("k").unwrap());
    let (reentrant, leases) = (locks.reentrant("k").unwrap(), locks.lease("k").unwrap());
    let semaphore = locks.semaphore("k", 2).unwrap();
    [
        ("locks", locks.configure(change).err()),
        ("mutex", mutex.configure(change).err()),
        ("rwlock", rwlock.configure(change).err()),
        ("reentrant", reentrant.configure(change).err()),
        ("lease", leases.configure(change).err()),
        ("semaphore", semaphore.configure(change).err()),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_bad_option_is_refused_by_name_for_every_lock_kind_and_nothing_is_sent() {
    let (locks, store) = scripted();
    for (what, change) in bad_options() {
        for (kind, refused) in refusals(&locks, &change) {
            match refused {
                Some(Error::Invalid(bad)) => assert_eq!(bad.what, what, "{kind}: {bad}"),
                other => panic!("{kind} accepted a bad {what}: {other:?}"),
            }
        }
    }
    assert!(store.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_last_good_values_are_accepted() {
    let world = World::new();
    let good: [fn(Options) -> Options; 9] = [
        |o| o.ttl(ms(7)),
        |o| o.ttl(YEAR),
        |o| o.drift(0.0),
        |o| o.drift(0.5),
        |o| o.place(ms(50)),
        |o| o.place(YEAR),
        |o| o.owner("x".repeat(256)).reason("ü"),
        |o| o.lock_delay(YEAR - secs(30)),
        |o| o.max_hold(Duration::MAX).max_wait(Duration::MAX).patience(Duration::MAX),
    ];
    for (n, change) in good.into_iter().enumerate() {
        let locks = world.locks().configure(change).unwrap();
        let guard = locks.mutex(format!("k{n}")).unwrap().lock().await.unwrap();
        assert!(guard.is_held(), "{n}");
    }
}

#[test]
fn keys_are_one_to_512_bytes_for_every_lock_kind() {
    let locks = Locks::memory();
    for bad in ["", &"x".repeat(513), &"é".repeat(257), &"x".repeat(1 << 20)] {
        let refused = [
            locks.mutex(bad).err(),
            locks.rwlock(bad).err(),
            locks.reentrant(bad).err(),
            locks.lease(bad).err(),
            locks.semaphore(bad, 2).err(),
        ];
        for refused in refused {
            assert!(matches!(&refused, Some(Error::Invalid(bad)) if bad.what == "key"));
            assert!(refused.unwrap().to_string().len() < 500, "repeats all of a long key");
        }
    }
    for good in ["x", &"x".repeat(512), "}", "{}", "a:b", " ", "\0", "a\nb", "*", "日本"] {
        assert_eq!(locks.mutex(good).unwrap().key().as_str(), good);
    }
}

#[test]
fn keys_come_in_every_form_a_string_has() {
    let locks = Locks::memory();
    let key = Key::new("k").unwrap();
    let owned = String::from("k");
    let all = [
        locks.mutex("k").unwrap(),
        locks.mutex(&owned).unwrap(),
        locks.mutex(owned).unwrap(),
        locks.mutex(&key).unwrap(),
        locks.mutex(key.clone()).unwrap(),
    ];
    assert!(all.iter().all(|mutex| *mutex.key() == key));
}

#[tokio::test(start_paused = true)]
async fn options_of_one_lock_do_not_touch_another() {
    let world = World::new();
    let locks = world.locks().configure(|o| o.owner("all").ttl(secs(5))).unwrap();
    let mutex = locks.mutex("one").unwrap().configure(|o| o.owner("one")).unwrap();
    let (one, two) =
        (mutex.lock().await.unwrap(), locks.mutex("two").unwrap().lock().await.unwrap());
    let owner = async |key: &str| locks.inspect(key).await.unwrap().holders[0].owner.to_string();
    assert_eq!((owner("one").await, owner("two").await), ("one".into(), "all".into()));
    assert!(one.remaining() <= secs(5), "the rest is inherited");
    assert!(two.is_held());
}

#[test]
fn a_group_has_a_printable_name() {
    let lock = Locks::memory().rwlock("k").unwrap();
    for bad in ["", "a\nb", &"x".repeat(257)] {
        let refused = lock.clone().group(bad);
        assert!(matches!(refused, Err(Error::Invalid(bad)) if bad.what == "group"));
    }
}

#[tokio::test(start_paused = true)]
async fn making_a_lock_sends_nothing() {
    let (locks, store) = scripted();
    for n in 0..10 {
        let _ = locks.mutex(format!("{n}")).unwrap();
        let _ = locks.rwlock(format!("{n}")).unwrap();
        let _ = locks.reentrant(format!("{n}")).unwrap().owner().unwrap();
        let _ = locks.semaphore(format!("{n}"), 3).unwrap();
        let _ = locks.lease(format!("{n}")).unwrap();
    }
    assert!(store.calls().is_empty());
    assert_eq!(locks.stats().tasks, 0);
}
