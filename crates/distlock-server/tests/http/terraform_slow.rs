//! Slow clients of Terraform's states cost no memory and stop no others.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

use crate::support::{Answer, On, PATIENCE, Service, tempdir::Folder};

const PATH: &str = "/api/compat/terraform/prod";

async fn service(folder: &Folder) -> Service {
    let file = folder.0.join("states.sqlite");
    Service::with(On::Memory, |config| config.terraform_state = Some(file)).await
}

/// What this process has in memory, in MiB: the service runs in it.
fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_downloads_take_no_memory() {
    const SIZE: usize = 30 * 1024 * 1024;
    let folder = Folder::new();
    let service = service(&folder).await;
    let upload = service.request("POST", PATH).body("1".repeat(SIZE));
    Answer::of(upload).await.is(200);
    let before = resident_mib();
    let address = service.address;
    let clients = tokio::task::spawn_blocking(move || {
        let connect = |_| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let request = format!("GET {PATH} HTTP/1.1\r\nHost: localhost\r\n\r\n");
            stream.write_all(request.as_bytes()).unwrap();
            stream
        };
        let mut clients: Vec<_> = (0..40).map(connect).collect();
        // Each has begun to receive, and reads no further.
        for client in &mut clients {
            let mut head = [0; 12];
            client.read_exact(&mut head).unwrap();
            assert_eq!(&head, b"HTTP/1.1 200");
        }
        clients
    });
    let mut clients = clients.await.unwrap();
    let grown = resident_mib().saturating_sub(before);
    assert!(grown < 200, "{grown} MiB for 40 downloads of 30 MiB");
    // A client that goes on gets all of it.
    let last = clients.pop().unwrap();
    let read = tokio::task::spawn_blocking(move || {
        let (mut last, mut read, mut buffer) = (last, 0, vec![0; 1 << 20]);
        while read < SIZE {
            match last.read(&mut buffer).unwrap() {
                0 => break,
                more => read += more,
            }
        }
        read
    });
    assert!(read.await.unwrap() >= SIZE);
    drop(clients);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_uploads_stop_no_others() {
    let folder = Folder::new();
    let service = service(&folder).await;
    let stalled: Vec<_> = (0..40)
        .map(|_| {
            let mut stream = TcpStream::connect(service.address).unwrap();
            let head = "Host: localhost\r\nContent-Type: application/json\r\n";
            let request =
                format!("POST {PATH} HTTP/1.1\r\n{head}Content-Length: 1000000\r\n\r\n{{");
            stream.write_all(request.as_bytes()).unwrap();
            stream
        })
        .collect();
    // They are under way before the other one comes.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let upload = service.request("POST", PATH).timeout(Duration::from_secs(5));
    Answer::of(upload.json(&json!({"serial": 1}))).await.is(200);
    // One that stays silent is sent away.
    let waiting = tokio::task::spawn_blocking(move || {
        let mut first = stalled.into_iter().next().unwrap();
        first.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut head = [0; 12];
        first.read_exact(&mut head).unwrap();
        head
    });
    assert_eq!(&waiting.await.unwrap(), b"HTTP/1.1 408");
}

#[tokio::test]
async fn a_state_that_is_too_large_is_refused() {
    let folder = Folder::new();
    let service = service(&folder).await;
    let upload = service.request("POST", PATH).body(vec![b'1'; 64 * 1024 * 1024 + 1]);
    let answer = upload.send().await;
    // The connection may end before the client has sent everything.
    assert!(answer.is_err() || answer.is_ok_and(|answer| answer.status() == 413));
    service.get(PATH).await.is(404);
    let left = std::fs::read_dir(&folder.0).unwrap().count();
    assert!(left <= 1, "files were left behind");
}
