//! `distlock serve` as its operator meets it. What it answers is tested where the service lives.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::*;

/// A service that listens on a free port. It is killed with this value.
struct Serving {
    child: Child,
    said: BufReader<ChildStderr>,
    address: String,
}

impl Serving {
    fn start(locker: &Distlock, folder: &Folder) -> Self {
        let states = folder.path("states.db");
        let line = format!("serve --listen 127.0.0.1:0 --terraform-state {}", states.display());
        let mut child = locker.command(&line).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let address = line.trim().rsplit("http://").next().unwrap().to_owned();
        Self { child, said, address }
    }

    /// Asks for a lease on a connection of its own.
    fn ask(&self, key: &str, wait_ms: u32) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(40))).unwrap();
        let body = format!("{{\"ttlMs\":600000,\"waitMs\":{wait_ms}}}");
        write!(
            stream,
            "POST /api/v1/locks/{key}/leases HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        stream
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn answer(mut stream: TcpStream) -> String {
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
        until("somebody waits", || waiters() == 1);

        serving.signal(signal);
        let sent_away = answer(waiting);
        assert!(sent_away.starts_with("HTTP/1.1 503"), "{sent_away}");
        assert_eq!(serving.child.wait().unwrap().code(), Some(0));
        let mut said = String::new();
        serving.said.read_to_string(&mut said).unwrap();
        assert!(said.contains("stopping"), "{said}");
        // What a client was granted outlives the service, and nobody waits any more.
        locker.run(&format!("status --exit-code {key}")).code(75);
        assert_eq!(waiters(), 0);
    }
}

#[test]
fn an_address_that_others_can_reach_needs_tokens() {
    on(&some()).run("serve --listen 0.0.0.0:0").code(78).says("token");
}
