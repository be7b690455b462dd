//! What each optimisation brings: the same work with and without it, near and far from the server.

use crate::contender::Kind;
use crate::report::Report;
use crate::round::{Effort, Flavor};
use crate::uncontended::{Distance, Done, ratio, rounds};

/// With it and without it.
const SWITCHES: [(&str, [Kind; 2]); 2] = [
    ("batching", [Kind::Distlock, Kind::Unbatched]),
    // The driver has no busy-polling. A runtime that never sleeps shows the most it could bring.
    ("busy_polling", [Kind::BusyPolling, Kind::Distlock]),
];

const KINDS: [Kind; 3] = [Kind::Distlock, Kind::Unbatched, Kind::BusyPolling];

const TASKS: [usize; 4] = [1, 8, 64, 512];

pub(crate) fn measure(effort: Effort, report: &mut Report) {
    for distance in Distance::ALL {
        let rounds = rounds(effort, Flavor::TwoWorkers, &KINDS, &TASKS, distance);
        for tasks in TASKS {
            for (switch, with_and_without) in SWITCHES {
                let suffix = distance.suffix();
                let rate = ratio(&rounds, Done::rate, with_and_without, tasks);
                report.add(format!("{switch}_{tasks}_rate{suffix}"), rate);
                let cpu = ratio(&rounds, Done::cost, with_and_without, tasks);
                report.add(format!("{switch}_{tasks}_cpu{suffix}"), cpu);
            }
        }
    }
}
