//! A service of a test's own, and a client of it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use distlock::Locks;
use distlock_server::{Reloader, Server, ServerConfig, Tokens};
use distlock_testkit::servers::RedisServer;
use reqwest::{Client, Method, RequestBuilder};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The longest that anything may take on a machine that has other things to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A key that no other test uses: every test has a store of its own.
pub(crate) const KEY: &str = "deploy/prod";

/// `KEY` as it stands in a path.
pub(crate) const PATH: &str = "deploy%2Fprod";

/// A service that listens on a free port.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    pub(crate) locks: Locks,
    pub(crate) client: Client,
    pub(crate) stop: CancellationToken,
    pub(crate) reloader: Reloader,
    pub(crate) running: Option<JoinHandle<Result<(), distlock_server::ServerError>>>,
    /// Ends with the service.
    _store: Option<Store>,
}

/// What keeps a store alive.
#[derive(Debug)]
#[allow(dead_code, reason = "it is kept to be dropped")]
pub(crate) enum Store {
    Redis(RedisServer),
    Folder(tempdir::Folder),
}

/// A folder of a test's own.
pub(crate) mod tempdir {
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[derive(Debug)]
    pub(crate) struct Folder(pub(crate) PathBuf);

    impl Folder {
        pub(crate) fn new() -> Self {
            static MADE: AtomicU32 = AtomicU32::new(0);
            let number = MADE.fetch_add(1, Ordering::Relaxed);
            let name = format!("distlock-http-{}-{number}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

/// The stores that carry locks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum On {
    Memory,
    Sqlite,
    Redis,
}

impl Service {
    pub(crate) async fn on(on: On) -> Self {
        Self::with(on, |_| {}).await
    }

    /// A service with other choices than the default.
    pub(crate) async fn with(on: On, change: impl FnOnce(&mut ServerConfig)) -> Self {
        let (locks, store) = match on {
            On::Memory => (Locks::memory(), None),
            On::Sqlite => {
                let folder = tempdir::Folder::new();
                let file = folder.0.join("locks.sqlite");
                let locks = Locks::connect(&format!("sqlite:{}", file.display())).unwrap();
                (locks, Some(Store::Folder(folder)))
            }
            On::Redis => {
                let server = RedisServer::start();
                (Locks::connect(&server.url()).unwrap(), Some(Store::Redis(server)))
            }
        };
        Self { _store: store, ..Self::over(locks, change).await }
    }

    /// A service over locks that the test has made.
    pub(crate) async fn over(locks: Locks, change: impl FnOnce(&mut ServerConfig)) -> Self {
        let mut config = ServerConfig::new("127.0.0.1:0".parse().unwrap());
        change(&mut config);
        let server = Server::bind(config, locks.clone()).await.unwrap();
        let (address, stop) = (server.address().unwrap(), CancellationToken::new());
        let reloader = server.reloader();
        let running = Some(tokio::spawn(server.run(stop.clone())));
        Self { address, locks, client: Client::new(), stop, reloader, running, _store: None }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn request(&self, method: &str, path: &str) -> RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        self.client.request(method, self.url(path)).timeout(PATIENCE)
    }

    /// Sends JSON and returns the status and the JSON that comes back.
    pub(crate) async fn send(&self, method: &str, path: &str, body: Value) -> Answer {
        let request = self.request(method, path);
        let request = if body.is_null() { request } else { request.json(&body) };
        Answer::of(request).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, Value::Null).await
    }

    /// Asks for a lease on `KEY`.
    pub(crate) async fn lease(&self, body: Value) -> Answer {
        self.send("POST", &format!("/api/v1/locks/{PATH}/leases"), body).await
    }

    pub(crate) async fn renew(&self, id: &str) -> Answer {
        let request = self.request("PUT", &format!("/api/v1/locks/{PATH}/lease"));
        Answer::of(request.header("Lease-Id", id)).await
    }

    pub(crate) async fn release(&self, id: &str) -> Answer {
        let request = self.request("DELETE", &format!("/api/v1/locks/{PATH}/lease"));
        Answer::of(request.header("Lease-Id", id)).await
    }

    /// Waits until `KEY` looks like this, and says how long that took.
    pub(crate) async fn until(&self, what: &str, seen: impl Fn(&Value) -> bool) -> Duration {
        let begun = Instant::now();
        loop {
            let lock = self.get(&format!("/api/v1/locks/{PATH}")).await.json;
            if seen(&lock) {
                return begun.elapsed();
            }
            assert!(begun.elapsed() < PATIENCE, "never {what}: {lock}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until so many wait for `KEY`.
    pub(crate) async fn until_waiting(&self, count: u64) {
        self.until("waiting", |lock| lock["waitersTotal"] == count).await;
    }

    /// Waits until `KEY` is free, and says how long that took.
    pub(crate) async fn until_free(&self) -> Duration {
        self.until("free", |lock| lock["state"] == "free").await
    }
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) text: String,
    pub(crate) json: Value,
}

impl Answer {
    pub(crate) async fn of(request: RequestBuilder) -> Self {
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await.unwrap();
        let json = serde_json::from_str(&text).unwrap_or(Value::Null);
        let problem = headers.get("content-type").is_some_and(|t| t == "application/problem+json");
        if problem {
            assert_eq!(json["status"], status, "{json}");
            assert_eq!(json["title"], json["error"], "{json}");
            assert!(json["type"].as_str().unwrap().starts_with("urn:distlock:"), "{json}");
        }
        Self { status, headers, text, json }
    }

    /// The answer; none if the connection broke.
    pub(crate) async fn of_result(
        result: Result<reqwest::Response, reqwest::Error>,
    ) -> Option<Self> {
        let response = result.ok()?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await.ok()?;
        let json = serde_json::from_str(&text).unwrap_or(Value::Null);
        Some(Self { status, headers, text, json })
    }

    /// Asserts the status.
    #[track_caller]
    pub(crate) fn is(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text);
        self
    }

    pub(crate) fn text_of(&self, member: &str) -> String {
        self.json[member].as_str().unwrap_or_else(|| panic!("no {member}: {}", self.text)).into()
    }

    pub(crate) fn number_of(&self, member: &str) -> u64 {
        self.json[member].as_u64().unwrap_or_else(|| panic!("no {member}: {}", self.text))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no {name}")).to_str().unwrap()
    }
}

/// A lease id that no client has used.
pub(crate) fn lease_id() -> String {
    distlock::ClaimId::random().unwrap().reveal()
}

/// Tokens of every scope.
pub(crate) const READER: &str = "reader-0123456789abcdef";
pub(crate) const LOCKER: &str = "locker-0123456789abcdef";
pub(crate) const ADMIN: &str = "admin-0123456789abcdef";

pub(crate) fn tokens() -> Tokens {
    Tokens::parse(&format!("{READER} read\n{LOCKER} lock:deploy/\n{ADMIN} admin\n")).unwrap()
}

/// Makes a test of each function for each store: `fn name(service: Service)`.
macro_rules! on_every_store {
    ($($name:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name($crate::support::Service::on($crate::support::On::Memory).await).await;
            })*
        }
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name($crate::support::Service::on($crate::support::On::Sqlite).await).await;
            })*
        }
        mod redis {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name($crate::support::Service::on($crate::support::On::Redis).await).await;
            })*
        }
    };
}
pub(crate) use on_every_store;
