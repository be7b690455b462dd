//! Explores a world completely and keeps the shortest way to whatever goes wrong in it.

use std::fmt;
use std::hash::Hash;
use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model, Property};

/// A system small enough to be explored completely.
pub trait World: Clone + Send + Sync + 'static {
    /// All that can differ between two moments. What is equal here behaves alike for ever.
    type State: Clone + PartialEq + fmt::Debug + Hash + Send + Sync + 'static;
    /// Something that can happen next.
    type Step: Clone + PartialEq + fmt::Debug + fmt::Display;

    /// How it begins.
    fn start(&self) -> Self::State;

    /// What can happen in a state.
    fn steps(&self, state: &Self::State, steps: &mut Vec<Self::Step>);

    /// What comes of it; none if the world is too small for it.
    fn after(&self, state: &Self::State, step: Self::Step) -> Option<Self::State>;

    /// The rule that is broken in a state.
    fn broken(&self, state: &Self::State) -> Option<&'static str>;
}

/// What an exploration has found.
#[derive(Clone, Debug)]
pub struct Found {
    /// How many different states were seen.
    pub states: usize,
    /// How many steps the furthest of them is from the start.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
    /// The shortest way to where it stopped, if it did before everything was seen.
    pub trace: Option<Trace>,
}

/// A way through a world.
#[derive(Clone, Debug)]
pub struct Trace {
    /// What is the matter at its end.
    pub end: &'static str,
    /// What happened, one after the other.
    pub steps: Vec<String>,
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.steps.iter().enumerate() {
            writeln!(f, "{:>3}. {step}", index + 1)?;
        }
        write!(f, "     {}", self.end)
    }
}

/// Says of a state why the exploration may stop there.
type StopRule<W> = fn(&W, &<W as World>::State) -> Option<&'static str>;

/// Sees every state of a world, or stops at the nearest that breaks a rule.
///
/// With several `threads` the trace need not be the shortest.
pub fn explore<W: World>(world: &W, threads: usize) -> Found {
    run(world, W::broken, threads)
}

/// Goes the shortest way to a state with a reason to stop.
pub fn nearest<W: World>(world: &W, stop: StopRule<W>) -> Found {
    run(world, stop, 1)
}

fn run<W: World>(world: &W, stop: StopRule<W>, threads: usize) -> Found {
    let began = Instant::now();
    let checker = Explored { world: world.clone(), stop }
        .checker()
        .threads(threads)
        .finish_when(HasDiscoveries::Any)
        .spawn_bfs()
        .join();
    let trace = checker.discoveries().into_values().next().map(|path| {
        let end = stop(world, path.last_state()).unwrap_or_default();
        let steps = path.into_actions().iter().map(ToString::to_string).collect();
        Trace { end, steps }
    });
    // The checker counts the start as a step.
    let depth = checker.max_depth().saturating_sub(1);
    Found { states: checker.unique_state_count(), depth, took: began.elapsed(), trace }
}

/// A world as the checker wants it. It has a single property, because the checker stops a block of
/// work at the first discovery only if there is nothing else to look for; with more of them it goes
/// on and overwrites the shortest trace by longer ones.
struct Explored<W: World> {
    world: W,
    stop: StopRule<W>,
}

impl<W: World> Model for Explored<W> {
    type State = W::State;
    type Action = W::Step;

    fn init_states(&self) -> Vec<Self::State> {
        vec![self.world.start()]
    }

    fn actions(&self, state: &Self::State, actions: &mut Vec<Self::Action>) {
        self.world.steps(state, actions);
    }

    fn next_state(&self, last: &Self::State, action: Self::Action) -> Option<Self::State> {
        self.world.after(last, action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("nothing stops it", |model: &Self, state| {
            (model.stop)(&model.world, state).is_none()
        })]
    }
}
