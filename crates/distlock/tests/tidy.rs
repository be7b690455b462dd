//! The invariants of ARCHITECTURE.md that the compiler cannot keep.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A source file without its tests and comments, which may say what the code must not.
struct Source {
    path: String,
    code: String,
    whole: String,
}

/// The crates of the drivers.
const DRIVERS: [&str; 4] =
    ["distlock-redis", "distlock-sqlite", "distlock-postgres", "distlock-quorum"];

/// The crates that a program with locks contains, but for the core.
const LIBRARY: [&str; 6] =
    ["distlock", "distlock-fenced", DRIVERS[0], DRIVERS[1], DRIVERS[2], DRIVERS[3]];

/// The lines of a manifest that name what a crate depends on, but for its tests.
fn dependencies(krate: &str) -> Vec<String> {
    let manifest = fs::read_to_string(root().join(format!("crates/{krate}/Cargo.toml"))).unwrap();
    let named = manifest.split("[dependencies]").nth(1).unwrap();
    let named = named.split("[dev-dependencies]").next().unwrap();
    named.lines().filter(|line| line.contains("workspace")).map(str::to_owned).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn sources(under: &str) -> Vec<Source> {
    let mut found = Vec::new();
    collect(&root().join(under), &mut found);
    assert!(!found.is_empty(), "no sources under {under}");
    found
}

fn collect(folder: &Path, found: &mut Vec<Source>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let whole = fs::read_to_string(&path).unwrap();
            let code = whole.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
            let is_code = |line: &&str| !line.trim_start().starts_with("//");
            let code = code.lines().filter(is_code).collect::<Vec<_>>().join("\n");
            let path = path.strip_prefix(root()).unwrap().display().to_string();
            found.push(Source { path, code, whole });
        }
    }
}

/// Asserts that none of the words is in the code of files under a folder, but for some files.
fn forbid(under: &str, words: &[&str], except: &[&str], why: &str) {
    for source in sources(under) {
        if except.iter().any(|end| source.path.ends_with(end)) {
            continue;
        }
        for word in words {
            assert!(!source.code.contains(word), "{} has {word:?}: {why}", source.path);
        }
    }
}

#[test]
fn the_core_reads_no_clock_and_does_no_io() {
    let clocks = ["Instant::now", "SystemTime", "std::time::Instant", "rustix", "elapsed("];
    let io = ["std::fs", "std::net", "std::env", "std::thread", "tokio", "println!"];
    forbid("crates/distlock-core/src", &clocks, &[], "time comes in as an argument");
    forbid("crates/distlock-core/src", &io, &[], "the core only decides");
    for line in dependencies("distlock-core") {
        let known = line.starts_with("futures-core")
            || line.starts_with("getrandom")
            || line.starts_with("smol_str")
            || (line.starts_with("serde ") && line.contains("optional"));
        assert!(known, "a new dependency of the core: {line}");
    }
}

#[test]
fn only_the_keeper_and_the_io_of_drivers_spawn() {
    // A file has threads of its own, so that no runtime waits for a disk; batches belong to no
    // caller; late calls of a quorum are seen through by a task of its own. A confirmation goes on
    // without its caller, and no call waits until all nodes of a cluster know the library.
    // What several callers wait for is the work of a task, and connections are made by one. A
    // client of PostgreSQL has a thread of its own, on which all of its calls are tasks.
    let files = [
        "distlock-redis/src/batch.rs",
        "distlock-redis/src/confirm.rs",
        "distlock-redis/src/connections/dialling.rs",
        "distlock-redis/src/prepare.rs",
        "distlock-sqlite/src/worker.rs",
        "distlock-sqlite/src/wake.rs",
        "distlock-postgres/src/connection.rs",
        "distlock-postgres/src/thread.rs",
        "distlock-postgres/src/lib.rs",
        "distlock-postgres/src/listener.rs",
        "distlock-postgres/src/notifier.rs",
        "distlock-postgres/src/shared.rs",
        "distlock-postgres/src/tidy.rs",
        "distlock-quorum/src/shared_work.rs",
        "distlock-quorum/src/late_calls.rs",
        "keeper/home.rs",
        "keeper/thread.rs",
    ];
    for krate in LIBRARY {
        forbid(&format!("crates/{krate}/src"), &["spawn("], &files, "tasks have one owner");
    }
}

#[test]
fn only_the_engine_loops_over_attempts() {
    let asks = ["backend.acquire(", ".acquire(&self.ask"];
    // A quorum asks each of its nodes once.
    let once =
        ["engine/acquire.rs", "distlock-quorum/src/acquire.rs", "distlock-quorum/src/renew.rs"];
    for krate in LIBRARY {
        forbid(&format!("crates/{krate}/src"), &asks, &once, "there is one waiting loop");
    }
}

#[test]
fn backends_sleep_and_retry_nothing_and_know_nobody() {
    let waits = ["sleep(", "time::interval", "retry("];
    forbid("crates/distlock/src/backends", &waits, &[], "a driver makes one attempt");
    for driver in DRIVERS {
        forbid(&format!("crates/{driver}/src"), &waits, &[], "a driver makes one attempt");
        let mut named = dependencies(driver);
        named.retain(|line| line.starts_with("distlock"));
        assert_eq!(named, ["distlock-core.workspace = true"], "{driver} knows the core only");
    }
}

