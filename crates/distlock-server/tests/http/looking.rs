//! Looking: lists, single keys, the past, events, a summary; and an operator's break.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{KEY, PATH, PATIENCE, Service, lease_id, on_every_store};

on_every_store!(
    keys_are_listed_by_prefix_and_page,
    a_key_shows_who_holds_and_who_waits,
    the_past_of_a_key_is_told,
    events_come_as_they_happen_and_again,
    a_hold_is_broken_only_under_its_fence,
    a_summary_counts,
);

async fn take(service: &Service, key: &str) -> Value {
    let path = format!("/api/v1/locks/{key}/leases");
    service.send("POST", &path, json!({"owner": "lister"})).await.is(201).json
}

async fn keys_are_listed_by_prefix_and_page(service: Service) {
    for n in 0..130 {
        take(&service, &format!("many%2F{n:03}")).await;
    }
    take(&service, "other").await;
    let (mut found, mut cursor, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let page = service.get(&format!("/api/v1/locks?prefix=many/{cursor}")).await.is(200);
        let locks = page.json["locks"].as_array().unwrap().clone();
        assert!(locks.len() <= 100, "a page of {}", locks.len());
        found.extend(locks.iter().map(|lock| lock["key"].as_str().unwrap().to_owned()));
        pages += 1;
        let Some(next) = page.json["next"].as_str() else { break };
        cursor = format!("&cursor={}", next.replace('%', "%25").replace('/', "%2F"));
    }
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 130, "in {pages} pages");
    let one = service.get("/api/v1/locks/other").await.is(200);
    assert!(!one.text.contains("leaseId"), "{}", one.text);
}

async fn a_key_shows_who_holds_and_who_waits(service: Service) {
    let free = service.get(&format!("/api/v1/locks/{PATH}")).await.is(200);
    assert_eq!((free.text_of("state"), free.text_of("key")), ("free".into(), KEY.into()));
    let hostile = "<script>alert(1)</script>";
    let held = json!({"owner": hostile, "reason": "\"'&", "ttlMs": 20_000});
    let held = service.lease(held).await.is(201);
    let waiting = service.lease(json!({"waitMs": 20_000, "owner": "next"}));
    let looking = async {
        service.until_waiting(1).await;
        let seen = service.get(&format!("/api/v1/locks/{PATH}")).await.is(200);
        assert_eq!(seen.header("content-type"), "application/json");
        assert_eq!(seen.header("x-content-type-options"), "nosniff");
        assert_eq!(seen.text_of("state"), "contended");
        let holder = &seen.json["holders"][0];
        assert_eq!((&holder["owner"], &holder["reason"]), (&json!(hostile), &json!("\"'&")));
        assert_eq!(holder["fence"], held.number_of("fence"));
        let (left, ttl) = (holder["remainingMs"].as_u64(), holder["ttlMs"].as_u64());
        assert!(left <= ttl && ttl.unwrap().abs_diff(20_000) < 500, "{holder}");
        let waiter = &seen.json["waiters"][0];
        assert_eq!((&waiter["owner"], &waiter["position"]), (&json!("next"), &json!(1)));
        service.release(&held.text_of("leaseId")).await.is(204);
    };
    let (granted, ()) = tokio::join!(waiting, looking);
    granted.is(201);
}

/// True if there is no journal: then no answer pretends that there is.
async fn without_a_past(service: &Service) -> bool {
    if service.locks.feed(distlock::StartAt::Now).is_ok() {
        return false;
    }
    service.get(&format!("/api/v1/locks/{PATH}/history")).await.is(501);
    service.get("/api/v1/events").await.is(501);
    true
}

async fn the_past_of_a_key_is_told(service: Service) {
    if without_a_past(&service).await {
        return;
    }
    let first = service.lease(json!({"owner": "first"})).await.is(201);
    service.release(&first.text_of("leaseId")).await.is(204);
    let second = service.lease(json!({"owner": "second"})).await.is(201);
    let past = service.get(&format!("/api/v1/locks/{PATH}/history?limit=10")).await.is(200);
    let visits = past.json["visits"].as_array().unwrap();
    assert_eq!(visits.len(), 2, "{}", past.text);
    assert_eq!((&visits[0]["owner"], &visits[0]["state"]), (&json!("second"), &json!("held")));
    assert_eq!(visits[0]["fence"], second.number_of("fence"));
    assert_eq!((&visits[1]["owner"], &visits[1]["state"]), (&json!("first"), &json!("released")));
}

/// Reads events until one of this key has this name; returns it with its id.
async fn event(
    stream: &mut reqwest::Response,
    text: &mut String,
    (name, key): (&str, &str),
) -> (String, Value) {
    let read = async {
        loop {
            while let Some((block, rest)) = text.clone().split_once("\n\n") {
                *text = rest.to_owned();
                let field = |field: &str| {
                    block.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default()
                };
                if field("event: ") == name {
                    let data: Value = serde_json::from_str(field("data: ")).unwrap();
                    if data["key"] == key {
                        return (field("id: ").to_owned(), data);
                    }
                }
            }
            let more = stream.chunk().await.unwrap().expect("the stream goes on");
            text.push_str(std::str::from_utf8(&more).unwrap());
        }
    };
    tokio::time::timeout(PATIENCE, read).await.expect("the event comes")
}

