//! Values that no lock writes, in main keys, side keys, names and the journal. They are the
//! fault of their own key: everything else goes on, and nothing is left half done.

use std::time::Duration;

use distlock::backends::Redis;
use distlock::{Error, Guard, Label, Locks};
use distlock_core::{Answer, Ask, Backend, Claim, ClaimId, FENCE_MAX, Journal, Key};
use distlock_testkit::servers::RedisServer;

use crate::support::*;

/// Longer than a test takes, so that nothing ends or is renewed meanwhile.
const LEASE: Duration = ms(60_000);

/// Runs a script on the server: values of all kinds are easily written in Lua.
fn write(server: &RedisServer, script: &str) {
    let script = format!("local k = 'distlock:{{{KEY}}}' {script} return 'done'");
    let reply = server.command(&["EVAL", &script, "0"]);
    assert!(reply.contains("done"), "{script}: {reply}");
}

fn unhurried(url: &str) -> Locks {
    locks(url).configure(|o| o.ttl(LEASE)).unwrap()
}

/// What a client learns of a damaged key: an answer, or a permanent fault that tells what is wrong.
fn is_clear<T>(what: &str, heard: Result<T, Error>) -> Option<T> {
    match heard {
        Ok(value) => Some(value),
        Err(Error::Backend(fault) | Error::ReleaseUncertain { source: fault, .. }) => {
            let text = format!("{fault}");
            assert!(!fault.is_transient(), "{what}: it does not pass: {text}");
            assert!(text.contains("delete it"), "{what}: no cure in {text}");
            assert!(!text.contains("attempt to") && !text.contains("not an integer"), "{text}");
            None
        }
        Err(Error::Held { .. } | Error::Timeout { .. } | Error::Conflict { .. }) => None,
        Err(other) => panic!("{what}: {other}"),
    }
}

/// Keys other than the damaged one, and the list, go on.
async fn others_go_on(what: &str, locks: &Locks, good: &Guard) {
    let page = locks.list("", None).await.unwrap_or_else(|error| panic!("{what}: {error}"));
    let listed = page.locks.iter().any(|lock| lock.key == *good.key());
    assert!(listed, "{what}: the good key is not in {:?}", page.locks);
    let other = locks.mutex("other").unwrap().try_lock().await;
    other.unwrap_or_else(|error| panic!("{what}: {error}")).release().await.unwrap();
}

/// Damages a key that readers and a waiting writer use, and does all that can be done there.
async fn damaged(what: &str, damage: &str) {
    let server = RedisServer::start();
    let (a, b) = (unhurried(&server.url()), unhurried(&server.url()));
    let good = a.mutex("good").unwrap().lock().await.unwrap();
    let reader = a.rwlock(KEY).unwrap().read().await.unwrap();
    let second = b.rwlock(KEY).unwrap().read().await.unwrap();
    let writer = b.rwlock(KEY).unwrap();
    let waiting = tokio::spawn(async move { writer.try_write_for(ms(5000)).await });
    queued(&a, 1).await;
    write(&server, damage);
    others_go_on(what, &a, &good).await;
    is_clear(what, a.inspect(KEY).await);
    drop(is_clear(what, a.rwlock(KEY).unwrap().try_read().await));
    drop(is_clear(what, b.mutex(KEY).unwrap().try_lock().await));
    drop(is_clear(what, a.semaphore(KEY, 3).unwrap().try_acquire().await));
    for guard in [reader, second] {
        is_clear(what, guard.release().await);
    }
    drop(is_clear(what, waiting.await.unwrap()));
    others_go_on(what, &b, &good).await;
    // Whatever an operator deletes: then the key is as good as new. The main key goes last, or a
    // clean-up that comes in between admits the waiter.
    for side in [":s", ":qx", ":qs", ":c", ":p", ":d", ":x", ""] {
        server.command(&["DEL", &format!("{MAIN}{side}")]);
    }
    let after = b.rwlock(KEY).unwrap().try_write().await;
    after.unwrap_or_else(|error| panic!("{what}, afterwards: {error}")).release().await.unwrap();
}

macro_rules! damages {
    ($($name:ident: $what:literal, $script:literal;)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                damaged($what, $script).await;
            }
        )+
    };
}

