//! `examples/redis.acl`: a Redis user with these rules can do everything that locks need, and
//! nothing else.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use distlock_testkit::servers::{RedisServer, RedisServerOptions};

use crate::support::*;

const RECIPE: &str = include_str!("../../../../examples/redis.acl");
const PASSWORD: &str = "change-this-password";

/// A server that has read the recipe.
fn guarded(folder: &Folder) -> RedisServer {
    let file = folder.path("users.acl");
    fs::write(&file, RECIPE).unwrap();
    let args = vec!["--aclfile".to_owned(), file.display().to_string()];
    RedisServer::start_with(RedisServerOptions { args })
}

#[test]
fn the_user_of_the_recipe_can_do_what_locks_need() {
    let folder = Folder::new();
    let server = guarded(&folder);
    let url = format!("redis://distlock:{PASSWORD}@127.0.0.1:{}/", server.port());
    let locker = at(&url).inside(&folder);
    locker.run("run -n alone -- true").code(0);
    locker.run("run -n -s shared -- true").code(0);
    locker.run("run -n -N 3 counted -- true").code(0);
    // A waiter is woken by a push, over the channel of the recipe.
    let holder = hold(&locker, &folder, "", "contended");
    let waiter = locker.start("run -w 30s contended -- true");
    let waiting = || locker.run("status --json contended").json()["waitersTotal"] == 1;
    until("a command waits", waiting);
    locker.run("ls").code(0).shows("contended");
    locker.run("status contended").code(0).shows("held");
    holder.stop();
    waiter.end().code(0);
    locker.run("acquire --token-file lease leased").code(0);
    locker.run("renew --token-file lease").code(0);
    let fence = locker.run("status --json leased").json()["holders"][0]["fence"].clone();
    locker.run("history alone").code(0).shows("released");
    locker.run(&format!("break leased --fence {fence} --reason test")).code(0);
    let examined = locker.run("doctor").code(0).shows("handed over");
    assert!(!examined.stdout.contains("fail"), "{}", examined.stdout);
    // Redis records every command, key and channel that was denied.
    let denied = server.command(&["ACL", "LOG"]);
    assert!(!denied.contains("reason"), "{denied}");
}

#[test]
fn the_user_of_the_recipe_can_do_nothing_else() {
    let folder = Folder::new();
    let server = guarded(&folder);
    let stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    let mut replies = BufReader::new(stream.try_clone().unwrap());
    let mut ask = |line: &str| {
        (&stream).write_all(format!("{line}\r\n").as_bytes()).unwrap();
        let mut reply = String::new();
        replies.read_line(&mut reply).unwrap();
        reply
    };
    assert_eq!(ask(&format!("AUTH distlock {PASSWORD}")), "+OK\r\n");
    for line in [
        "SET sessions:1 x",
        "GET sessions:1",
        "DEL sessions:1",
        "PUBLISH news x",
        "SUBSCRIBE news",
        "EVAL \"return redis.call('GET','sessions:1')\" 0",
        "CONFIG GET *",
        "FLUSHALL",
        "KEYS *",
        "ACL LIST",
        "SCRIPT FLUSH",
        "CLIENT LIST",
        "MONITOR",
        "DEBUG SLEEP 0",
    ] {
        let reply = ask(line);
        let denied = reply.contains("NOPERM") || reply.contains("can't run this command");
        let denied = denied || reply.contains("can't access") || reply.contains("ermission");
        assert!(reply.starts_with('-') && denied, "{line}: {reply}");
    }
}
