//! Waiting on a terminal: one line that is redrawn, through a real pseudo-terminal.

use std::process::{Command, Stdio};

use crate::support::*;

/// Runs a line of distlock on a pseudo-terminal and returns what the terminal got.
fn on_a_terminal(
    store: &Store,
    folder: &Folder,
    environment: &[(&str, &str)],
    line: &str,
) -> String {
    let mut command = Command::new("script");
    let whole = format!("{} {line}", env!("CARGO_BIN_EXE_distlock"));
    command.args(["-qefc", &whole, "/dev/null"]).current_dir(folder.path(""));
    command.env("DISTLOCK_URL", store.url()).env("TERM", "xterm").env_remove("NO_COLOR");
    command.envs(environment.iter().copied());
    // A terminal of its own, not that of whoever runs the tests.
    let output = command.stdin(Stdio::null()).output().expect("script(1) is there");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Holds a key for about two seconds.
fn hold_a_while(store: &Store, folder: &Folder, key: &str) -> Running {
    let locker = on(store).inside(folder);
    let line = format!(
        "run --owner deploy@ci-7 --reason 'release 1.9' {key} -- sh -c 'echo > mark; sleep 2.5'"
    );
    let running = locker.start(&line);
    until("it is held", || !folder.read("mark").is_empty());
    running
}

#[test]
fn the_second_of_two_shells_sees_holder_position_and_time_and_then_runs() {
    for store in Store::each() {
        let folder = Folder::new();
        let holder = hold_a_while(&store, &folder, "demo");
        let seen = on_a_terminal(&store, &folder, &[], "run -w 5m demo -- echo my turn");
        let bare = seen.replace("\x1b[1m", "").replace("\x1b[2m", "").replace("\x1b[33m", "");
        let bare = bare.replace("\x1b[0m", "");
        for part in ["demo held ", "by deploy@ci-7", "you are 1st of 1", "[0:00/5:00]", "[0:01/5:"]
        {
            assert!(bare.contains(part), "no {part:?} in {seen:?}");
        }
        assert!(seen.contains("\x1b[K"), "the line is redrawn: {seen:?}");
        assert!(
            seen.ends_with("\r\x1b[Kmy turn\r\n"),
            "the line is gone before the command: {seen:?}"
        );
        assert!(!seen.contains("distlock: waiting"), "{seen:?}");
        holder.end().code(0);
    }
}

#[test]
fn no_color_and_dumb_terminals_are_honoured() {
    let (store, folder) = (Store::redis(), Folder::new());
    let holder = hold_a_while(&store, &folder, "plain");
    let plain = on_a_terminal(&store, &folder, &[("NO_COLOR", "1")], "run plain -- echo done");
    assert!(plain.contains("plain held ") && !plain.contains("\x1b[33m"), "{plain:?}");
    holder.end();
    let holder = hold_a_while(&store, &folder, "dumb");
    let dumb = on_a_terminal(&store, &folder, &[("TERM", "dumb")], "run dumb -- echo done");
    assert!(
        dumb.contains("distlock: waiting for dumb: held ") && !dumb.contains('\x1b'),
        "{dumb:?}"
    );
    holder.end();
}

#[test]
fn a_free_lock_draws_nothing() {
    let (store, folder) = (Store::redis(), Folder::new());
    assert_eq!(on_a_terminal(&store, &folder, &[], "run free -- echo hello"), "hello\r\n");
}

#[test]
fn a_command_on_a_terminal_can_read_from_it() {
    let (store, folder) = (Store::redis(), Folder::new());
    // In a group of its own the command would be stopped for touching the terminal.
    let seen = on_a_terminal(&store, &folder, &[], "run tty -- stty -a");
    assert!(seen.contains("isig"), "{seen:?}");
}

#[test]
fn watch_shows_the_table_and_leaves_the_screen_as_it_was() {
    let (store, folder) = (Store::redis(), Folder::new());
    let holder = hold_a_while(&store, &folder, "watched");
    let binary = env!("CARGO_BIN_EXE_distlock");
    let mut command = Command::new("script");
    let line = format!("timeout -s INT 1 {binary} watch --interval 200ms");
    command.args(["-qfc", &line, "/dev/null"]).env("DISTLOCK_URL", store.url());
    let output = command.env("TERM", "xterm").stdin(Stdio::null()).output().unwrap();
    let seen = String::from_utf8_lossy(&output.stdout).into_owned();
    for part in ["KEY", "HOLDER", "LEASE", "FENCE", "watched", "deploy@ci-7", "1 held, 0 waiting"] {
        assert!(seen.contains(part), "no {part:?} in {seen:?}");
    }
    assert!(seen.contains("\x1b[?1049h") && seen.trim_end().ends_with("\x1b[?1049l"), "{seen:?}");
    holder.end();
}
