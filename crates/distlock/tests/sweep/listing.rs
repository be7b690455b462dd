//! Which async fns the library offers, read from its sources.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// `Type::name` of every `pub async fn` in the sources.
pub(crate) fn public_async_fns() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    found
}

fn collect(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.ends_with("src/backends") {
            // What drivers offer beside the seam is told apart in their own tests.
            continue;
        }
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            read(&fs::read_to_string(&path).unwrap(), found);
        }
    }
}

fn read(source: &str, found: &mut BTreeSet<String>) {
    let mut owner = String::new();
    for line in source.lines() {
        if let Some(head) = line.strip_prefix("impl") {
            owner = self_type(head);
        }
        if let Some(rest) = line.trim_start().strip_prefix("pub async fn ") {
            let end = rest.find(['(', '<']).unwrap_or(rest.len());
            // A free function stands at the margin.
            let of = if line.starts_with(' ') { owner.as_str() } else { "" };
            found.insert(format!("{of}::{}", &rest[..end]));
        }
    }
}

/// `Latch` of `<W: Word> Latch<W> {`, `Guard` of ` Drop for Guard {`.
fn self_type(head: &str) -> String {
    let head = head
        .strip_prefix('<')
        .map_or(head, |generic| generic.split_once("> ").map_or(generic, |(_, rest)| rest));
    let head = head.rsplit(" for ").next().unwrap_or(head).trim();
    head.chars().take_while(|c| c.is_alphanumeric()).collect()
}

#[test]
fn the_listing_reads_methods_of_all_shapes() {
    let source = concat!(
        "impl<W: Word> Latch<W> {\n    pub async fn a<T>(&self) {\n}\n",
        "impl Drop for B {\n    pub(crate) async fn no() {\n    pub async fn b() {\n}\n",
        "pub async fn free() {",
    );
    let mut found = BTreeSet::new();
    read(source, &mut found);
    let expected = ["Latch::a", "B::b", "::free"].map(str::to_owned);
    assert_eq!(found, BTreeSet::from(expected));
}
