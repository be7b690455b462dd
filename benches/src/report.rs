//! The figures of a run: on the terminal, as JSON and as a page.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::Path;

use crate::targets;

const HEAD: &str = include_str!("benchmarks_head.md");

/// Every figure by its name.
#[derive(Debug, Default)]
pub(crate) struct Report {
    figures: BTreeMap<String, f64>,
}

impl Report {
    pub(crate) fn add(&mut self, metric: impl Into<String>, value: f64) {
        let metric = metric.into();
        // JSON knows no infinities; what could not be measured is left out and shows as missing.
        if value.is_finite() {
            eprintln!("  {metric} = {}", shown(value));
            self.figures.insert(metric, value);
        } else {
            eprintln!("  {metric} could not be measured");
        }
    }

    /// Adds figures of an earlier run, as far as there was one.
    pub(crate) fn take_over(&mut self, prefix: &str, path: &Path) {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let earlier: BTreeMap<String, f64> = serde_json::from_str(&text).unwrap_or_default();
        self.figures.extend(earlier.into_iter().filter(|(metric, _)| metric.starts_with(prefix)));
    }

    pub(crate) fn table(&self) -> String {
        let mut table = String::from("| metric | value | target | |\n|---|---|---|---|\n");
        for (metric, value) in &self.figures {
            let (target, verdict) = match targets::of(metric) {
                Some(bound) if bound.is_met(*value) => (bound.to_string(), "ok"),
                Some(bound) => (bound.to_string(), "below"),
                None => (String::new(), ""),
            };
            let value = shown(*value);
            writeln!(table, "| `{metric}` | {value} | {target} | {verdict} |")
                .expect("a string takes all");
        }
        for (metric, bound) in targets::TARGETS {
            if !self.figures.contains_key(*metric) {
                writeln!(table, "| `{metric}` | not measured | {bound} | below |")
                    .expect("a string takes all");
            }
        }
        table
    }

    /// A figure for people.
    pub(crate) fn shown(&self, metric: &str) -> String {
        self.figures.get(metric).map_or_else(|| "not measured".to_owned(), |value| shown(*value))
    }

    pub(crate) fn write_json(&self, path: &Path) -> io::Result<()> {
        let lines: Vec<_> = self.figures.iter().map(|(k, v)| format!("  \"{k}\": {v}")).collect();
        write(path, &format!("{{\n{}\n}}\n", lines.join(",\n")))
    }

    pub(crate) fn write_markdown(&self, path: &Path) -> io::Result<()> {
        write(path, &format!("{HEAD}\n{}", self.table()))
    }
}

/// Three digits that mean something.
fn shown(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 1.0 => format!("{value:.2}"),
        size if size >= 0.01 || size == 0.0 => format!("{value:.3}"),
        _ => format!("{value:.5}"),
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, text)
}
