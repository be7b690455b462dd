//! Client and server on a core each.
//!
//! Left to the kernel, the two share a core at one moment and not at the next. Waking a client on
//! another core takes several times as long as a call does, so by chance alone one contender
//! would be three times as fast as another.

use distlock_testkit::servers::RedisServer;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores as they were for this thread, until this is dropped.
pub(crate) struct Placed(CpuSet);

impl Drop for Placed {
    fn drop(&mut self) {
        sched_setaffinity(None, &self.0).expect("they were ours before");
    }
}

/// Gives the last core to the servers, and all others to this thread and those that it starts. A
/// machine with one core has no choice.
pub(crate) fn apart(servers: &[RedisServer]) -> Placed {
    let all = sched_getaffinity(None).expect("a thread knows its cores");
    let cores: Vec<_> = (0..CpuSet::MAX_CPU).filter(|core| all.is_set(*core)).collect();
    if let [others @ .., last] = &cores[..]
        && !others.is_empty()
    {
        for server in servers {
            sched_setaffinity(Some(pid(server)), &set(&[*last])).expect("the server is ours");
        }
        sched_setaffinity(None, &set(others)).expect("they are ours");
    }
    Placed(all)
}

fn set(cores: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    cores.iter().for_each(|core| set.set(*core));
    set
}

/// The process of a server.
pub(crate) fn pid(server: &RedisServer) -> Pid {
    let info = server.command(&["INFO", "server"]);
    let id = info.lines().find_map(|line| line.trim().strip_prefix("process_id:"));
    id.and_then(|id| Pid::from_raw(id.parse().ok()?)).expect("a server knows its id")
}
