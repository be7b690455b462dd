//! The pages hold together: every page is in the book, every link leads somewhere, and the files
//! for operators name what exists.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A path from the root without `..`, as it is written in a file of `folder`.
fn resolve(folder: &Path, target: &str) -> String {
    let mut parts: Vec<String> = Vec::new();
    for part in folder.join(target).components() {
        match part {
            Component::ParentDir => assert!(parts.pop().is_some(), "{target} leads out"),
            Component::Normal(part) => parts.push(part.to_str().unwrap().to_owned()),
            _ => (),
        }
    }
    parts.join("/")
}

/// A page without its blocks of code and its code between backticks.
fn prose(page: &str) -> String {
    let mut kept = String::new();
    for part in page.split("\n```").step_by(2) {
        kept.extend(part.split('`').step_by(2));
        kept.push('\n');
    }
    kept
}

/// The targets of all links of a page.
fn links(page: &str) -> Vec<String> {
    let prose = prose(page);
    let found = prose.split("](").skip(1);
    found.map(|rest| rest.split(')').next().unwrap().to_owned()).collect()
}

/// The name under which a heading can be linked to.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().chars().filter_map(|c| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        c if c.is_alphanumeric() => Some(c.to_ascii_lowercase()),
        _ => None,
    });
    kept.collect()
}

/// The pages that the summary of the book lists, from the root.
fn listed() -> BTreeSet<String> {
    let pages = links(&read("docs/SUMMARY.md"));
    pages.iter().map(|target| resolve(Path::new("docs"), target)).collect()
}

fn pages_in(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(root().join(folder)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".md")).map(|name| format!("{folder}/{name}")).collect()
}

#[test]
fn every_page_is_in_the_book() {
    let listed = listed();
    let mut pages = pages_in("docs");
    pages.extend(pages_in("crates/distlock/src/guide"));
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let readme = format!("crates/{}/README.md", entry.unwrap().file_name().to_str().unwrap());
        let path = root().join(&readme);
        // That of the library is a link to the first page.
        if path.exists() && !path.is_symlink() {
            pages.push(readme);
        }
    }
    assert!(pages.len() >= 12, "only {} pages found", pages.len());
    for page in pages.iter().filter(|page| !page.ends_with("/SUMMARY.md")) {
        assert!(listed.contains(page), "docs/SUMMARY.md does not list {page}");
    }
}

#[test]
fn every_link_of_the_book_leads_to_a_file_and_a_heading() {
    let mut seen = 0;
    for page in listed() {
        let folder = Path::new(&page).parent().unwrap().to_owned();
        for link in links(&read(&page)) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (target, fragment) = link.split_once('#').unwrap_or((&link, ""));
            let target = match target.strip_prefix("crate::guide::") {
                Some(module) => format!("crates/distlock/src/guide/{module}.md"),
                // Items of a crate are checked by rustdoc.
                None if target.contains("::") => continue,
                None if target.is_empty() => page.clone(),
                None => resolve(&folder, target),
            };
            assert!(root().join(&target).exists(), "{page} links to {link}");
            seen += 1;
            if !fragment.is_empty() {
                let text = read(&target);
                let headings = text.lines().filter(|line| line.starts_with('#'));
                let there = headings.map(anchor).any(|name| name == fragment);
                assert!(there, "{page} links to {link}: no such heading");
            }
        }
    }
    assert!(seen >= 60, "only {seen} links found");
}

/// Words that begin with `distlock_`, without what Prometheus adds to the names of histograms.
fn metrics(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_lowercase() && c != '_');
    let named = words.filter(|word| word.starts_with("distlock_"));
    let endings = ["_bucket", "_count", "_sum"];
    let bare = named.map(|name| endings.iter().fold(name, |name, end| name.trim_end_matches(end)));
    bare.map(str::to_owned).collect()
}

#[test]
fn alerts_and_dashboard_use_metrics_that_are_documented() {
    let documented = metrics(&read("docs/http.md"));
    for file in ["deploy/prometheus/alerts.yml", "deploy/grafana/distlock.json"] {
        let used = metrics(&read(file));
        assert!(used.len() >= 7, "{file} uses {used:?}");
        for name in used {
            assert!(documented.contains(&name), "{file}: docs/http.md does not have {name}");
        }
    }
}

#[test]
fn every_alert_is_explained_and_no_other() {
    let rules = read("deploy/prometheus/alerts.yml");
    let named = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let named: BTreeSet<_> = named.collect();
    let page = read("docs/operations.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `Distlock"));
    let explained: BTreeSet<_> = rows.map(|row| row.split('`').next().unwrap()).collect();
    let named: BTreeSet<_> = named.iter().map(|name| &name["Distlock".len()..]).collect();
    assert_eq!(named, explained);
}

/// The words after `make` in a text.
fn targets(text: &str) -> BTreeSet<String> {
    let after = text.split("make ").skip(1);
    let words = after.map(|rest| rest.split(|c: char| !c.is_ascii_lowercase() && c != '-'));
    words.filter_map(|mut words| words.next()).map(str::to_owned).collect()
}

#[test]
fn workflows_call_targets_that_the_makefile_has() {
    let makefile = read("Makefile");
    let mut called = 0;
    for entry in fs::read_dir(root().join(".github/workflows")).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let commands: String = text.lines().filter(|line| line.contains("run:")).collect();
        for target in targets(&commands) {
            let there = makefile.lines().any(|line| line.starts_with(&format!("{target}:")));
            assert!(there, "{}: make {target}", path.display());
            called += 1;
        }
    }
    assert!(called >= 4, "only {called} calls of make");
}
