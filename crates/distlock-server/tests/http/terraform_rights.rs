//! Which token may do what with Terraform's states and locks, and that it is recorded.

use distlock_server::Tokens;
use reqwest::RequestBuilder;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::{Answer, On, Service, tempdir::Folder};

const PATH: &str = "/api/compat/terraform/prod";
const KEY: &str = "/api/v1/locks/terraform%2Fprod";

const READER: &str = "reader-0123456789abcdef";
const LOCKER: &str = "locker-0123456789abcdef";
const RUNNER: &str = "runner-0123456789abcdef";
const SECOND: &str = "second-0123456789abcdef";
const ADMIN: &str = "admin-0123456789abcdef";

async fn service(folder: &Folder) -> Service {
    let tokens = format!(
        "{READER} read\n{LOCKER} lock:terraform/\n{RUNNER} lock:terraform/ state:terraform/\n\
         {SECOND} lock:terraform/ state:terraform/ lock:dapr/ read\n{ADMIN} admin\n"
    );
    let file = folder.0.join("states.sqlite");
    Service::with(On::Memory, |config| {
        config.tokens = Tokens::parse(&tokens).unwrap();
        config.terraform_state = Some(file);
    })
    .await
}

async fn ask(service: &Service, token: &str, method: &str, path: &str, body: Value) -> Answer {
    let request: RequestBuilder = service.request(method, path).basic_auth("x", Some(token));
    Answer::of(if body.is_null() { request } else { request.json(&body) }).await
}

fn info(id: &str) -> Value {
    json!({"ID": id, "Who": "anna@laptop", "Operation": "OperationTypeApply"})
}

#[tokio::test]
async fn the_contents_of_a_state_need_a_scope_of_their_own() {
    let folder = Folder::new();
    let service = service(&folder).await;
    ask(&service, RUNNER, "LOCK", PATH, info("one")).await.is(200);
    let with_id = format!("{PATH}?ID=one");
    ask(&service, RUNNER, "POST", &with_id, json!({"password": "s3cret"})).await.is(200);
    for token in [READER, LOCKER] {
        let refused = ask(&service, token, "GET", PATH, Value::Null).await.is(403);
        assert!(refused.text_of("detail").contains("state:"), "{}", refused.text);
        ask(&service, token, "POST", &with_id, json!({})).await.is(403);
        ask(&service, token, "DELETE", &with_id, Value::Null).await.is(403);
    }
    for token in [RUNNER, ADMIN] {
        let read = ask(&service, token, "GET", PATH, Value::Null).await.is(200);
        assert_eq!(read.json, json!({"password": "s3cret"}));
    }
}

#[tokio::test]
async fn a_state_is_deleted_under_its_lock_or_by_an_operator() {
    let folder = Folder::new();
    let service = service(&folder).await;
    let (first, second) = (format!("{PATH}?ID=one"), format!("{PATH}?ID=two"));
    ask(&service, RUNNER, "LOCK", PATH, info("one")).await.is(200);
    ask(&service, RUNNER, "POST", &first, json!({"serial": 1})).await.is(200);
    ask(&service, RUNNER, "DELETE", PATH, Value::Null).await.is(403);
    ask(&service, RUNNER, "DELETE", &second, Value::Null).await.is(409);
    // The ID is public: with another token it is of no use.
    ask(&service, SECOND, "DELETE", &first, Value::Null).await.is(409);
    ask(&service, RUNNER, "GET", PATH, Value::Null).await.is(200);
    ask(&service, RUNNER, "DELETE", &first, Value::Null).await.is(200);
    ask(&service, RUNNER, "GET", PATH, Value::Null).await.is(404);

    ask(&service, RUNNER, "POST", &first, json!({"serial": 2})).await.is(200);
    ask(&service, ADMIN, "DELETE", PATH, Value::Null).await.is(200);
    ask(&service, RUNNER, "GET", PATH, Value::Null).await.is(404);
    // Both are recorded, with the name of the token.
    let mut actions = Vec::new();
    for entry in service.locks.journal_page(None, 100).await.unwrap().entries {
        if let distlock::NoteEvent::Action { by, what } = entry.note.what {
            actions.push(format!("{} {what} by {by}", entry.note.key));
        }
    }
    let expected = ["state-deleted by token-3", "state-deleted by token-5"];
    assert_eq!(actions, expected.map(|action| format!("terraform/prod {action}")));
}