damages! {
    sharers_without_details_break_nothing:
        "details are gone", "redis.call('DEL', k .. ':d')";
    a_sharer_without_details_breaks_nothing:
        "a sharer of whom nothing is known",
        "redis.call('ZADD', k .. ':s', '9999999999999', string.rep('a', 32))";
    details_that_are_no_details_break_nothing:
        "garbage in all details",
        "for _, f in ipairs(redis.call('HKEYS', k .. ':d')) do
           redis.call('HSET', k .. ':d', f, 'x\\ny\\nz') end";
    details_with_absurd_numbers_break_nothing:
        "absurd numbers in details",
        "local n = string.rep('9', 9)
         for _, f in ipairs(redis.call('HKEYS', k .. ':d')) do
           redis.call('HSET', k .. ':d', f, n .. n .. ' o\\n\\n0\\nc\\n\\n\\n' .. n .. n .. '\\n'
             .. n .. n .. '\\n' .. n .. n .. '\\n-5') end";
    a_missing_sum_of_weights_breaks_nothing:
        "no sum of weights", "redis.call('HDEL', k .. ':d', '~w')";
    a_sum_of_weights_that_is_no_number_breaks_nothing:
        "garbage for the sum of weights", "redis.call('HSET', k .. ':d', '~w', '-0')";
    an_end_of_a_lease_that_never_comes_is_told:
        "an infinite score in ':s'",
        "redis.call('ZADD', k .. ':s', 'inf', string.rep('b', 32))";
    a_client_that_lives_for_ever_is_told:
        "an infinite score in ':c'", "redis.call('ZADD', k .. ':c', 'inf', 'nobody')";
    a_place_of_which_nothing_is_known_breaks_nothing:
        "a place without a client",
        "redis.call('ZADD', k .. ':qx', '1', 'c:nobody:' .. string.rep('z', 32))";
    a_client_that_is_gone_breaks_nothing:
        "no clients", "redis.call('DEL', k .. ':c')";
    sharers_of_another_type_are_told:
        "another type of ':s'", "redis.call('DEL', k .. ':s') redis.call('SET', k .. ':s', 'x')";
    a_queue_of_another_type_is_told:
        "another type of ':qx'", "redis.call('DEL', k .. ':qx') redis.call('SET', k .. ':qx', 'x')";
    clients_of_another_type_are_told:
        "another type of ':c'", "redis.call('DEL', k .. ':c') redis.call('LPUSH', k .. ':c', 'x')";
    places_of_another_type_are_told:
        "another type of ':p'", "redis.call('DEL', k .. ':p') redis.call('SET', k .. ':p', 'x')";
    details_of_another_type_are_told:
        "another type of ':d'", "redis.call('DEL', k .. ':d') redis.call('SET', k .. ':d', 'x')";
    graves_of_another_type_are_told:
        "another type of ':x'", "redis.call('DEL', k .. ':x') redis.call('SET', k .. ':x', 'x')";
    a_shared_main_key_of_another_shape_breaks_nothing:
        "garbage in main", "redis.call('SET', k, '~shared \\255\\0\\n9', 'PX', 1000)";
}

#[tokio::test]
async fn a_holder_that_looks_almost_like_ours_is_shown_and_breaks_no_list() {
    let server = RedisServer::start();
    let a = unhurried(&server.url());
    let good = a.mutex("good").unwrap().lock().await.unwrap();
    let (id, tail) = ("a".repeat(32), "\\n\\n0\\nc\\n\\n\\n1\\n1700000000000000");
    for value in [
        format!("'{id} 7 \\1\\255 owner{tail}'"),
        format!("'{id} 7 ' .. string.rep('o', 5000) .. '{tail}'"),
        format!("'{id} 9999999999999999 o{tail}'"),
        format!("'{id} 7 o\\n\\n0\\nc\\n\\n\\n99999999999999\\n1700000000000000'"),
        "'\\0\\255'".to_owned(),
    ] {
        write(&server, &format!("redis.call('SET', k, {value}, 'PX', 60000)"));
        others_go_on(&value, &a, &good).await;
        let seen = a.inspect(KEY).await.unwrap();
        assert_eq!(seen.holders_total, 1, "{value}");
        let refused = try_lock(&a).await.unwrap_err();
        assert!(matches!(refused, Error::Held { .. }), "{value}: {refused}");
    }
}

