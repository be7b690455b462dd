//! The numbers that Prometheus reads: every name, with its type, after what it counts has happened.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use distlock::Locks;
use distlock_testkit::servers::RedisServer;
use serde_json::json;

use crate::support::{On, PATIENCE, Service, lease_id};

/// What a scrape says: the types by name, and the values by name and labels.
struct Scrape {
    text: String,
    kinds: BTreeMap<String, String>,
    values: BTreeMap<String, f64>,
}

async fn scrape(service: &Service) -> Scrape {
    let answer = service.get("/metrics").await.is(200);
    assert_eq!(answer.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    let (mut kinds, mut values) = (BTreeMap::new(), BTreeMap::new());
    for line in answer.text.lines().filter(|line| !line.is_empty()) {
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert!(kinds.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} twice");
        } else if !line.starts_with('#') {
            let (name, value) = line.rsplit_once(' ').unwrap();
            let value = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
            assert!(values.insert(name.to_owned(), value).is_none(), "{name} twice");
        }
    }
    Scrape { text: answer.text, kinds, values }
}

impl Scrape {
    #[track_caller]
    fn is(&self, kind: &str, name: &str, value: f64) {
        let found = self.values.get(name).unwrap_or_else(|| panic!("no {name}:\n{}", self.text));
        assert_eq!(*found, value, "{name}");
        self.has(kind, name);
    }

    #[track_caller]
    fn has(&self, kind: &str, name: &str) {
        assert!(self.values.contains_key(name), "no {name}:\n{}", self.text);
        let bare = name.split('{').next().unwrap();
        let bare = bare.strip_suffix("_count").unwrap_or(bare);
        assert_eq!(self.kinds.get(bare).map(String::as_str), Some(kind), "{name}\n{}", self.text);
    }
}

async fn take(service: &Service, key: &str, wait_ms: u64) -> crate::support::Answer {
    let body = json!({"leaseId": lease_id(), "waitMs": wait_ms, "ttlMs": 20_000});
    service.send("POST", &format!("/api/v1/locks/{key}/leases"), body).await
}

