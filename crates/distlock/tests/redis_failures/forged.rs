//! A user that may read the keys of locks and publish can forge what the scripts push.

use distlock::{Event, Locks, LossReason};
use distlock_testkit::servers::RedisServer;

use crate::support::*;

/// A client whose heartbeats are far apart, so that only a push can be what wakes it.
fn client(server: &RedisServer, query: &str) -> Locks {
    let url = format!("{}?response_timeout_ms=2000{query}", server.url());
    let locks = Locks::connect(&url).unwrap();
    locks.configure(|o| o.ttl(ms(60_000)).place(ms(40_000))).unwrap()
}

/// Publishes that the first waiter has the lock, with its own id and ticket.
fn forge(server: &RedisServer) {
    let reply = server.command(&["ZRANGE", QUEUE, "0", "0", "WITHSCORES"]);
    let words: Vec<_> = reply.lines().filter(|line| !line.starts_with(['*', '$'])).collect();
    let [place, ticket] = words[..] else { panic!("{reply}") };
    let [_, client, id] = place.split(':').collect::<Vec<_>>()[..] else { panic!("{place}") };
    let message = format!("granted {id} {ticket} {ticket}");
    let heard = server.command(&["PUBLISH", &format!("distlock:push:{client}"), &message]);
    assert_eq!(heard.trim(), ":1", "the waiter listens: {message}");
}

async fn waits_behind_a_holder(query: &str) -> (RedisServer, Locks, distlock::Guard, Waiting) {
    let server = RedisServer::start();
    let (holder, waiter) = (client(&server, ""), client(&server, query));
    let guard = lock(&holder).await;
    let mutex = waiter.mutex(KEY).unwrap();
    let waiting = tokio::spawn(async move { mutex.lock().await });
    queued(&holder, 1).await;
    (server, waiter, guard, waiting)
}

type Waiting = tokio::task::JoinHandle<Result<distlock::Guard, distlock::Error>>;

#[tokio::test]
async fn a_forged_grant_is_believed_by_default_which_the_docs_say() {
    let (server, _waiter, holder, waiting) = waits_behind_a_holder("").await;
    forge(&server);
    let forged = tokio::time::timeout(ms(5_000), waiting).await.unwrap().unwrap().unwrap();
    assert!(forged.is_held() && holder.is_held(), "two holders");
}

#[tokio::test]
async fn with_verify_push_a_forged_grant_is_not_believed_and_a_true_one_is() {
    let (server, waiter, holder, mut waiting) = waits_behind_a_holder("&verify_push=1").await;
    let mut events = waiter.events();
    forge(&server);
    // The waiter asks the server because of it, and hears that it waits.
    let asked = async {
        loop {
            let event = futures_util::StreamExt::next(&mut events).await;
            if matches!(event, Some(Event::Waiting { .. })) {
                break;
            }
        }
    };
    tokio::time::timeout(ms(5_000), asked).await.expect("it asks at once");
    assert!(holder.is_held() && !waiting.is_finished(), "two holders");
    let fence = holder.fence();
    holder.release().await.unwrap();
    let next = tokio::time::timeout(ms(5_000), &mut waiting).await.expect("a true push wakes it");
    assert!(next.unwrap().unwrap().fence() > fence);
}

#[tokio::test]
async fn with_verify_push_a_break_counts_only_if_the_server_says_so() {
    let server = RedisServer::start();
    let (locks, operator) = (client(&server, "&verify_push=1"), client(&server, ""));
    let mut events = locks.events();
    let guard = lock(&locks).await;
    let main = server.command(&["GET", MAIN]);
    let id = main.lines().nth(1).unwrap().split(' ').next().unwrap();
    let channels = server.command(&["PUBSUB", "CHANNELS", "distlock:push:*"]);
    for channel in channels.lines().filter(|line| line.starts_with("distlock")) {
        server.command(&["PUBLISH", channel, &format!("broken {id}")]);
    }
    let renewed = async {
        while !matches!(
            futures_util::StreamExt::next(&mut events).await,
            Some(Event::Renewed { .. })
        ) {}
    };
    tokio::time::timeout(ms(5_000), renewed).await.expect("it asks at once");
    assert!(guard.is_held(), "a forged break was believed");
    operator.break_hold(KEY, guard.fence()).await.unwrap();
    let lost = tokio::time::timeout(ms(5_000), guard.lost()).await.expect("a true break counts");
    assert_eq!(lost, LossReason::Gone);
}
