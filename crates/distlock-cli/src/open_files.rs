//! How many files this process may have open: each connection is one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit as far as the system allows. Many systems start processes with 1,024.
pub(crate) fn raise() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // A system that refuses leaves the limit as it was; the service then serves fewer.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}
