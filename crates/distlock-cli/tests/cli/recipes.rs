//! What the manual shows works: its recipes, and every snippet for a shell that can run.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::support::*;

/// The shells that have to understand them.
const SHELLS: [&[&str]; 3] = [&["bash"], &["dash"], &["bash", "-e"]];

/// Snippets that cannot run here, by a piece of their text, and why.
const NOT_RUN: [(&str, &str); 5] = [
    ("cargo run --release", "builds and installs the program"),
    ("make test", "runs all tests, this one included"),
    ("--redlock", "needs servers for a quorum; serving.rs has them"),
    ("--tls-cert", "needs a certificate; serving_tls.rs has one"),
    ("unix:/run/", "needs a folder of the system; serving_sockets.rs has another"),
];

/// What a snippet takes for given: its own steps, and that a refusal over HTTP is a failure.
const PRELUDE: &str = "step() { echo \"step $1\"; }
    curl() { command curl -sS --fail-with-body \"$@\"; }\n";

/// A snippet of a document.
struct Snippet {
    place: String,
    text: String,
}

/// All snippets for a shell in the README and the documents.
fn snippets() -> Vec<Snippet> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = vec![root.join("README.md")];
    let docs = fs::read_dir(root.join("docs")).unwrap();
    files.extend(docs.map(|entry| entry.unwrap().path()));
    files.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    files.iter().flat_map(of).collect()
}

fn of(path: &PathBuf) -> Vec<Snippet> {
    let (mut found, mut open): (Vec<Snippet>, _) = (Vec::new(), false);
    for (number, line) in fs::read_to_string(path).unwrap().lines().enumerate() {
        match line.trim() {
            "```sh" => {
                open = true;
                let place = format!("{}:{}", path.display(), number + 1);
                found.push(Snippet { place, text: String::new() });
            }
            "```" => open = false,
            _ if open => found.last_mut().unwrap().text.push_str(&format!("{line}\n")),
            _ => {}
        }
    }
    found
}

/// A shell in a folder of its own with distlock on its path.
fn shell(words: &[&str], folder: &Folder, store: &Store) -> Command {
    let bin = folder.path("bin");
    let _ = fs::create_dir(&bin);
    let _ = symlink(env!("CARGO_BIN_EXE_distlock"), bin.join("distlock"));
    let mut command = Command::new(words[0]);
    let path = std::env::var("PATH").unwrap();
    command.args(&words[1..]).current_dir(folder.path("")).stdin(Stdio::null());
    command.env("PATH", format!("{}:{path}", bin.display())).env("DISTLOCK_URL", store.url());
    for name in ["DISTLOCK_HELD", "DISTLOCK_REENTRY", "DISTLOCK_LEASE"] {
        command.env_remove(name);
    }
    command
}

fn run(words: &[&str], store: &Store, script: &str) -> Output {
    let folder = Folder::new();
    shell(words, &folder, store).args(["-c", script]).output().unwrap()
}

/// Serves until it says where it listens; returns the service and its address.
fn serve(words: &[&str], folder: &Folder, store: &Store, script: &str) -> (Running, String) {
    let mut command = shell(words, folder, store);
    command.args(["-c", script]).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().rsplit("http://").next().unwrap().to_owned();
    assert!(line.contains("listening on"), "{line}");
    (Running::of(script, child), address)
}

#[test]
fn every_snippet_of_the_documents_that_can_run_runs() {
    let store = Store::redis();
    let snippets = snippets();
    assert!(snippets.len() >= 6, "the documents have snippets");
    for (text, why) in NOT_RUN {
        let known = snippets.iter().any(|snippet| snippet.text.contains(text));
        assert!(known, "no snippet contains {text:?} ({why}): take it off the list");
    }
    for Snippet { place, text } in &snippets {
        if NOT_RUN.iter().any(|(not, _)| text.contains(not)) {
            continue;
        }
        for words in SHELLS {
            let folder = Folder::new();
            // Nothing else is changed: how long, which server, which port.
            let text =
                text.replace("sleep 20", "sleep 0").replace("redis://127.0.0.1/", &store.url());
            let listening = "exec distlock serve --listen 127.0.0.1:0";
            if text.contains("distlock serve") {
                let script = text.replace("distlock serve", listening);
                serve(words, &folder, &store, &script).0.stop();
                continue;
            }
            let service = text
                .contains("http://127.0.0.1:3009")
                .then(|| serve(words, &folder, &store, listening));
            let address = service.as_ref().map_or("127.0.0.1:3009", |(_, address)| address);
            let script = PRELUDE.to_owned() + &text.replace("127.0.0.1:3009", address);
            let output = shell(words, &folder, &store).args(["-c", &script]).output().unwrap();
            assert!(output.status.success(), "{place} in {words:?}: {output:?}");
        }
    }
}

/// Recipes that hold a lock over several commands, the second for shells in which the first is
/// followed by more than `|| exit`.
const RECIPES: [&str; 2] = [
    "eval \"$(distlock acquire -n --shell recipe)\" || exit; echo inside; \
     distlock release \"$DISTLOCK_KEY\"",
    "L=$(distlock acquire -n --shell recipe) || exit; eval \"$L\"; echo inside; \
     distlock release \"$DISTLOCK_KEY\"",
];

#[test]
fn a_script_never_goes_on_without_its_lock() {
    let store = Store::sqlite();
    for words in SHELLS {
        for recipe in RECIPES {
            let output = run(words, &store, recipe);
            assert_eq!(output.status.code(), Some(0), "{words:?}: {recipe}: {output:?}");
            assert_eq!(output.stdout, b"inside\n", "{words:?}: {recipe}");
        }
    }
    let folder = Folder::new();
    let _holder = hold(&on(&store), &folder, "", "recipe");
    for words in SHELLS {
        for recipe in RECIPES {
            for (change, code) in [("-n", 75), ("-n -E 42", 42), ("-n -E 0", 75), ("--bogus", 64)] {
                if recipe.starts_with("L=") && change == "-n -E 0" {
                    // The code was asked for, so this form sees a success without a lease.
                    continue;
                }
                let output = run(words, &store, &recipe.replace("-n", change));
                let said = String::from_utf8_lossy(&output.stderr);
                assert_eq!(output.status.code(), Some(code), "{words:?}: {recipe}: {said}");
                assert_eq!(output.stdout, b"", "{words:?} went on: {recipe} with {change}");
            }
            let down = format!("export DISTLOCK_URL=redis://127.0.0.1:1; {recipe}");
            assert_eq!(run(words, &store, &down).status.code(), Some(69), "{words:?}: {recipe}");
        }
    }
}
