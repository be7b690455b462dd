//! Further processes of this program, for workloads that need several.
//!
//! A worker says `ready` when it is, begins when it reads a line, and prints what it found.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::round::Flavor;
use crate::{crowd, handover, proxy, quorum, renewal, sqlite, uncontended};

/// A worker process as its parent sees it. It dies with this value.
pub(crate) struct Worker {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Worker {
    pub(crate) fn start(args: &[&str]) -> Self {
        let program = std::env::current_exe().expect("this program has a name");
        let mut child = Command::new(program)
            .arg("worker")
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be run");
        let stdin = child.stdin.take().expect("it is piped");
        let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, stdin, stdout }
    }

    /// Waits until it is ready.
    pub(crate) fn ready(&mut self) {
        assert_eq!(self.line(), "ready", "a worker failed");
    }

    /// The next line that it prints.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("the worker lives");
        line.trim().to_owned()
    }

    /// Lets it begin.
    pub(crate) fn go(&mut self) {
        writeln!(self.stdin, "go").expect("the worker lives");
    }

    /// Waits for all that it prints.
    pub(crate) fn output(mut self) -> String {
        let mut text = String::new();
        self.stdout.read_to_string(&mut text).expect("the worker prints text");
        text
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // One that has ended already is as dead as can be.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a worker says to its parent, and waits for.
pub(crate) fn ready_and_wait() {
    println!("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("the parent lives");
}

/// The life of a worker.
pub(crate) fn run(args: &[String]) {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["handover", url, first, tasks, span_ms] => {
            handover::work(url, number(first), number(tasks), number(span_ms));
        }
        ["renewal", contender, url, leases, span_ms] => {
            renewal::work(contender, url, number(leases), number(span_ms));
        }
        ["cycles", contender, runtime, tasks, keys, cycles] => {
            let flavor = if runtime == "ct" { Flavor::CurrentThread } else { Flavor::TwoWorkers };
            uncontended::work(contender, flavor, number(tasks), number(keys), number(cycles));
        }
        ["quorum", contender, cycles] => quorum::work(contender, number(cycles)),
        ["file", url, name, span_ms] => sqlite::work(url, name, number(span_ms)),
        ["idle", url, waiters, keys] => crowd::idle(url, number(waiters), number(keys)),
        ["proxy", port, micros] => proxy::work(number(port), Duration::from_micros(number(micros))),
        _ => panic!("unknown work: {args:?}"),
    }
}

fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("not a number: {text}"))
}
