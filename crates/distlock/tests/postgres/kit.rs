//! The conformance kit, on the server itself and behind a pooler.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use distlock::backends::{Postgres, postgres};
use distlock_core::Backend;
use distlock_testkit::conformance::Subject;
use distlock_testkit::servers::{PgBouncer, PostgresServer};

struct Served {
    server: PostgresServer,
    pooler: Option<PgBouncer>,
    url: String,
}

impl Subject for Served {
    fn client(&self) -> Pin<Box<dyn Future<Output = Arc<dyn Backend>> + Send + '_>> {
        let client = Postgres::open(&self.url).unwrap();
        Box::pin(async { Arc::new(client) as Arc<dyn Backend> })
    }

    fn pass(&self, while_: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move { self.server.move_clock(while_.as_secs_f64()) })
    }
}

/// A server whose clock stands until a promise moves it, however busy the machine is.
fn server() -> PostgresServer {
    let server = PostgresServer::start();
    server.sql(&postgres::schema_sql("distlock").unwrap());
    server.stop_clock();
    server
}

fn direct() -> Served {
    let server = server();
    Served { url: server.url() + "?response_timeout_ms=5000", server, pooler: None }
}

/// Calls go through the pooler; messages are heard past it.
fn pooled() -> Served {
    let server = server();
    let pooler = PgBouncer::start(&server);
    let url = format!("{}?response_timeout_ms=5000&listen={}", pooler.url(), server.url());
    Served { server, pooler: Some(pooler), url }
}

/// A pooler in between, and no way past it: grants are not pushed.
fn without_push() -> Served {
    let served = pooled();
    let pooler = served.pooler.as_ref().map(PgBouncer::url).unwrap_or_default();
    Served { url: pooler + "?response_timeout_ms=5000&listen=off", ..served }
}

distlock_testkit::conformance_in_a_row!(direct, super::super::direct());
distlock_testkit::conformance_in_a_row!(pooled, super::super::pooled());
distlock_testkit::conformance_in_a_row!(without_push, super::super::without_push());
