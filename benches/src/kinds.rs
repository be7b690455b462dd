//! The other kinds of lock, and a try that is refused, on Redis and on Valkey.

use distlock_testkit::servers::RedisServer;

use crate::contender::Kind;
use crate::report::Report;
use crate::round::{Effort, Flavor};
use crate::uncontended::{Distance, Done, ratio, rounds_on};

/// Each beside the least that does the same by hand, or nearly the same.
const PAIRS: [[Kind; 2]; 5] = [
    [Kind::Distlock, Kind::Limit],
    [Kind::Read, Kind::Limit],
    [Kind::Write, Kind::Limit],
    [Kind::Semaphore, Kind::Limit],
    [Kind::RefusedTry, Kind::RefusedSet],
];

const KINDS: [Kind; 7] = [
    Kind::Limit,
    Kind::Distlock,
    Kind::Read,
    Kind::Write,
    Kind::Semaphore,
    Kind::RefusedTry,
    Kind::RefusedSet,
];

const TASKS: [usize; 2] = [1, 64];

pub(crate) fn measure(effort: Effort, report: &mut Report) {
    for (server, suffix) in [(RedisServer::start(), ""), (RedisServer::valkey(), "_valkey")] {
        let flavor = Flavor::TwoWorkers;
        let rounds = rounds_on(&server, effort, flavor, &KINDS, &TASKS, Distance::Loopback);
        for tasks in TASKS {
            for pair in PAIRS {
                let [ours, by_hand] = pair.map(Kind::name);
                let name = format!("{ours}_{tasks}_vs_{by_hand}");
                report.add(format!("{name}{suffix}"), ratio(&rounds, Done::rate, pair, tasks));
                let server = ratio(&rounds, Done::server_cost, pair, tasks);
                report.add(format!("{name}_server_us{suffix}"), server);
            }
        }
    }
}
