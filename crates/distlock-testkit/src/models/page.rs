//! The page that shows what was explored and how every mutant is found out.

use std::fmt::Write as _;

use super::check::{Found, Trace};
use super::suite::Case;

const PAGE_HEAD: &str = include_str!("page_head.md");

/// The line of the page for a rule that was explored completely.
pub fn rule_row(case: &Case, found: &Found) -> String {
    let Found { states, depth, took, .. } = found;
    format!("| {} | {} | {states} | {depth} | {:.1} |", case.model, case.name, took.as_secs_f64())
}

/// The line of the page for a mutant and how it was found out, or for a goal and how it is reached.
pub fn trace_row(case: &Case, trace: &Trace) -> String {
    format!("| {} | {} | {} | {} |", case.model, case.name, trace.end, trace.steps.len())
}

/// The whole page.
pub fn page(rules: &[(Case, Found)], goals: &[(Case, Trace)], mutants: &[(Case, Trace)]) -> String {
    let mut page = String::from(PAGE_HEAD);
    let mut line = |text: &str| writeln!(page, "{text}").unwrap_or_default();
    line("\n## The rules\n\n| model | size | states | depth | seconds |\n|---|---|---|---|---|");
    rules.iter().for_each(|(case, found)| line(&rule_row(case, found)));
    line("\n## What must be reachable\n\n| model | goal | | steps |\n|---|---|---|---|");
    goals.iter().for_each(|(case, trace)| line(&trace_row(case, trace)));
    line("\n## The mutants\n\n| model | mutant | what breaks | steps |\n|---|---|---|---|");
    mutants.iter().for_each(|(case, trace)| line(&trace_row(case, trace)));
    line("\n## Their shortest counter-examples");
    for (case, trace) in mutants {
        line(&format!("\n### {}: {}\n\n```text\n{trace}\n```", case.model, case.name));
    }
    page
}
