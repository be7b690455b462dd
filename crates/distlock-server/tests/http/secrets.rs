//! Secrets stay where they belong: nothing that is written anywhere repeats one.

use std::io;
use std::sync::{Arc, Mutex};

use distlock::Locks;
use distlock_server::Tokens;
use distlock_testkit::servers::{RedisServer, RedisServerOptions};
use serde_json::json;
use tracing_subscriber::fmt::MakeWriter;

use crate::support::{Answer, KEY, PATH, Service, lease_id};

/// Everything that is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

const PASSWORD: &str = "s3ntinel-of-the-store";
const TOKEN: &str = "s3ntinel-of-the-token";
const WRONG: &str = "s3ntinel-of-a-guess";

#[test]
fn no_secret_is_written_anywhere() {
    let log = Log::default();
    let logged = tracing_subscriber::fmt()
        .with_writer(log.clone())
        .with_max_level(tracing::Level::TRACE)
        .finish();
    // For this thread alone: all of the service runs on it.
    let _guard = tracing::subscriber::set_default(logged);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (answers, ids) = runtime.block_on(everything());
    let log = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    assert!(log.contains("broken") && log.contains(KEY), "nothing was logged:\n{log}");
    for secret in [PASSWORD, TOKEN, WRONG].into_iter().chain(ids.iter().map(String::as_str)) {
        assert!(!log.contains(secret), "{secret} in the log:\n{log}");
        for answer in &answers {
            assert!(!answer.contains(secret), "{secret} in an answer: {answer}");
        }
    }
}

/// Does everything that can go right or wrong; returns the answers that hold no secret, and the
/// ids that none of them may repeat.
async fn everything() -> (Vec<String>, Vec<String>) {
    let args = ["--user", "locker", "on", &format!(">{PASSWORD}"), "~*", "&*", "+@all"];
    let args = args.map(str::to_owned).to_vec();
    let mut server = RedisServer::start_with(RedisServerOptions { args });
    let url = format!("redis://locker:{PASSWORD}@127.0.0.1:{}/", server.port());
    let tokens = Tokens::parse(&format!("{TOKEN} admin")).unwrap();
    let mut shown = vec![format!("{tokens:?}")];
    let locks = Locks::connect(&url).unwrap();
    shown.push(format!("{locks:?}"));
    let service = Service::over(locks, |config| config.tokens = tokens).await;
    let send = |method: &str, path: &str| service.request(method, path).bearer_auth(TOKEN);
    let (mine, other, lost) = (lease_id(), lease_id(), lease_id());
    let path = format!("/api/v1/locks/{PATH}");

    let lease = |id: &str, wait: u64| {
        send("POST", &format!("{path}/leases")).json(&json!({"leaseId": id, "waitMs": wait}))
    };
    let fence = Answer::of(lease(&mine, 0)).await.is(201).number_of("fence");
    shown.push(Answer::of(lease(&other, 50)).await.is(409).text);
    shown.push(Answer::of(lease(&format!("{mine}0"), 0)).await.is(422).text);
    for method in ["PUT", "DELETE"] {
        let request = send(method, &format!("{path}/lease")).header("lease-id", &lost);
        shown.push(Answer::of(request).await.is(410).text);
    }
    for seen in ["/api/v1/locks", &path, "/api/v1/summary", "/metrics", &format!("{path}/history")]
    {
        shown.push(Answer::of(send("GET", seen)).await.is(200).text);
    }
    let guess = service.request("GET", "/api/v1/locks").bearer_auth(WRONG);
    shown.push(Answer::of(guess).await.is(401).text);
    let broken = json!({"fence": fence, "reason": "test"});
    let request = send("POST", &format!("{path}/break")).json(&broken);
    shown.push(Answer::of(request).await.is(204).text);

    server.kill();
    for _ in 0..2 {
        shown.push(Answer::of(lease(&lost, 0)).await.text);
    }
    shown.push(Answer::of(send("GET", "/readyz")).await.is(503).text);
    shown.push(Answer::of(send("GET", "/api/v1/locks")).await.is(503).text);
    (shown, vec![mine, other, lost])
}
