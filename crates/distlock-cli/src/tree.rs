//! Everything that a process has started, directly or not.

use std::collections::HashMap;
use std::fs;

use rustix::process::Pid;

/// Orphans of our command come to us instead of to init, so that they can be found.
pub(crate) fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    {
        // Where the kernel refuses, the command's process group is what can be found.
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    }
}

/// The living descendants of a process, as far as the system tells.
pub(crate) fn descendants(of: Pid) -> Vec<Pid> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for (pid, parent) in processes() {
        children.entry(parent).or_default().push(pid);
    }
    let (mut found, mut open) = (Vec::new(), vec![of.as_raw_nonzero().get()]);
    while let Some(parent) = open.pop() {
        for pid in children.remove(&parent).unwrap_or_default() {
            open.push(pid);
            found.extend(Pid::from_raw(pid));
        }
    }
    found
}

/// All living processes with their parents.
fn processes() -> Vec<(i32, i32)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: i32| Some((pid, parent(&stat(pid)?)?))).collect()
}

fn stat(pid: i32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/stat")).ok()
}

/// The parent in a line of `/proc/PID/stat`; none for a process that is dead and not yet reaped.
/// The name of the program is in parentheses and may contain anything, parentheses included.
fn parent(stat: &str) -> Option<i32> {
    let (_, after) = stat.rsplit_once(')')?;
    let mut fields = after.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_names_of_programs_do_not_confuse() {
        assert_eq!(parent("7 (sh) S 1 7 7 0"), Some(1));
        assert_eq!(parent("7 (a) S 9 (b) R 42 7"), Some(42));
        assert_eq!(parent("7 (sh) Z 1 7"), None);
        assert_eq!(parent("7 (sh)"), None);
        assert_eq!(parent(""), None);
    }
}