#[test]
fn nobody_exits_unwraps_or_leaves_a_note_for_later() {
    let exits = ["process::exit", "process::abort", ".unwrap()", "todo!(", "unimplemented!("];
    for krate in LIBRARY.into_iter().chain(["distlock-core", "distlock-testkit"]) {
        forbid(&format!("crates/{krate}/src"), &exits, &[], "errors are values");
    }
    forbid("crates/distlock-cli/src", &exits, &["src/main.rs"], "only main ends the process");
    for source in sources("crates").iter().filter(|source| !source.path.ends_with("tidy.rs")) {
        for note in ["TODO", "FIXME", "XXX", "HACK", "for now"] {
            assert!(!source.whole.contains(note), "{} has a note: {note}", source.path);
        }
    }
}

#[test]
fn no_other_language_hides_in_rust_strings() {
    let foreign = ["redis.call", "redis.pcall", "CREATE TABLE", "BEGIN IMMEDIATE"];
    for krate in LIBRARY {
        let why = "Lua and SQL have files of their own";
        forbid(&format!("crates/{krate}/src"), &foreign, &[], why);
    }
}

#[test]
fn nothing_unbounded_is_made() {
    let unbounded = ["unbounded_channel", "mpsc::channel()"];
    for krate in LIBRARY.into_iter().chain(["distlock-core"]) {
        forbid(&format!("crates/{krate}/src"), &unbounded, &[], "every queue has a bound");
    }
}

#[test]
fn files_and_lines_stay_readable() {
    for source in sources("crates") {
        let code = source.code.lines().count();
        assert!(code <= 400, "{} has {code} lines of code", source.path);
        let (lines, mut top) = (source.whole.lines().count(), source.whole.lines().take(8));
        let reason = top.any(|line| line.contains("Long because"));
        assert!(lines <= 400 || reason, "{} has {lines} lines and no reason", source.path);
        for (number, line) in source.whole.lines().enumerate() {
            let width = line.chars().count();
            assert!(width <= 100, "{}:{} is {width} wide", source.path, number + 1);
        }
        let first = source.whole.lines().next().unwrap_or_default();
        let introduced = first.starts_with("//!") || first.starts_with("#![doc");
        assert!(introduced, "{} does not say why it exists", source.path);
    }
}

#[test]
fn every_public_async_fn_tells_about_cancellation_and_shows_an_example() {
    let mut seen = 0;
    for source in LIBRARY.iter().flat_map(|krate| sources(&format!("crates/{krate}/src"))) {
        let mut docs = String::new();
        for line in source.whole.lines().map(str::trim_start) {
            if let Some(doc) = line.strip_prefix("///") {
                docs.push_str(doc);
                docs.push('\n');
            } else if !line.starts_with("#[") {
                if line.starts_with("pub async fn") {
                    seen += 1;
                    let place = format!("{}: {line}", source.path);
                    assert!(docs.contains("# Cancel safety"), "{place} hides its cancel safety");
                    let fails = source.whole.lines().skip_while(|l| l.trim_start() != line);
                    let signature: Vec<_> = fails.take(8).collect();
                    let end = signature.iter().position(|l| l.ends_with('{')).unwrap_or(7);
                    let fails = signature[..=end].iter().any(|l| l.contains("-> Result<"));
                    assert!(!fails || docs.contains("# Errors"), "{place} hides its errors");
                    assert!(docs.contains("```"), "{place} has no example");
                }
                docs.clear();
            }
        }
    }
    assert!(seen >= 40, "only {seen} public async fns found");
}

/// The type or constant that a line of source declares for a whole module.
fn declared(line: &str) -> Option<&str> {
    let line = match line.strip_prefix("pub(") {
        Some(scoped) => scoped.split_once(") ")?.1,
        None => line.strip_prefix("pub ").unwrap_or(line),
    };
    let (kind, rest) = line.split_once(' ')?;
    let kinds = ["struct", "enum", "trait", "type", "union", "const", "static"];
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (kinds.contains(&kind) && !["", "_", "fn"].contains(&name)).then_some(name)
}

#[test]
fn a_type_or_constant_has_one_meaning_in_the_whole_workspace() {
    // One of the two is compiled, depending on the feature `metrics`.
    let alternatives = ["Meter"];
    let mut places = BTreeMap::<String, Vec<String>>::new();
    for source in sources("crates") {
        if !source.path.contains("/src/") {
            continue;
        }
        // The blocking shells have the names of what they wrap, on purpose.
        if source.path.starts_with("crates/distlock/src/blocking/") {
            continue;
        }
        for name in source.code.lines().filter_map(declared) {
            places.entry(name.to_owned()).or_default().push(source.path.clone());
        }
    }
    assert!(places.len() > 500, "only {} types and constants found", places.len());
    places.retain(|name, found| found.len() > 1 && !alternatives.contains(&name.as_str()));
    assert!(places.is_empty(), "names with more than one meaning: {places:#?}");
}

#[test]
fn the_map_of_the_architecture_is_short_and_names_files_that_exist() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    assert!(page.lines().count() <= 250, "{} lines", page.lines().count());
    let files: Vec<_> = sources("crates").into_iter().map(|source| source.path).collect();
    let mut named = 0;
    for word in page.split(|c: char| !c.is_alphanumeric() && !"_./-{},".contains(c)) {
        let word = word.trim_matches(['.', ',', '-']);
        if !word.ends_with(".rs") {
            continue;
        }
        named += 1;
        let alternatives: Vec<String> = match word.split_once('{').zip(word.split_once('}')) {
            Some(((before, _), (inside, after))) => inside
                .split_once('{')
                .unwrap()
                .1
                .split(',')
                .map(|name| format!("{before}{name}{after}"))
                .collect(),
            None => vec![word.to_owned()],
        };
        for name in alternatives {
            let ending = format!("/{name}");
            let is_it = |file: &String| *file == name || file.ends_with(&ending);
            assert!(files.iter().any(is_it), "there is no file {name}");
        }
    }
    assert!(named > 100, "only {named} files named");
}
