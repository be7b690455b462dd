//! The public names of the library crates, so that none changes unnoticed.
//!
//! `DISTLOCK_BLESS=1` writes the lists anew. A change of a list belongs into the CHANGELOG.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const CRATES: [&str; 7] = [
    "distlock",
    "distlock-core",
    "distlock-fenced",
    "distlock-redis",
    "distlock-sqlite",
    "distlock-postgres",
    "distlock-quorum",
];

/// The types of dependencies that are part of the API on purpose, and where from.
const FOREIGN: [(&str, &str); 2] =
    [("tokio_util", "CancellationToken"), ("futures_core", "Stream")];

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The source files of a crate, without their tests.
fn sources(krate: &str) -> Vec<String> {
    let (mut folders, mut found) = (vec![here(&format!("../{krate}/src"))], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let whole = fs::read_to_string(path).unwrap();
                found.push(whole.split("#[cfg(test)]\nmod tests").next().unwrap().to_owned());
            }
        }
    }
    found
}

/// The word that an item is named by, with what kind of item it is.
fn item(line: &str) -> Option<(&str, &str)> {
    let mut words = line.split([' ', '(', '<', ':', ';', '{', '=', ',']).filter(|w| !w.is_empty());
    let kinds = ["fn", "struct", "enum", "trait", "type", "const", "static", "mod", "union"];
    let kind = words.find(|word| !["async", "unsafe"].contains(word))?;
    let name = words.next()?;
    if kind == "const" && name == "fn" {
        return Some(("fn", words.next()?));
    }
    kinds.contains(&kind).then_some((kind, name))
}

/// The type that an `impl` is for.
fn implemented(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("impl")?;
    let rest = rest.split_once(" for ").map_or_else(
        || {
            if rest.starts_with('<') {
                rest.split_once("> ").map_or(rest, |(_, r)| r)
            } else {
                rest
            }
        },
        |(_, target)| target,
    );
    rest.trim().split(['<', ' ', '{']).next()
}

/// Every public name of a file: items, methods, fields, variants and re-exports.
fn names(source: &str, found: &mut BTreeSet<String>) {
    let (mut around, mut all_public, mut exported) = (String::new(), false, None::<String>);
    for line in source.lines() {
        let (bare, indent) = (line.trim_start(), line.len() - line.trim_start().len());
        if let Some(exports) = &mut exported {
            exports.push_str(bare);
        } else if let Some(rest) = bare.strip_prefix("pub use ") {
            exported = Some(rest.to_owned());
        }
        if let Some(exports) = exported.take_if(|exports| exports.ends_with(';')) {
            let (path, names) = exports.trim_end_matches(';').rsplit_once("::").unwrap();
            let names = names.trim_start_matches('{').trim_end_matches('}').split(',');
            let named = names.map(str::trim).filter(|name| !name.is_empty());
            let root = path.split("::").next().unwrap();
            let from =
                if root.starts_with("distlock") { format!(" of {root}") } else { String::new() };
            found.extend(named.map(|name| format!("use {name}{from}")));
        }
        if indent == 0 {
            let public = bare.strip_prefix("pub ");
            if let Some((kind, name)) = public.and_then(item) {
                found.insert(format!("{kind} {name}"));
                around = name.to_owned();
                all_public = ["enum", "trait"].contains(&kind);
            } else if let Some(name) = implemented(bare) {
                (around, all_public) = (name.to_owned(), false);
            } else if bare.starts_with('}') || item(bare).is_some() {
                (around, all_public) = (String::new(), false);
            }
        } else if indent == 4 && !around.is_empty() {
            if let Some(rest) = bare.strip_prefix("pub ") {
                match item(rest) {
                    Some((_, name)) => found.insert(format!("{around}::{name}")),
                    None => found.insert(format!("{around}.{}", rest.split(':').next().unwrap())),
                };
            } else if all_public && let Some((_, name)) = item(bare) {
                found.insert(format!("{around}::{name}"));
            } else if all_public && bare.starts_with(|c: char| c.is_ascii_uppercase()) {
                let name = bare.split([',', '(', ' ']).next().unwrap();
                found.insert(format!("{around}::{name}"));
            }
        }
    }
}

#[test]
fn no_public_name_changes_unnoticed() {
    let bless = std::env::var_os("DISTLOCK_BLESS").is_some();
    for krate in CRATES {
        let mut found = BTreeSet::new();
        sources(krate).iter().for_each(|source| names(source, &mut found));
        assert!(found.len() > 2, "{krate} has only {} public names", found.len());
        let list = here(&format!("tests/public_api/{krate}.txt"));
        if bless {
            let text: String = found.iter().map(|name| format!("{name}\n")).collect();
            fs::write(&list, text).unwrap();
        }
        let listed: BTreeSet<_> =
            fs::read_to_string(&list).unwrap().lines().map(str::to_owned).collect();
        let gone: Vec<_> = listed.difference(&found).collect();
        let new: Vec<_> = found.difference(&listed).collect();
        let hint = "say so in the CHANGELOG and run this test with DISTLOCK_BLESS=1";
        assert!(gone.is_empty() && new.is_empty(), "{krate}: gone {gone:?}, new {new:?}; {hint}");
    }
}

/// The names that a file imports from dependencies, with the crate of each.
fn imports(source: &str) -> Vec<(String, String)> {
    let own = ["std", "core", "crate", "super", "self"];
    let mut found = Vec::new();
    for import in source.split("\nuse ").skip(1) {
        let import = import.split(';').next().unwrap();
        let root = import.split("::").next().unwrap();
        if own.contains(&root) || root.starts_with("distlock") || root.contains(['{', ' ']) {
            continue;
        }
        let words = import.split(|c: char| !c.is_alphanumeric() && c != '_');
        let types = words.filter(|word| word.starts_with(|c: char| c.is_ascii_uppercase()));
        found.extend(types.map(|name| (root.to_owned(), name.to_owned())));
    }
    found
}

#[test]
fn types_of_dependencies_are_public_only_on_purpose() {
    for krate in ["distlock", "distlock-core"] {
        for source in sources(krate) {
            let imported = imports(&source);
            let lines: Vec<_> = source.lines().collect();
            for (at, line) in lines.iter().enumerate() {
                if !line.trim_start().starts_with("pub ") || line.contains("pub use ") {
                    continue;
                }
                let mut signature = String::new();
                for line in &lines[at..] {
                    signature.push_str(line);
                    if line.ends_with(['{', ';', ',', '}']) {
                        break;
                    }
                }
                // The fields of a tuple struct are private unless they say otherwise.
                if line.contains("pub struct") && !signature.contains("(pub ") {
                    continue;
                }
                let words = signature.split(|c: char| !c.is_alphanumeric() && c != '_');
                for word in words {
                    let foreign = imported.iter().find(|(_, name)| name == word);
                    if let Some((root, name)) = foreign {
                        let known = FOREIGN.contains(&(root, name));
                        assert!(known, "{krate} makes {root}::{name} public: {}", line.trim());
                    }
                }
            }
        }
    }
}
