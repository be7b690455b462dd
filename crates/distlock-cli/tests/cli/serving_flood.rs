//! `distlock serve` with few files to open, and many connections without a token.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::process::{Command, Stdio};

use crate::serving::Serving;
use crate::serving_files::{OLD, status, write};
use crate::support::*;

/// A service that a shell starts under a limit of open files.
fn limited(folder: &Folder, limit: &str) -> Serving {
    let (tokens, states) = (write(folder, &format!("{OLD} admin\n")), folder.path("states.db"));
    let serve = on(&some()).command(&format!(
        "serve --listen 127.0.0.1:0 --token-file {tokens} --terraform-state {}",
        states.display()
    ));
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("ulimit {limit} && exec \"$0\" \"$@\"")]);
    shell.arg(serve.get_program()).args(serve.get_args());
    shell.envs(serve.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    Serving::of(shell.spawn().unwrap())
}

#[test]
fn a_service_raises_its_limit_of_open_files() {
    let folder = Folder::new();
    let serving = limited(&folder, "-S -n 256");
    let limits = fs::read_to_string(format!("/proc/{}/limits", serving.child.id())).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let numbers: Vec<_> = files.split_whitespace().skip(3).take(2).collect();
    assert_eq!(numbers[0], numbers[1], "soft and hard: {files}");
    assert_ne!(numbers[0], "256");
}

#[test]
fn more_idle_connections_than_files_lock_no_token_out() {
    let folder = Folder::new();
    let serving = limited(&folder, "-n 300");
    let flood: Vec<_> = (0..400)
        .map(|_| {
            let mut stream = TcpStream::connect(&serving.address).unwrap();
            write!(stream, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
            stream
        })
        .collect();
    for _ in 0..3 {
        assert_eq!(status(&serving, OLD), 200);
    }
    drop(flood);
    let (code, said) = serving.stop();
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("could not accept"), "{said}");
}
