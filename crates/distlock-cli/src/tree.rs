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

/// The descendants of a process, as far as the system tells. Some may be dead and not yet reaped.
pub(crate) fn descendants(of: Pid) -> Vec<Pid> {
    // The list of children costs as much as the tree is large; a walk of all processes costs as
    // much as the machine is busy, but not every kernel keeps the list.
    if children(of.as_raw_nonzero().get()).is_some() {
        return below(of, |pid| children(pid).unwrap_or_default());
    }
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for (pid, parent) in processes() {
        children.entry(parent).or_default().push(pid);
    }
    below(of, |pid| children.remove(&pid).unwrap_or_default())
}

/// Everything below a process, by way of the children of each.
fn below(of: Pid, mut children: impl FnMut(i32) -> Vec<i32>) -> Vec<Pid> {
    let (mut found, mut open) = (Vec::new(), vec![of.as_raw_nonzero().get()]);
    while let Some(parent) = open.pop() {
        for pid in children(parent) {
            open.push(pid);
            found.extend(Pid::from_raw(pid));
        }
    }
    found
}

/// The children of all threads of a process; none where the kernel does not list them.
fn children(pid: i32) -> Option<Vec<i32>> {
    let mut found = Vec::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        match fs::read_to_string(thread.path().join("children")) {
            Ok(list) => {
                let pids = list.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok());
                found.extend(pids);
            }
            // The thread has ended meanwhile, or there is no such file.
            Err(_) if thread.path().exists() => return None,
            Err(_) => {}
        }
    }
    Some(found)
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

    #[test]
    fn a_tree_is_walked_to_its_leaves() {
        let tree = [(1, vec![2, 3]), (3, vec![4]), (9, vec![10])];
        let of = Pid::from_raw(1).unwrap();
        let found = below(of, |pid| {
            tree.iter().find(|(parent, _)| *parent == pid).map_or(vec![], |(_, some)| some.clone())
        });
        let mut found: Vec<_> = found.iter().map(|pid| pid.as_raw_nonzero().get()).collect();
        found.sort_unstable();
        assert_eq!(found, [2, 3, 4]);
    }
}
