//! Every exit code of the manual, in one table.

use crate::support::*;

#[test]
fn every_exit_code_is_as_documented() {
    let (store, folder) = (Store::redis(), Folder::new());
    let locker = on(&store).inside(&folder);
    let _holder = hold(&locker, &folder, "--owner other", "busy");
    std::fs::write(folder.path("plain"), "no program").unwrap();
    let table = [
        ("run k -- true", 0, ""),
        ("run k -- sh -c 'exit 3'", 3, ""),
        ("run k -- sh -c 'exit 255'", 255, ""),
        ("run k -- sh -c 'kill -TERM $$'", 143, ""),
        ("run k -- sh -c 'kill -KILL $$'", 137, ""),
        ("run --nonsense k -- true", 64, "--nonsense"),
        ("run k", 64, "<CMD>"),
        ("run", 64, "<KEY>"),
        ("", 64, "Usage"),
        ("nonsense", 64, "nonsense"),
        ("run -t 5s k -- true", 64, "--ttl 8s"),
        ("run -w 5 k -- true", 0, ""),
        ("run -w 5min k -- true", 0, ""),
        ("run -w 1m30 k -- true", 64, "unit"),
        ("run --reason '' k -- true", 0, ""),
        ("run -- echo hi", 64, "the key is missing"),
        ("run -n -- echo", 64, "the key is missing"),
        ("elect -- echo hi", 64, "the key is missing"),
        ("run -- -dashed true", 0, ""),
        ("run -b memory: k -- true", 64, "private to one process"),
        ("acquire -b memory: k", 64, "private to one process"),
        ("run -t 1us k -- true", 64, "unknown unit"),
        ("run -n -w 5s k -- true", 64, "cannot be used with"),
        ("run -N 0 k -- true", 64, "0"),
        ("run '' -- true", 64, "must not be empty"),
        ("run --owner '' k -- true", 64, "owner"),
        ("run -n -b redis://127.0.0.1:1 k -- true", 69, "Connection refused"),
        ("run -n -b redis://127.0.0.1:1 k -- true", 69, "acquire \"k\" at redis://127.0.0.1:1"),
        ("status -b redis://127.0.0.1:1 k", 69, "check that a server listens there"),
        ("run -n busy -- true", 75, "held by other"),
        ("run -w 0 busy -- true", 75, "held by other"),
        ("run -w 50ms busy -- true", 75, "busy"),
        ("run -n -E 42 busy -- true", 42, "busy"),
        ("run -n -E 0 busy -- true", 0, "busy"),
        ("run --preset cron busy -- true", 0, ""),
        ("run -b nonsense: k -- true", 78, "unknown"),
        ("run -b memory:x k -- true", 78, "nothing to choose"),
        ("run -b 'redis://h/?ttl=3' k -- true", 78, "not an option"),
        ("run --max-hold 50ms k -- sleep 100", 124, "--max-hold"),
        ("run k -- ./plain", 126, "plain"),
        ("run k -- /", 126, "/"),
        ("run k -- no-such-command", 127, "not found"),
        ("run k -- /no/such/command", 127, "not found"),
        ("status busy --exit-code", 75, ""),
        ("status free --exit-code", 0, ""),
        ("status busy", 0, ""),
        ("release k", 64, "token-file"),
        ("break busy --fence 1 --reason x", 75, "any more"),
        ("break busy --reason x", 64, "--fence"),
        ("doctor redis://127.0.0.1:1", 69, ""),
        ("--help", 0, ""),
        ("--version", 0, ""),
        ("run --help", 0, ""),
        ("completions bash", 0, ""),
        ("man", 0, ""),
    ];
    for (line, code, words) in table {
        locker.run(line).code(code).says(words);
    }
}

#[test]
fn a_wrong_password_is_not_authorised() {
    let server = distlock_testkit::servers::RedisServer::start();
    server.command(&["CONFIG", "SET", "requirepass", "s3ntinel-right"]);
    let bare = format!("redis://127.0.0.1:{}", server.port());
    let wrong = format!("redis://:s3ntinel-wrong@127.0.0.1:{}", server.port());
    for url in [bare, wrong] {
        for line in ["run -n k -- true", "run k -- true", "ls", "doctor"] {
            let done = at(&url).run(line).code(77);
            let all = format!("{}{}", done.stdout, done.stderr);
            assert!(!all.contains("s3ntinel"), "a password leaked: {all}");
        }
    }
}

#[test]
fn the_folder_of_a_command_that_never_ran_stays_empty() {
    let folder = Folder::new();
    at("nonsense:").inside(&folder).run("run k -- touch here").code(78);
    on(&some()).inside(&folder).run("run k -- no-such-command").code(127);
    on(&some()).inside(&folder).run("run --nonsense k -- touch here").code(64);
    assert_eq!(folder.names(), Vec::<String>::new());
}
