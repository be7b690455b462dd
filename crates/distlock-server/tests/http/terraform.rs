//! Terraform's http backend, at the level of its protocol.

use reqwest::RequestBuilder;
use serde_json::{Value, json};

use crate::support::{Answer, On, READER, Service, on_every_store, tempdir::Folder, tokens};

on_every_store!(
    a_state_is_locked_unlocked_and_locked_again,
    a_locked_state_shows_its_holder,
    lock_is_idempotent_by_id,
    a_lock_waits_for_its_turn,
    force_unlock_takes_it_away,
);

const PATH: &str = "/api/compat/terraform/prod";

fn info(id: &str) -> Value {
    json!({
        "ID": id, "Operation": "OperationTypeApply", "Info": "", "Who": "anna@laptop",
        "Version": "1.9.5", "Created": "2026-01-02T03:04:05.678901234Z", "Path": "",
    })
}

async fn lock(service: &Service, id: &str) -> Answer {
    service.send("LOCK", PATH, info(id)).await
}

async fn unlock(service: &Service, id: &str) -> Answer {
    service.send("UNLOCK", PATH, info(id)).await
}

async fn a_state_is_locked_unlocked_and_locked_again(service: Service) {
    lock(&service, "one").await.is(200);
    lock(&service, "two").await.is(423);
    unlock(&service, "one").await.is(200);
    // What is free needs no unlocking.
    unlock(&service, "one").await.is(200);
    lock(&service, "two").await.is(200);
    // What another client holds stays held.
    unlock(&service, "one").await.is(423);
    lock(&service, "three").await.is(423);
}

async fn a_locked_state_shows_its_holder(service: Service) {
    lock(&service, "one").await.is(200);
    let busy = lock(&service, "two").await.is(423);
    assert_eq!(busy.json, info("one"));
    let other = "/api/compat/terraform/staging";
    service.send("LOCK", other, info("two")).await.is(200);
    // Another client's lock on the same key is shown as far as it goes.
    let path = "/api/v1/locks/terraform%2Fdev/leases";
    service.send("POST", path, json!({"owner": "ops", "reason": "moving"})).await.is(201);
    let busy = service.send("LOCK", "/api/compat/terraform/dev", info("x")).await.is(423);
    assert_eq!((&busy.json["Who"], &busy.json["Info"]), (&json!("ops"), &json!("moving")));
}

async fn lock_is_idempotent_by_id(service: Service) {
    for _ in 0..3 {
        lock(&service, "one").await.is(200);
    }
    let seen = service.get("/api/v1/locks/terraform%2Fprod").await.is(200);
    assert_eq!(seen.number_of("holdersTotal"), 1);
    assert_eq!(seen.json["holders"][0]["owner"], "anna@laptop");
    // No client renews it, so it is long from the beginning.
    assert!(seen.json["holders"][0]["remainingMs"].as_u64() > Some(23 * 60 * 60 * 1_000));
    service.send("LOCK", PATH, json!({"Who": "nobody"})).await.is(400);
    service.request("LOCK", PATH).body("{").send().await.unwrap();
}

async fn a_lock_waits_for_its_turn(service: Service) {
    lock(&service, "one").await.is(200);
    let path = format!("{PATH}?wait=20s&ttl=2h");
    let waiting = service.send("LOCK", &path, info("two"));
    let unlocking = async {
        let seen = "/api/v1/locks/terraform%2Fprod";
        while service.get(seen).await.json["waitersTotal"] != 1 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        unlock(&service, "one").await.is(200);
    };
    let (granted, ()) = tokio::join!(waiting, unlocking);
    granted.is(200);
    let seen = service.get("/api/v1/locks/terraform%2Fprod").await.is(200);
    let left = seen.json["holders"][0]["remainingMs"].as_u64().unwrap();
    assert!((6_000_000..=7_200_000).contains(&left), "{}", seen.text);
    service.send("LOCK", &format!("{PATH}?wait=soon"), info("x")).await.is(400);
    service.send("LOCK", &format!("{PATH}?wiat=1s"), info("x")).await.is(400);
}

