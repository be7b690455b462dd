//! Explores every model at length, shows that every mutant is found out, and writes the page about
//! it to the path given: `make model`.

use std::process::ExitCode;

use distlock_testkit::models::{self, Case, ModelSize, Trace};

fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: models <page to write>");
        return ExitCode::FAILURE;
    };
    let (mut rules, mut sound) = (Vec::new(), true);
    for case in models::rules(ModelSize::Large) {
        let found = case.run(2);
        println!("{}", models::rule_row(&case, &found));
        if let Some(trace) = &found.trace {
            println!("{trace}");
            sound = false;
        }
        rules.push((case, found));
    }
    let goals = traces(models::goals(), &mut sound);
    let mutants = traces(models::mutants(), &mut sound);
    for (case, trace) in &mutants {
        println!("\n{}: {}\n{trace}", case.model, case.name);
    }
    let page = models::page(&rules, &goals, &mutants);
    if let Err(error) = std::fs::write(&path, page) {
        eprintln!("cannot write {path}: {error}");
        sound = false;
    }
    if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs what must end with a trace, and notes if something does not.
fn traces(cases: Vec<Case>, sound: &mut bool) -> Vec<(Case, Trace)> {
    let mut traces = Vec::new();
    for case in cases {
        match case.run(1).trace {
            Some(trace) => {
                println!("{}", models::trace_row(&case, &trace));
                traces.push((case, trace));
            }
            None => {
                println!("{case:?}: not found in any state");
                *sound = false;
            }
        }
    }
    traces
}
