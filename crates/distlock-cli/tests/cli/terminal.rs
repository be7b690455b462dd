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
    // A terminal of its own, not that of the test runner.
    let output = command.stdin(Stdio::null()).output().expect("script(1) is there");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Holds a key until the file `go` is there.
fn hold_until_told(store: &Store, folder: &Folder, key: &str) -> Running {
    let _ = std::fs::remove_file(folder.path("go"));
    let script = "echo > mark; while ! test -e go; do sleep 0.05; done; rm mark";
    let line = format!("run --owner deploy@ci-7 --reason 'release 1.9' {key} -- sh -c '{script}'");
    let running = on(store).inside(folder).start(&line);
    until("it is held", || !folder.read("mark").is_empty());
    running
}

/// Waits for a key on a pseudo-terminal, for two seconds and a half, then gets it.
fn wait_on_a_terminal(
    store: &Store,
    folder: &Folder,
    environment: &[(&str, &str)],
    key: &str,
    line: &str,
) -> String {
    std::thread::scope(|scope| {
        let seen = scope.spawn(|| on_a_terminal(store, folder, environment, line));
        let look = || on(store).run(&format!("status --json {key}")).json();
        until("it waits", || look()["waitersTotal"] == 1);
        std::thread::sleep(std::time::Duration::from_millis(2_500));
        std::fs::write(folder.path("go"), "").unwrap();
        seen.join().unwrap()
    })
}

fn without_colours(seen: &str) -> String {
    let codes = ["\x1b[1m", "\x1b[2m", "\x1b[33m", "\x1b[0m"];
    codes.iter().fold(seen.to_owned(), |seen, code| seen.replace(code, ""))
}

#[test]
fn the_second_of_two_shells_sees_holder_position_and_time_and_then_runs() {
    for store in Store::each() {
        let folder = Folder::new();
        let holder = hold_until_told(&store, &folder, "demo");
        let line = "run -w 5m demo -- echo my turn";
        let seen = wait_on_a_terminal(&store, &folder, &[], "demo", line);
        let bare = without_colours(&seen);
        for part in ["demo held ", "by deploy@ci-7", "you are 1st of 1", "lease ", "[0:01/5:"] {
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
fn a_key_with_a_past_says_how_long_it_will_take() {
    let (store, folder) = (Store::sqlite(), Folder::new());
    let Store::Sqlite(files) = &store else { unreachable!() };
    // Makes the file, and a hold that is too short to matter.
    on(&store).run("run usual -- true").code(0);
    let file = rusqlite::Connection::open(files.path("locks.db")).unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    for (visit, minutes) in [(1_i64, 60_i64), (2, 61), (3, 62)] {
        for (what, us) in [("granted", 0), ("released", minutes * 60_000_000)] {
            file.execute(
                "INSERT INTO journal (written_ms, at_ms, what, key, owner, mode, fence, visit, us) \
                 VALUES (?1, ?1, ?2, 'usual', 'me', 'exclusive', ?3, ?3, ?4)",
                (i64::try_from(now.as_millis()).unwrap(), what, visit, us),
            )
            .unwrap();
        }
    }
    let holder = hold_until_told(&store, &folder, "usual");
    let seen = wait_on_a_terminal(&store, &folder, &[], "usual", "run usual -- echo my turn");
    let bare = without_colours(&seen);
    assert!(bare.contains("you are 1st of 1") && bare.contains("about 1h"), "{seen:?}");
    holder.end().code(0);
}

#[test]
fn no_color_and_dumb_terminals_are_honoured() {
    let (store, folder) = (Store::redis(), Folder::new());
    let holder = hold_until_told(&store, &folder, "plain");
    let bare = [("NO_COLOR", "1")];
    let plain = wait_on_a_terminal(&store, &folder, &bare, "plain", "run plain -- echo done");
    assert!(plain.contains("plain held ") && !plain.contains("\x1b[33m"), "{plain:?}");
    holder.end();
    let holder = hold_until_told(&store, &folder, "dumb");
    let dumb = [("TERM", "dumb")];
    let dumb = wait_on_a_terminal(&store, &folder, &dumb, "dumb", "run dumb -- echo done");
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
    let holder = hold_until_told(&store, &folder, "watched");
    let binary = env!("CARGO_BIN_EXE_distlock");
    let mut command = Command::new("script");
    let line = format!("timeout -s INT 2 {binary} watch --interval 200ms");
    command.args(["-qfc", &line, "/dev/null"]).env("DISTLOCK_URL", store.url());
    let output = command.env("TERM", "xterm").stdin(Stdio::null()).output().unwrap();
    let seen = String::from_utf8_lossy(&output.stdout).into_owned();
    for part in ["KEY", "HOLDER", "LEASE", "FENCE", "watched", "deploy@ci-7", "1 held, 0 waiting"] {
        assert!(seen.contains(part), "no {part:?} in {seen:?}");
    }
    assert!(seen.contains("\x1b[?1049h") && seen.trim_end().ends_with("\x1b[?1049l"), "{seen:?}");
    std::fs::write(folder.path("go"), "").unwrap();
    holder.end();
}
