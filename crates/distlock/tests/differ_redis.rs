//! The Lua library against the law: random operations on a real server.

use std::sync::Arc;
use std::time::Duration;

use distlock::Order;
use distlock::backends::Redis;
use distlock_core::Backend;
use distlock_testkit::differ::Differ;
use distlock_testkit::servers::RedisServer;

/// Operations per order, unless `DISTLOCK_DIFFER_STEPS` says otherwise; `DISTLOCK_SOAK` multiplies.
const STEPS: u64 = 20_000;
const STEPS_A_RUN: u64 = 2_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn runs() -> u64 {
    let steps = number("DISTLOCK_DIFFER_STEPS").unwrap_or(STEPS);
    (steps / STEPS_A_RUN).max(1) * number("DISTLOCK_SOAK").unwrap_or(1)
}

/// How the server runs the library.
#[derive(Clone, Copy, Debug)]
enum Mode {
    Functions,
    Scripts,
}

async fn compare(order: Order, mode: Mode) {
    let server = RedisServer::start();
    if let Mode::Scripts = mode {
        server.deny_functions();
    }
    for seed in 0..runs() {
        let client = |_| {
            let client = Redis::open(&server.url()).expect("the URL is valid");
            Arc::new(client) as Arc<dyn Backend>
        };
        let clients: Vec<_> = (0..3).map(client).collect();
        let pass = async |while_: Duration| server.pass(while_);
        let report =
            Differ::new(seed, order).steps(STEPS_A_RUN).clock_runs().run(&clients, pass).await;
        if seed == 0 {
            println!("{order}, {mode:?}: {report:?}");
        }
    }
}

#[tokio::test]
async fn functions_answer_like_the_law_in_fifo_order() {
    compare(Order::Fifo, Mode::Functions).await;
}

#[tokio::test]
async fn functions_answer_like_the_law_when_writers_go_first() {
    compare(Order::PreferWriters, Mode::Functions).await;
}

#[tokio::test]
async fn functions_answer_like_the_law_when_readers_go_first() {
    compare(Order::PreferReaders, Mode::Functions).await;
}

#[tokio::test]
async fn scripts_answer_like_the_law_in_fifo_order() {
    compare(Order::Fifo, Mode::Scripts).await;
}

#[tokio::test]
async fn scripts_answer_like_the_law_when_writers_go_first() {
    compare(Order::PreferWriters, Mode::Scripts).await;
}

#[tokio::test]
async fn scripts_answer_like_the_law_when_readers_go_first() {
    compare(Order::PreferReaders, Mode::Scripts).await;
}
