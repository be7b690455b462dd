//! The rules of the protocol hold in every state of the small worlds, and no mutant survives there.

use distlock_testkit::models::{self, Case, ModelSize};

/// Fewer states would mean that a world has lost what makes it interesting.
const STATES_MIN: usize = 1_000_000;

#[test]
fn the_rules_hold_in_more_than_a_million_states() {
    let mut states = 0;
    for case in models::rules(ModelSize::Small) {
        let found = case.run(2);
        println!("{}", models::rule_row(&case, &found));
        if let Some(trace) = found.trace {
            panic!("{case:?} is broken:\n{trace}");
        }
        states += found.states;
    }
    assert!(states >= STATES_MIN, "only {states} states");
}

/// Runs what must end with a trace, and compares it with the page that `make model` has written.
fn traced(cases: Vec<Case>) {
    let page = include_str!("../../../docs/models.md");
    for case in cases {
        let Some(trace) = case.run(1).trace else { panic!("{case:?} is nowhere to be found") };
        let row = models::trace_row(&case, &trace);
        println!("{row}");
        assert!(page.contains(&row), "docs/models.md is outdated, run `make model`: {row}");
    }
}

#[test]
fn what_the_rules_are_about_is_reached() {
    traced(models::goals());
}

#[test]
fn every_mutant_is_found_out() {
    let mutants = models::mutants();
    assert!(mutants.len() >= 25, "{} mutants", mutants.len());
    traced(mutants);
}