#[tokio::test]
async fn a_name_that_is_no_text_breaks_no_list() {
    let server = RedisServer::start();
    let a = unhurried(&server.url());
    let good = a.mutex("good").unwrap().lock().await.unwrap();
    write(&server, "redis.call('SET', 'distlock:{\\255\\254}', 'x')");
    others_go_on("a name", &a, &good).await;
}

#[tokio::test]
async fn a_journal_entry_that_is_no_text_is_passed_over() {
    let server = RedisServer::start();
    let store = Redis::open(&server.url()).unwrap();
    write(&server, "redis.call('XADD', 'distlock:journal', '*', 'at', '\\255', '\\254', 'x')");
    write(&server, "redis.call('XADD', 'distlock:journal', '*', 'at', 'never')");
    assert!(store.page(None, 10).await.unwrap().entries.is_empty());
    assert!(store.past(&Key::new(KEY).unwrap(), 10).await.unwrap().is_empty());
    assert!(store.last().await.unwrap().is_some());
}

fn ask(key: &str) -> Ask {
    let claim = Claim::new(Key::new(key).unwrap(), ClaimId::random().unwrap());
    Ask::new(claim, Label::new("owner", "me").unwrap(), LEASE)
}

#[tokio::test]
async fn at_the_end_of_the_counter_asks_are_refused_and_holds_can_be_released() {
    let server = RedisServer::start();
    let (a, store) = (unhurried(&server.url()), Redis::open(&server.url()).unwrap());
    let held = a.mutex("held").unwrap().lock().await.unwrap();
    let mutex = a.mutex("held").unwrap();
    let waiting = tokio::spawn(async move { mutex.try_lock_for(ms(2000)).await });
    until("it waits", ms(5000), async || a.inspect("held").await.unwrap().waiters_total == 1).await;
    let last = FENCE_MAX - 1;
    server.command(&["SET", "distlock:fence", &last.to_string()]);
    let answer = store.acquire(&ask("one")).await.unwrap();
    assert_eq!(answer, Answer::Granted { fence: FENCE_MAX });
    for key in ["two", "three"] {
        assert_eq!(store.acquire(&ask(key)).await.unwrap(), Answer::Spent, "{key}");
    }
    let many = futures_util::future::join_all((0..20).map(async |n| {
        let ask = ask(&format!("many{n}"));
        store.acquire(&ask).await.unwrap()
    }));
    assert!(many.await.iter().all(|answer| *answer == Answer::Spent));
    let refused = try_lock(&a).await.unwrap_err();
    assert!(!refused.is_transient() && refused.to_string().contains("fences"), "{refused}");
    held.release().await.unwrap();
    assert!(waiting.await.unwrap().is_err(), "no client enters without a fence");
    assert_eq!(a.inspect("held").await.unwrap().holders_total, 0);
}

#[tokio::test]
async fn a_counter_that_is_no_number_counts_as_none() {
    let server = RedisServer::start();
    let a = unhurried(&server.url());
    let before = lock(&a).await;
    server.command(&["SET", "distlock:fence", "garbage"]);
    let reader = a.rwlock("r").unwrap().try_read().await.unwrap();
    server.command(&["SET", "distlock:fence", "garbage"]);
    let after = a.mutex("m").unwrap().try_lock().await.unwrap();
    assert!(after.fence() > reader.fence() && reader.fence() > before.fence());
}

#[tokio::test]
async fn without_a_namespace_a_name_that_locks_keep_for_themselves_is_refused() {
    let server = RedisServer::start();
    let a = Locks::connect(&format!("{}?namespace=", server.url())).unwrap();
    let guard = a.mutex("free").unwrap().lock().await.unwrap();
    let counter = server.command(&["GET", "distlock-side:fence"]);
    for name in ["distlock-side:fence", "distlock-side:{free}:d:free", "distlock-side:journal"] {
        let refused = a.mutex(name).unwrap().try_lock().await.unwrap_err();
        assert!(
            !refused.is_transient() && refused.to_string().contains("distlock-side"),
            "{refused}"
        );
    }
    assert_eq!(server.command(&["GET", "distlock-side:fence"]), counter);
    guard.release().await.unwrap();
}