async fn end(service: &Service, method: &str, key: &str, id: &str) -> u16 {
    let request = service.request(method, &format!("/api/v1/locks/{key}/lease"));
    crate::support::Answer::of(request.header("lease-id", id)).await.status
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_that_happens_is_counted_under_its_name() {
    let service = Service::on(On::Redis).await;
    let key = "jobs%2Fs3cret-name";
    let id = take(&service, key, 0).await.is(201).text_of("leaseId");
    take(&service, key, 0).await.is(409);
    take(&service, key, 20).await.is(409);
    assert_eq!(end(&service, "PUT", key, &id).await, 200);
    assert_eq!(end(&service, "PUT", key, &lease_id()).await, 410);

    let waiting = take(&service, key, 20_000);
    let handing_over = async {
        let begun = Instant::now();
        let during = loop {
            let seen = scrape(&service).await;
            if seen.values.get("distlock_waiters{group=\"jobs\"}") == Some(&1.0) {
                break seen;
            }
            assert!(begun.elapsed() < PATIENCE, "no client waits:\n{}", seen.text);
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        during.is("gauge", "distlock_held{group=\"jobs\"}", 1.0);
        assert_eq!(end(&service, "DELETE", key, &id).await, 204);
    };
    let (granted, ()) = tokio::join!(waiting, handing_over);
    let (id, fence) = (granted.text_of("leaseId"), granted.is(201).number_of("fence"));
    let broken = json!({"fence": fence, "reason": "test"});
    service.send("POST", &format!("/api/v1/locks/{key}/break"), broken).await.is(204);

    // Of a lease that was broken behind its back the service hears when it renews it.
    let other = take(&service, key, 0).await.is(201);
    let (other, fence) = (other.text_of("leaseId"), other.number_of("fence"));
    service.locks.break_hold("jobs/s3cret-name", fence).await.unwrap();
    assert_eq!(end(&service, "PUT", key, &other).await, 410);
    assert_eq!(end(&service, "PUT", key, &id).await, 410);

    // An operation is kept alive by the service itself.
    let long = json!({"durationMs": 1_500, "ttlMs": 3_000});
    service.send("POST", "/api/locks/watchdog/jobs%2Fb", long).await.is(200);

    let seen = scrape(&service).await;
    for (kind, name, value) in [
        ("counter", "distlock_acquire_total{outcome=\"granted\",group=\"jobs\"}", 4.0),
        ("counter", "distlock_acquire_total{outcome=\"held\",group=\"jobs\"}", 1.0),
        ("counter", "distlock_acquire_total{outcome=\"timeout\",group=\"jobs\"}", 1.0),
        ("histogram", "distlock_acquire_wait_seconds_count{group=\"jobs\"}", 4.0),
        ("histogram", "distlock_hold_seconds_count{end=\"released\",group=\"jobs\"}", 2.0),
        ("histogram", "distlock_hold_seconds_count{end=\"lost\",group=\"jobs\"}", 2.0),
        ("gauge", "distlock_held{group=\"jobs\"}", 0.0),
        ("gauge", "distlock_waiters{group=\"jobs\"}", 0.0),
        ("counter", "distlock_lost_total{reason=\"gone\",group=\"jobs\"}", 1.0),
        ("counter", "distlock_lost_total{reason=\"broken\",group=\"jobs\"}", 1.0),
        ("counter", "distlock_renew_total{outcome=\"gone\",group=\"jobs\"}", 3.0),
    ] {
        seen.is(kind, name, value);
    }
    for (kind, name) in [
        ("counter", "distlock_renew_total{outcome=\"renewed\",group=\"jobs\"}"),
        ("histogram", "distlock_renew_margin_seconds_count{group=\"jobs\"}"),
        ("histogram", "distlock_backend_op_seconds_count{op=\"acquire\"}"),
        ("histogram", "distlock_backend_op_seconds_count{op=\"renew\"}"),
        ("histogram", "distlock_backend_op_seconds_count{op=\"release\"}"),
        ("counter", "distlock_http_requests_total{class=\"2xx\"}"),
        ("counter", "distlock_http_requests_total{class=\"4xx\"}"),
        ("histogram", "distlock_http_request_seconds_count"),
    ] {
        seen.has(kind, name);
    }
    let wakes = |source: &str| {
        let name = format!("distlock_wake_total{{source=\"{source}\"}}");
        seen.values.get(&name).copied().unwrap_or_default()
    };
    // On a busy machine the heartbeat may be there before the push.
    assert_eq!(wakes("push") + wakes("heartbeat"), 1.0, "{}", seen.text);
    assert_eq!(seen.kinds["distlock_wake_total"], "counter");
    for secret in ["s3cret", &id, &other] {
        assert!(!seen.text.contains(secret), "{secret} in\n{}", seen.text);
    }
    for (name, kind) in &seen.kinds {
        assert_eq!(name.ends_with("_total"), kind == "counter", "{name} is a {kind}");
        assert_eq!(name.ends_with("_seconds"), kind == "histogram", "{name} is a {kind}");
        assert!(seen.text.contains(&format!("# HELP {name} ")), "{name} is not explained");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_a_quorum_are_counted_and_shown_up_or_down() {
    let mut servers: Vec<_> = (0..3).map(|_| RedisServer::start()).collect();
    let nodes: Vec<_> = servers.iter().map(|server| format!("node={}", server.url())).collect();
    // Nodes that are down say so at once; the others may be slow.
    let url = format!("quorum:?{}&node_timeout_ms=2500", nodes.join("&"));
    let service = Service::over(Locks::connect(&url).unwrap(), |config| config.quorum = true).await;
    for up in [3, 2, 1] {
        let begun = Instant::now();
        let summary = loop {
            let summary = service.get("/api/v1/summary").await.is(200);
            if summary.json["backend"]["nodesUp"] == up {
                break summary;
            }
            // A summary is good for a second.
            assert!(begun.elapsed() < PATIENCE, "never {up}: {}", summary.text);
            tokio::time::sleep(Duration::from_millis(200)).await;
        };
        scrape(&service).await.is("gauge", "distlock_quorum_nodes_up", f64::from(up));
        let backend = &summary.json["backend"];
        assert_eq!(backend["ok"], up > 1, "{}", summary.text);
        assert_eq!(summary.json["listing"], false);
        let nodes = backend["nodes"].as_array().unwrap();
        assert_eq!(nodes.len(), 3, "{}", summary.text);
        for (at, server) in servers.iter().enumerate() {
            let name = format!("127.0.0.1:{}", server.port());
            let is = |node: &&serde_json::Value| node["name"].as_str().unwrap().contains(&name);
            let node = nodes.iter().find(is).unwrap_or_else(|| panic!("{name}: {}", summary.text));
            let down = at >= usize::try_from(up).unwrap();
            assert_eq!(node["state"], if down { "down" } else { "up" }, "{}", summary.text);
        }
        servers[usize::try_from(up).unwrap() - 1].kill();
    }
}

#[tokio::test]
async fn labels_are_few_and_harmless_whatever_keys_there_are() {
    let service = Service::on(On::Memory).await;
    for n in 0..260 {
        take(&service, &format!("tenant-{n}%2Fjob"), 0).await.is(201);
    }
    // Groups that would end a label, or be written alike.
    for odd in ["a%22%7D%201%0A%2Fx", "a%5C%22%2Fx", "a%22%2Fx"] {
        take(&service, odd, 0).await.is(201);
    }
    let seen = scrape(&service).await;
    let group = |name: &String| Some(name.split_once("group=\"")?.1.split('"').next()?.to_owned());
    let groups: BTreeSet<_> = seen.values.keys().filter_map(group).collect();
    assert!((100..=202).contains(&groups.len()), "{} groups", groups.len());
    assert!(groups.contains("other"), "{groups:?}");
}

#[tokio::test]
async fn services_in_one_program_count_for_themselves() {
    let (one, two) = (Service::on(On::Memory).await, Service::on(On::Memory).await);
    take(&one, "a%2Fb", 0).await.is(201);
    take(&one, "a%2Fc", 0).await.is(201);
    take(&two, "a%2Fb", 0).await.is(201);
    let granted = "distlock_acquire_total{outcome=\"granted\",group=\"a\"}";
    scrape(&one).await.is("counter", granted, 2.0);
    scrape(&two).await.is("counter", granted, 1.0);
}