#[tokio::test]
async fn a_force_unlock_is_for_operators() {
    let folder = Folder::new();
    let service = service(&folder).await;
    ask(&service, RUNNER, "LOCK", PATH, info("one")).await.is(200);
    for token in [READER, LOCKER, RUNNER, SECOND] {
        ask(&service, token, "UNLOCK", PATH, Value::Null).await.is(403);
    }
    // Neither is knowing the ID, which every caller that is refused gets to see, enough.
    ask(&service, SECOND, "LOCK", PATH, info("two")).await.is(423);
    ask(&service, SECOND, "UNLOCK", PATH, info("one")).await.is(423);
    ask(&service, ADMIN, "UNLOCK", PATH, Value::Null).await.is(200);
    let path = format!("{KEY}/history");
    let past = ask(&service, READER, "GET", &path, Value::Null).await.is(200);
    let visit = &past.json["visits"][0];
    assert_eq!((&visit["state"], &visit["why"]), (&json!("broken"), &json!("force-unlock")));
    assert_eq!(visit["by"], "token-5", "{}", past.text);
}

#[tokio::test]
async fn an_unlock_is_recorded_with_the_name_of_the_token() {
    let folder = Folder::new();
    let service = service(&folder).await;
    ask(&service, RUNNER, "LOCK", PATH, info("one")).await.is(200);
    ask(&service, RUNNER, "UNLOCK", PATH, info("one")).await.is(200);
    let entries = service.locks.journal_page(None, 100).await.unwrap().entries;
    let noted = entries.iter().any(|entry| {
        let by_token = |by: &distlock::Label| by.as_str() == "token-3";
        matches!(&entry.note.what, distlock::NoteEvent::Action { by, .. } if by_token(by))
    });
    assert!(noted, "{entries:?}");
}

/// The first 16 bytes of a hash over words, each after its length.
fn guess(words: &[&str]) -> String {
    let mut hash = Sha256::new();
    for word in words {
        hash.update((word.len() as u64).to_be_bytes());
        hash.update(word);
    }
    hash.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn no_lease_id_follows_from_what_others_may_read() {
    let folder = Folder::new();
    let service = service(&folder).await;
    ask(&service, RUNNER, "LOCK", PATH, info("one")).await.is(200);
    let dapr = json!({"resourceId": "r", "lockOwner": "me", "expiryInSeconds": 60});
    let path = "/v1.0-alpha1/lock/lockstore";
    let locked = ask(&service, ADMIN, "POST", path, dapr).await.is(200);
    assert_eq!(locked.json["success"], true);
    let dapr_key = "dapr/lockstore/r";
    let seen =
        ask(&service, READER, "GET", "/api/v1/locks/dapr%2Flockstore%2Fr", Value::Null).await;
    let reason = seen.json["holders"][0]["reason"].as_str().unwrap();
    let nonce = reason.strip_prefix("dapr ").unwrap();
    for (key, words) in [
        ("terraform%2Fprod", vec!["terraform", "terraform/prod", "one"]),
        ("terraform%2Fprod", vec!["", "terraform", "terraform/prod", "one"]),
        ("dapr%2Flockstore%2Fr", vec!["dapr", dapr_key, "me", nonce]),
        ("dapr%2Flockstore%2Fr", vec!["", "dapr", dapr_key, "me", nonce]),
    ] {
        let request = service.request("DELETE", &format!("/api/v1/locks/{key}/lease"));
        let request = request.bearer_auth(SECOND).header("lease-id", guess(&words));
        Answer::of(request).await.is(410);
        let look = format!("/api/v1/locks/{key}");
        let seen = ask(&service, READER, "GET", &look, Value::Null).await.is(200);
        assert_eq!(seen.text_of("state"), "held", "{key}");
    }
    // Another token with the same owner's name unlocks nothing.
    let unlock = json!({"resourceId": "r", "lockOwner": "me"});
    let path = "/v1.0-alpha1/unlock/lockstore";
    let other = ask(&service, SECOND, "POST", path, unlock.clone()).await.is(200);
    assert_eq!(other.json["status"], 2);
    assert_eq!(ask(&service, ADMIN, "POST", path, unlock).await.is(200).json["status"], 0);
}
