//! The OpenAPI document and the service agree: Schemathesis asks whatever the document allows, and
//! much that it does not.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::tempdir::Folder;
use crate::support::{On, Service};

/// Requests for each operation; so many times as many with `DISTLOCK_SOAK`.
const EXAMPLES: u32 = 15;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_description_is_true() {
    let program =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/schemathesis/bin/schemathesis");
    assert!(program.exists(), "`make setup` installs Schemathesis into target/schemathesis");
    // What is held stays held: no client shall wait for it for long.
    let brief = Duration::from_millis(50);
    let states = Folder::new();
    let service = Service::with(On::Memory, |config| {
        config.wait_max = brief;
        config.terraform_state = Some(states.0.join("states.sqlite"));
    })
    .await;
    let times = std::env::var("DISTLOCK_SOAK").ok().and_then(|times| times.parse().ok());
    let examples = (EXAMPLES * times.unwrap_or(1)).to_string();
    let document = service.url("/api/openapi.json");
    // It keeps notes where it runs and where its user lives.
    let folder = Folder::new();
    let work = tokio::task::spawn_blocking(move || {
        Command::new(program)
            .args(["run", &document, "--max-examples", &examples, "--seed", "1", "--workers", "1"])
            .args(["--checks", CHECKS, "--phases", "examples,coverage,fuzzing"])
            // Streams never end, and operations take as long as they are told to.
            .args(["--exclude-path", "/api/v1/events"])
            .args(["--exclude-path", "/api/locks/{pattern}/{resourceId}"])
            .args(["--request-timeout", "60", "--generation-database", "none", "--no-color"])
            .env("HOME", &folder.0)
            .current_dir(&folder.0)
            .output()
            .unwrap()
    });
    let output = work.await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{complained}");
    println!("{said}");
}

const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
    response_headers_conformance,response_schema_conformance";
