//! `distlock serve` as its operator meets it. What it answers is tested where the service lives.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr};
use std::time::Duration;

use distlock_testkit::servers::RedisServer;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::*;

/// A service of a test's own. It is killed with this value.
pub(crate) struct Serving {
    pub(crate) child: Child,
    pub(crate) said: BufReader<ChildStderr>,
    /// What it says it listens on.
    pub(crate) url: String,
    /// Its host and port.
    pub(crate) address: String,
}

impl Serving {
    /// A service that listens on a free port.
    pub(crate) fn start(locker: &Distlock, folder: &Folder) -> Self {
        Self::with(locker, folder, "--listen 127.0.0.1:0")
    }

    /// A service with these flags.
    pub(crate) fn with(locker: &Distlock, folder: &Folder, flags: &str) -> Self {
        let states = folder.path("states.db");
        let line = format!("serve {flags} --terraform-state {}", states.display());
        Self::of(locker.command(&line).spawn().unwrap())
    }

    /// A service that was just started.
    pub(crate) fn of(mut child: Child) -> Self {
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("listening on ") {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "it ended before it listened");
        }
        let url = line.trim().rsplit("listening on ").next().unwrap().to_owned();
        let address = url.rsplit("://").next().unwrap().to_owned();
        Self { child, said, url, address }
    }

    /// Asks for a lease on a connection of its own.
    fn ask(&self, key: &str, wait_ms: u32) -> TcpStream {
        let body = format!("{{\"ttlMs\":600000,\"waitMs\":{wait_ms}}}");
        self.post(&format!("/api/v1/locks/{key}/leases"), &body)
    }

    /// Sends a request on a connection of its own.
    pub(crate) fn post(&self, path: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(40))).unwrap();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        stream
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Reads what it says until a line has these words.
    pub(crate) fn until_says(&mut self, words: &str) -> String {
        let mut line = String::new();
        while !line.contains(words) {
            line.clear();
            assert!(self.said.read_line(&mut line).unwrap() > 0, "it never says {words:?}");
        }
        line
    }

    /// Ends it by TERM: its code, and what it said since it was last read.
    pub(crate) fn stop(mut self) -> (Option<i32>, String) {
        self.signal(Signal::TERM);
        let mut said = String::new();
        self.said.read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code(), said)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn answer(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_service_that_is_told_to_stop_sends_waiters_away_and_ends_with_success() {
    for signal in [Signal::TERM, Signal::INT] {
        let (folder, key) = (Folder::new(), format!("served-until-{}", signal.as_raw()));
        let locker = on(&some()).inside(&folder);
        let mut serving = Serving::start(&locker, &folder);
        let granted = answer(serving.ask(&key, 0));
        assert!(granted.starts_with("HTTP/1.1 201"), "{granted}");
        let waiting = serving.ask(&key, 50_000);
        let waiters = || locker.run(&format!("status --json {key}")).json()["waitersTotal"].clone();
        until("a client waits", || waiters() == 1);

        serving.signal(signal);
        let sent_away = answer(waiting);
        assert!(sent_away.starts_with("HTTP/1.1 503"), "{sent_away}");
        assert_eq!(serving.child.wait().unwrap().code(), Some(0));
        let mut said = String::new();
        serving.said.read_to_string(&mut said).unwrap();
        assert!(said.contains("stopping"), "{said}");
        // What a client was granted outlives the service, and no client waits any more.
        locker.run(&format!("status --exit-code {key}")).code(75);
        assert_eq!(waiters(), 0);
    }
}

#[test]
fn the_pattern_redlock_has_a_quorum_of_its_own() {
    let folder = Folder::new();
    on(&some()).run("serve --redlock memory:").code(64).says("quorum:?node=");
    let nodes = [Store::redis(), Store::redis(), Store::redis()];
    let urls: Vec<_> = nodes.iter().map(|node| format!("node={}", node.url())).collect();
    let url = format!("quorum:?{}&node_timeout_ms=5000", urls.join("&"));
    let locker = on(&some()).inside(&folder).env("DISTLOCK_REDLOCK", &url);
    let serving = Serving::start(&locker, &folder);
    for pattern in ["redlock", "reentrant", "fair"] {
        let mut stream = TcpStream::connect(&serving.address).unwrap();
        let body = "{\"durationMs\":1}";
        write!(
            stream,
            "POST /api/locks/{pattern}/r HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let done = answer(stream);
        assert!(done.starts_with("HTTP/1.1 200"), "{pattern}: {done}");
    }
}

#[test]
fn an_address_that_others_can_reach_needs_tokens() {
    on(&some()).run("serve --listen 0.0.0.0:0").code(78).says("token");
}

#[test]
fn a_service_stops_with_success_while_its_store_is_down() {
    let (folder, mut server) = (Folder::new(), RedisServer::start());
    let locker = at(&server.url()).inside(&folder);
    let serving = Serving::start(&locker, &folder);
    let body = "{\"durationMs\":60000,\"ttlMs\":90000}";
    let running = serving.post("/api/locks/watchdog/kept-while-down", body);
    let held = || locker.run("status --exit-code kept-while-down").status.code() == Some(75);
    until("the operation holds its key", held);
    server.kill();
    let (code, said) = serving.stop();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("WARNING") && said.contains("end with their leases"), "{said}");
    drop(running);
}

#[test]
fn no_text_of_a_client_reaches_the_log_as_it_is() {
    let folder = Folder::new();
    let locker = on(&some()).inside(&folder);
    let mut serving = Serving::start(&locker, &folder);
    // A line break, a forged event, a colour and a mark that reverses the rest of the line.
    let path = "/api/v1/locks/a%0D%0AFORGED%1B%5B31m%E2%80%AEb";
    let granted = answer(serving.post(&format!("{path}/leases"), "{}"));
    let fence = granted.rsplit("\"fence\":").next().unwrap().split(',').next().unwrap();
    let body = format!("{{\"fence\":{fence},\"reason\":\"\u{202e}why\"}}");
    let broken = answer(serving.post(&format!("{path}/break"), &body));
    assert!(broken.starts_with("HTTP/1.1 204"), "{broken}");
    let line = serving.until_says("broken");
    assert!(line.contains(r"a\r\nFORGED\u{1b}[31m\u{202e}b"), "{line:?}");
    assert!(line.contains(r"\u{202e}why"), "{line:?}");
    assert!(!line.trim_end().contains(|c: char| c.is_control() || c == '\u{202e}'), "{line:?}");
}
