//! The scripts and statements decide as the law does, over random sequences of operations.

#![allow(clippy::unwrap_used, reason = "tests")]

use distlock_fenced::{
    FenceRegister, Refused, redis as values, rusqlite as rows, tokio_postgres as server_rows,
};
use distlock_testkit::Rng;
use distlock_testkit::servers::{PostgresServer, RedisServer};
use rusqlite::Connection;

/// How many operations are compared.
const STEPS: u64 = 3_000;

#[derive(Clone, Copy, Debug)]
enum LawStep {
    Raise,
    Check,
}

impl LawStep {
    fn by_law(self, law: &mut FenceRegister, fence: u64) -> Option<Refused> {
        match self {
            Self::Raise => law.raise(fence),
            Self::Check => law.check(fence),
        }
        .err()
    }
}

/// One of two keys, an operation, and a fence that is about as large as the largest one yet.
fn pick(rng: &mut Rng, step: u64) -> (usize, LawStep, u64) {
    let key = usize::try_from(rng.below(2)).unwrap();
    let operation = *rng.pick(&[LawStep::Raise, LawStep::Check]);
    // Near the end of all fences from the middle on, where a float would be inexact.
    let base = if step < STEPS / 2 { step / 8 } else { distlock_fenced::FENCE_MAX - STEPS / 8 };
    let past_the_end = rng.chance(0.01);
    let fence = if past_the_end { u64::MAX } else { base + rng.below(STEPS / 8 + 4) };
    (key, operation, fence)
}

#[test]
fn the_statements_of_sqlite_decide_as_the_law_does() {
    let mut database = Connection::open_in_memory().unwrap();
    rows::create_table(&database).unwrap();
    rows::create_table(&database).unwrap();
    let mut rng = Rng::new(17);
    let mut laws = [FenceRegister::default(); 2];
    for step in 0..STEPS {
        let (key, operation, fence) = pick(&mut rng, step);
        let tx = database.transaction().unwrap();
        let name = format!("key/{key}");
        let decided = match operation {
            LawStep::Raise => rows::raise(&tx, &name, fence),
            LawStep::Check => rows::check(&tx, &name, fence),
        };
        tx.commit().unwrap();
        let refused = decided.err().map(|error| error.refused().expect("no error of SQLite"));
        let expected = operation.by_law(&mut laws[key], fence);
        assert_eq!(refused, expected, "step {step}: {operation:?} {name} {fence}");
    }
}

#[tokio::test]
async fn the_statements_of_postgres_decide_as_the_law_does() {
    let server = PostgresServer::start();
    let connected = tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await;
    let (mut client, connection) = connected.unwrap();
    tokio::spawn(connection);
    server_rows::create_table(&client).await.unwrap();
    let mut rng = Rng::new(19);
    let mut laws = [FenceRegister::default(); 2];
    for step in 0..STEPS {
        let (key, operation, fence) = pick(&mut rng, step);
        let tx = client.transaction().await.unwrap();
        let name = format!("key/{key}");
        let decided = match operation {
            LawStep::Raise => server_rows::raise(&tx, &name, fence).await,
            LawStep::Check => server_rows::check(&tx, &name, fence).await,
        };
        tx.commit().await.unwrap();
        let refused = decided.err().map(|error| error.refused().expect("no error of PostgreSQL"));
        let expected = operation.by_law(&mut laws[key], fence);
        assert_eq!(refused, expected, "step {step}: {operation:?} {name} {fence}");
    }
}

#[tokio::test]
async fn the_scripts_of_redis_decide_as_the_law_does() {
    let server = RedisServer::start();
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut rng = Rng::new(18);
    let mut laws = [FenceRegister::default(); 2];
    let mut contents: [Option<u64>; 2] = [None; 2];
    for step in 0..STEPS {
        let (key, operation, fence) = pick(&mut rng, step);
        let blind = rng.chance(0.3);
        let name = format!("key/{key}");
        let expected = operation.by_law(&mut laws[key], fence);
        let decided = match (operation, blind) {
            (LawStep::Raise, false) => {
                let read: Result<Option<u64>, _> = values::get(&mut connection, &name, fence).await;
                read.map(|read| assert_eq!(read, contents[key], "step {step}"))
            }
            (LawStep::Raise, true) => values::overwrite(&mut connection, &name, fence, step).await,
            (LawStep::Check, _) => values::set(&mut connection, &name, fence, step).await,
        };
        if expected.is_none() && (blind || matches!(operation, LawStep::Check)) {
            contents[key] = Some(step);
        }
        let refused = decided.err().map(|error| error.refused().expect("no error of Redis"));
        assert_eq!(refused, expected, "step {step}: {operation:?} {name} {fence}");
    }
}

#[tokio::test]
async fn a_value_of_another_type_is_an_error_and_not_a_refusal() {
    let server = RedisServer::start();
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    server.command(&["SET", "{a}:fence", "no number"]);
    server.command(&["LPUSH", "b", "1"]);
    for key in ["a", "b"] {
        let read = values::get::<String>(&mut connection, key, 7).await;
        assert_eq!(read.unwrap_err().refused(), None, "{key}");
    }
}
