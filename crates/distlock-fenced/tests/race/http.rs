//! A service on loopback that knows nothing of fences, behind the layer.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::routing::get;
use distlock_fenced::tower::{FenceLayer, SendFenceLayer, refusal};
use http_body_util::BodyExt as _;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tower::{Layer as _, ServiceExt as _};

use crate::play::{Balance, play};

/// A handler that takes its time between being called and writing.
async fn put(State(balance): State<Arc<AtomicI64>>, body: String) {
    let new = body.parse().unwrap();
    tokio::time::sleep(Duration::from_micros(300)).await;
    balance.store(new, Ordering::SeqCst);
}

async fn read(State(balance): State<Arc<AtomicI64>>) -> String {
    balance.load(Ordering::SeqCst).to_string()
}

/// Serves one account on a free port until the test ends.
async fn serve(layer: Option<FenceLayer>) -> String {
    let balance = Arc::new(AtomicI64::new(0));
    let mut router = Router::new().route("/accounts/17", get(read).put(put)).with_state(balance);
    if let Some(layer) = layer {
        router = router.layer(layer);
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}/accounts/17")
}

fn layer() -> FenceLayer {
    FenceLayer::new(|request| Some(request.uri.path().to_owned()))
}

struct HttpBalance {
    url: String,
    client: Client<HttpConnector, Body>,
}

impl HttpBalance {
    fn new(url: &str) -> Self {
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { url: url.to_owned(), client }
    }

    /// Status and text of an answer; `None` if the fence is stale.
    async fn send(&self, fence: u64, method: &str, body: String) -> Option<(u16, String)> {
        let request = http::Request::builder().method(method).uri(&self.url);
        let client = SendFenceLayer::new(fence).layer(self.client.clone());
        let response = client.oneshot(request.body(Body::from(body)).unwrap()).await.unwrap();
        if refusal(&response, fence).is_some() {
            return None;
        }
        let status = response.status().as_u16();
        let text = response.into_body().collect().await.unwrap().to_bytes();
        Some((status, String::from_utf8(text.to_vec()).unwrap()))
    }
}

impl Balance for HttpBalance {
    type Seen = ();

    async fn read(&self, fence: u64) -> Option<(i64, ())> {
        let (status, text) = self.send(fence, "GET", String::new()).await?;
        assert_eq!(status, 200, "{text}");
        Some((text.parse().unwrap(), ()))
    }

    async fn write(&self, fence: u64, (): (), balance: i64) -> bool {
        let Some((status, text)) = self.send(fence, "PUT", balance.to_string()).await else {
            return false;
        };
        assert_eq!(status, 200, "{text}");
        true
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_behind_the_layer_loses_no_update() {
    let url = serve(Some(layer())).await;
    play(&HttpBalance::new(&url), &HttpBalance::new(&url)).await.assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_without_the_layer_loses_updates() {
    let url = serve(None).await;
    play(&HttpBalance::new(&url), &HttpBalance::new(&url)).await.assert_something_lost();
}

#[tokio::test]
async fn each_kind_of_header_has_its_answer() {
    let url = serve(Some(layer().floor(100))).await;
    let client: Client<_, Body> = Client::builder(TokioExecutor::new()).build_http();
    let cases: [(&str, &[&str], u16); 8] = [
        ("GET", &[], 200),
        ("PUT", &[], 428),
        ("PUT", &["99"], 412),
        ("PUT", &["100"], 200),
        ("PUT", &["101", "101"], 400),
        ("PUT", &["one"], 400),
        ("PUT", &["0"], 400),
        ("PUT", &["18446744073709551615"], 400),
    ];
    for (method, fences, expected) in cases {
        let mut request = http::Request::builder().method(method).uri(&url);
        for fence in fences {
            request = request.header("Lock-Fence", *fence);
        }
        let response = client.request(request.body(Body::from("1")).unwrap()).await.unwrap();
        assert_eq!(response.status().as_u16(), expected, "{method} {fences:?}");
        if expected == 412 {
            assert_eq!(response.headers()["lock-fence"], "100");
        }
    }
    let url = serve(Some(layer().allow_unfenced_writes())).await;
    let request = http::Request::put(&url).body(Body::from("1")).unwrap();
    assert_eq!(client.request(request).await.unwrap().status().as_u16(), 200);
}

#[tokio::test]
async fn a_newer_holder_waits_for_older_requests_for_a_bounded_time() {
    use std::future::pending;
    let hangs = tower::service_fn(|_: http::Request<()>| async {
        pending::<Result<http::Response<String>, std::convert::Infallible>>().await
    });
    tokio::time::pause();
    let service = layer().wait_max(Duration::from_secs(2)).layer(hangs);
    let request =
        |fence: u64| http::Request::put("/a").header("Lock-Fence", fence).body(()).unwrap();
    let older = tokio::spawn(service.clone().oneshot(request(7)));
    tokio::time::sleep(Duration::from_millis(1)).await;
    let response = service.clone().oneshot(request(8)).await.unwrap();
    assert_eq!(response.status().as_u16(), 503);
    assert_eq!(response.headers()["retry-after"], "1");
    older.abort();
    assert!(older.await.unwrap_err().is_cancelled());
    let admitted = tokio::time::timeout(Duration::from_secs(60), service.oneshot(request(8)));
    assert!(admitted.await.is_err(), "it runs, and hangs like all others");
}