async fn events_come_as_they_happen_and_again(service: Service) {
    if without_a_past(&service).await {
        return;
    }
    let path = "/api/v1/events?prefix=deploy/";
    let mut stream = service.client.get(service.url(path)).send().await.unwrap();
    assert_eq!(stream.status(), 200);
    assert!(stream.headers()["content-type"].to_str().unwrap().starts_with("text/event-stream"));
    let mut text = String::new();
    // The feed begins when the stream is first read.
    let hello = stream.chunk().await.unwrap().unwrap();
    text.push_str(std::str::from_utf8(&hello).unwrap());
    assert!(text.contains("retry:"), "{text}");
    // No message says when that is, so something happens until it is heard.
    let heard = AtomicBool::new(false);
    let knocking = async {
        while !heard.load(Ordering::Relaxed) {
            let path = format!("/api/v1/locks/deploy%2Fknock-{}/leases", lease_id());
            service.send("POST", &path, json!({"owner": "knock", "ttlMs": 10_000})).await.is(201);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let listening = async {
        while !text.contains("knock") {
            let more = stream.chunk().await.unwrap().expect("the stream goes on");
            text.push_str(std::str::from_utf8(&more).unwrap());
        }
        heard.store(true, Ordering::Relaxed);
    };
    let both = async { tokio::join!(knocking, listening) };
    tokio::time::timeout(PATIENCE, both).await.expect("events come");

    take(&service, "elsewhere").await;
    let held = service.lease(json!({"owner": "seen"})).await.is(201);
    let (id, granted) = event(&mut stream, &mut text, ("granted", KEY)).await;
    assert_eq!((&granted["key"], &granted["owner"]), (&json!(KEY), &json!("seen")));
    assert_eq!(granted["fence"], held.number_of("fence"));
    assert_eq!(granted["id"], id.as_str());
    service.release(&held.text_of("leaseId")).await.is(204);
    let (_, released) = event(&mut stream, &mut text, ("released", KEY)).await;
    assert_eq!((&released["owner"], &released["fence"]), (&json!("seen"), &granted["fence"]));
    drop(stream);

    // A client that comes back after the grant learns of the release, and not of the grant.
    let request = service.client.get(service.url(path)).header("last-event-id", &id);
    let (mut again, mut text) = (request.send().await.unwrap(), String::new());
    let (_, first) = event(&mut again, &mut text, ("released", KEY)).await;
    assert_eq!(first["fence"], granted["fence"]);
    assert!(!text.contains("elsewhere"), "an event of another prefix: {text}");
}

async fn a_hold_is_broken_only_under_its_fence(service: Service) {
    let held = service.lease(json!({"owner": "stuck"})).await.is(201);
    let fence = held.number_of("fence");
    let path = format!("/api/v1/locks/{PATH}/break");
    let wrong = json!({"fence": fence - 1, "reason": "stuck since noon"});
    service.send("POST", &path, wrong).await.is(412);
    service.send("POST", &path, json!({"fence": fence})).await.is(400);
    service.send("POST", &path, json!({"fence": fence, "reason": ""})).await.is(422);
    let right = json!({"fence": fence, "reason": "stuck since noon"});
    service.send("POST", &path, right.clone()).await.is(204);
    service.send("POST", &path, right).await.is(412);
    service.renew(&held.text_of("leaseId")).await.is(410);
    if without_a_past(&service).await {
        return;
    }
    let past = service.get(&format!("/api/v1/locks/{PATH}/history")).await.is(200);
    assert_eq!(past.json["visits"][0]["state"], "broken", "{}", past.text);
    assert_eq!(past.json["visits"][0]["why"], "stuck since noon", "{}", past.text);
}

async fn a_summary_counts(service: Service) {
    take(&service, "one").await;
    let held = service.lease(json!({})).await.is(201);
    let waiting = service.lease(json!({"waitMs": 20_000}));
    let looking = async {
        service.until_waiting(1).await;
        let summary = service.get("/api/v1/summary").await.is(200);
        assert_eq!(summary.json["backend"]["ok"], true, "{}", summary.text);
        let counts = ["held", "contended", "waiting"].map(|name| summary.number_of(name));
        assert_eq!(counts, [2, 1, 1], "{}", summary.text);
        assert!(summary.json["oldestWaitMs"].is_u64(), "{}", summary.text);
        if service.locks.feed(distlock::StartAt::Now).is_ok() {
            assert_eq!(summary.number_of("lost24h"), 0);
        }
        assert_eq!(summary.json["points"].as_array().unwrap().len(), 1);
        service.release(&held.text_of("leaseId")).await.is(204);
    };
    let (granted, ()) = tokio::join!(waiting, looking);
    granted.is(201);
}
