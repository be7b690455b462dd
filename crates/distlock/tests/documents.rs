//! What the documents say is true: the recipe for fences, and the tests they name.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, named_params};

/// The example, to run it as a test.
#[path = "../examples/fenced_write.rs"]
#[allow(dead_code, reason = "a test has a main of its own")]
mod fenced_write;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A holder that reads a balance, adds to it, and writes it back, one statement at a time.
struct Holder {
    fence: i64,
    adds: i64,
    balance: i64,
    /// Some statement changed no row: the holder stops.
    refused: bool,
}

impl Holder {
    fn new(fence: i64, adds: i64) -> Self {
        Self { fence, adds, balance: 0, refused: false }
    }

    fn step(&mut self, database: &Connection, statement: &str) {
        if self.refused {
            return;
        }
        let mut statement = database.prepare(statement).unwrap();
        if statement.readonly() {
            self.balance =
                statement.query_row(named_params! { ":id": 17 }, |row| row.get(0)).unwrap();
            return;
        }
        let values = named_params! {
            ":id": 17, ":fence": self.fence, ":balance": self.balance + self.adds,
        };
        for (name, value) in values {
            if let Some(index) = statement.parameter_index(name).unwrap() {
                statement.raw_bind_parameter(index, value).unwrap();
            }
        }
        self.refused = statement.raw_execute().unwrap() == 0;
    }
}

/// How many of all sequences of the statements of two holders lose an update that was confirmed.
fn updates_lost(recipe: &[String]) -> usize {
    let steps = recipe.len() * 2;
    let mut lost = 0;
    // A set bit is a step of the second holder, which has the larger fence.
    for sequence in (0_u32..1 << steps).filter(|s| s.count_ones() as usize == recipe.len()) {
        let database = Connection::open_in_memory().unwrap();
        let table = "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER, fence INTEGER)";
        database.execute(table, []).unwrap();
        database.execute("INSERT INTO account VALUES (17, 0, 0)", []).unwrap();
        let mut holders = [Holder::new(1, 10), Holder::new(2, 5)];
        let mut next = [0; 2];
        for step in 0..steps {
            let turn = (sequence >> step & 1) as usize;
            holders[turn].step(&database, &recipe[next[turn]]);
            next[turn] += 1;
        }
        let confirmed: i64 = holders.iter().filter(|h| !h.refused).map(|h| h.adds).sum();
        let balance: i64 =
            database.query_row("SELECT balance FROM account", [], |row| row.get(0)).unwrap();
        assert!(!holders[1].refused, "the newest holder is never refused");
        lost += usize::from(balance != confirmed);
    }
    lost
}

/// The statements of the first block of SQL of a page.
fn statements(page: &str) -> Vec<String> {
    let block = page.split("```sql\n").nth(1).unwrap().split("```").next().unwrap();
    let code: Vec<_> = block.lines().filter(|line| !line.starts_with("--")).collect();
    let statements = code.join("\n");
    statements
        .split(';')
        .map(|part| part.trim().to_owned())
        .filter(|part| !part.is_empty())
        .collect()
}

#[test]
fn the_recipe_for_fences_loses_no_update_however_two_holders_are_paused() {
    let recipe = statements(&read("crates/distlock/src/guide/guarantees.md"));
    assert!(recipe.iter().any(|part| part.starts_with("SELECT")), "the recipe does not read");
    assert_eq!(updates_lost(&recipe), 0);
}

#[test]
fn a_fence_that_is_checked_at_the_write_alone_loses_updates() {
    let read = "SELECT balance FROM account WHERE id = :id";
    let write = "UPDATE account SET balance = :balance, fence = :fence \
                 WHERE id = :id AND fence <= :fence";
    assert_ne!(updates_lost(&[read.to_owned(), write.to_owned()]), 0);
}

#[tokio::test]
async fn the_example_of_a_fenced_write_loses_no_update() {
    fenced_write::demonstrate("memory:").await.unwrap();
}

/// Whether a file has a function of this name.
fn has(source: &str, name: &str) -> bool {
    source.match_indices(&format!("fn {name}")).any(|(at, found)| {
        let next = source[at + found.len()..].chars().next();
        next.is_some_and(|next| !next.is_alphanumeric() && next != '_')
    })
}

#[test]
fn every_test_that_the_failure_modes_name_exists() {
    let page = read("docs/failure-modes.md");
    let mut named = 0;
    // Every second part between backticks is code.
    for code in page.split('`').skip(1).step_by(2) {
        let Some((file, test)) = code.split_once(".rs::") else { continue };
        let below = if file.starts_with("crates/") { "" } else { "crates/distlock/tests/" };
        let path = format!("{below}{file}.rs");
        assert!(has(&read(&path), test), "{path} has no {test}");
        named += 1;
    }
    assert!(named >= 200, "only {named} tests are named");
    for row in page.lines().filter(|line| line.starts_with("| ")).map(str::trim_end) {
        assert!(row.ends_with("` |") || row.ends_with(" Tests |"), "no test: {row}");
    }
}

/// A number of a list says nothing to a reader who does not have the list.
#[test]
fn no_test_is_named_after_a_number() {
    let mut folders: Vec<PathBuf> = fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|krate| krate.unwrap().path().join("tests"))
        .collect();
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for path in entries.map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let source = fs::read_to_string(&path).unwrap();
                for name in
                    source.lines().filter_map(|line| line.split_once("fn ")).map(|(_, name)| name)
                {
                    let number = name.split('_').next().unwrap().trim_start_matches(['f', 's']);
                    let numbered = !number.is_empty() && number.chars().all(|c| c.is_ascii_digit());
                    assert!(!numbered, "{}: {name}", path.display());
                    seen += 1;
                }
            }
        }
    }
    assert!(seen >= 800, "only {seen} functions found");
}
