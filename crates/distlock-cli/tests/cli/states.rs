//! The file of Terraform states: no other user can read it, from its creation on.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::*;

#[test]
fn states_and_their_folders_are_private_whatever_the_umask() {
    let folder = Folder::new();
    let script = "umask 0; exec \"$0\" serve --listen 127.0.0.1:0 --terraform-state new/deep/s.db";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_distlock")]).current_dir(folder.path(""));
    command.env("DISTLOCK_URL", some().url()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let _serving = Running::of("serve", child);
    let mut stream = TcpStream::connect(line.trim().rsplit("http://").next().unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(40))).unwrap();
    let (path, host) = ("/api/compat/terraform/prod", "Host: localhost\r\nConnection: close");
    write!(stream, "GET {path} HTTP/1.1\r\n{host}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    for (name, mode) in [("new", 0o700), ("new/deep", 0o700), ("new/deep/s.db", 0o600)] {
        let found = std::fs::metadata(folder.path(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(found, mode, "{name} has mode {found:o}");
    }
}