async fn force_unlock_takes_it_away(service: Service) {
    lock(&service, "one").await.is(200);
    service.send("UNLOCK", PATH, Value::Null).await.is(200);
    service.send("UNLOCK", PATH, Value::Null).await.is(200);
    lock(&service, "two").await.is(200);
    if service.locks.feed(distlock::StartAt::Now).is_err() {
        return;
    }
    let past = service.get("/api/v1/locks/terraform%2Fprod/history").await.is(200);
    assert_eq!(past.json["visits"][1]["state"], "broken", "{}", past.text);
    assert_eq!(past.json["visits"][1]["why"], "force-unlock", "{}", past.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_is_written_only_by_whoever_has_the_lock() {
    let folder = Folder::new();
    let file = folder.0.join("below/states.sqlite");
    let service = Service::with(On::Memory, |c| c.terraform_state = Some(file.clone())).await;
    let write = |id: &str, body: &str| {
        let query = if id.is_empty() { String::new() } else { format!("?ID={id}") };
        let request: RequestBuilder = service.request("POST", &format!("{PATH}{query}"));
        Answer::of(request.header("content-type", "application/json").body(body.to_owned()))
    };
    service.get(PATH).await.is(404);
    lock(&service, "one").await.is(200);
    write("one", r#"{"serial":1}"#).await.is(200);
    let read = service.get(PATH).await.is(200);
    assert_eq!(
        (read.header("content-type"), read.text.as_str()),
        ("application/json", r#"{"serial":1}"#)
    );
    write("two", "{}").await.is(409);
    write("", "{}").await.is(409);
    // A client that lost the lock cannot write any more, even after its successor has gone.
    service.send("UNLOCK", PATH, Value::Null).await.is(200);
    write("one", "{}").await.is(409);
    lock(&service, "two").await.is(200);
    write("two", r#"{"serial":2}"#).await.is(200);
    unlock(&service, "two").await.is(200);
    write("two", "{}").await.is(409);
    assert_eq!(service.get(PATH).await.is(200).text, r#"{"serial":2}"#);
    // Without a lock only while no client has it.
    write("", r#"{"serial":3}"#).await.is(200);
    lock(&service, "three").await.is(200);

    let large = format!("{{\"x\":\"{}\"}}", "y".repeat(2_000_000));
    write("three", &large).await.is(200);
    assert_eq!(service.get(PATH).await.is(200).text.len(), large.len());
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600, "others can read the states");
    // Another service over the same file goes on with it.
    let next = Service::with(On::Memory, |c| c.terraform_state = Some(file.clone())).await;
    assert_eq!(next.get(PATH).await.is(200).text.len(), large.len());
    service.send("DELETE", PATH, Value::Null).await.is(200);
    service.get(PATH).await.is(404);
    service.send("PATCH", PATH, Value::Null).await.is(405);
}

#[tokio::test]
async fn without_a_file_there_are_locks_only() {
    let service = Service::on(On::Memory).await;
    lock(&service, "one").await.is(200);
    service.get(PATH).await.is(501);
    service.send("POST", &format!("{PATH}?ID=one"), json!({})).await.is(501);
}

#[tokio::test]
async fn terraform_presents_its_token_as_a_password() {
    let service = Service::with(On::Memory, |config| config.tokens = tokens()).await;
    let request = service.request("LOCK", PATH).json(&info("one"));
    Answer::of(request).await.is(401);
    let request = service.request("LOCK", PATH).json(&info("one"));
    Answer::of(request.basic_auth("terraform", Some(READER))).await.is(403);
    let request = service.request("LOCK", PATH).json(&info("one"));
    Answer::of(request.basic_auth("terraform", Some(crate::support::ADMIN))).await.is(200);
}
