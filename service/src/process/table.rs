//! The kernel's table of processes, read from `/proc`: who is alive, who belongs together.

use std::{fs, path::Path};

/// A process, told apart from a later one that was given the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) pid: i32,
    /// Clock ticks between the machine's start and the process's.
    pub(super) started: u64,
}

/// The fields of `/proc/<pid>/stat` that matter here.
struct Stat {
    state: char,
    group: i32,
    started: u64,
}

/// The living process with this number.
pub(super) fn identify(pid: i32) -> Option<Identity> {
    let stat = stat(pid)?;
    lives(&stat).then_some(Identity {
        pid,
        started: stat.started,
    })
}

pub(super) fn alive(process: Identity) -> bool {
    identify(process.pid) == Some(process)
}

/// Whether anything lives in the group that the process leads or led. A number is not given anew while a group has it:
/// if another process has it now, the group is gone.
pub(super) fn group_alive(leader: Identity) -> bool {
    let given_anew = stat(leader.pid).is_some_and(|stat| stat.started != leader.started);
    !given_anew && pids().any(|pid| stat(pid).is_some_and(|stat| stat.group == leader.pid && lives(&stat)))
}

/// The living process with exactly this `NAME=value` in the environment it was started with, the oldest if it has
/// children.
pub(super) fn find_by_environment(pair: &str) -> Option<Identity> {
    let marked = |pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|entry| entry == pair.as_bytes())
    };
    pids()
        .filter(marked)
        .filter_map(identify)
        .min_by_key(|process| (process.started, process.pid))
}

/// Changes with each start of the machine: numbers and ticks of another start mean nothing.
pub(super) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Total memory of the machine.
pub(super) fn memory_mb() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    line.and_then(|line| line.split_whitespace().next())
        .and_then(|kb| kb.parse::<u64>().ok())
        .unwrap_or(0)
        >> 10
}

fn pids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir(Path::new("/proc")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn stat(pid: i32) -> Option<Stat> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// A process that has ended but was not waited for is no longer alive.
fn lives(stat: &Stat) -> bool {
    !matches!(stat.state, 'Z' | 'X')
}

/// `pid (name) state parent group …`: the name may hold anything, also blanks and brackets.
fn parse(text: &str) -> Option<Stat> {
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    Some(Stat {
        state: fields.next()?.chars().next()?,
        group: fields.nth(1)?.parse().ok()?,
        started: fields.nth(16)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_blanks_and_brackets_does_not_shift_the_fields() {
        let line = "42 (a) b (c) S 1 40 41 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1000 2";
        let stat = parse(line).unwrap();
        assert_eq!((stat.state, stat.group, stat.started), ('S', 40, 98765));
    }

    #[test]
    fn this_process_is_alive_and_another_start_time_is_another_process() {
        let own = identify(std::process::id() as i32).unwrap();
        assert!(alive(own));
        assert!(!alive(Identity {
            started: own.started + 1,
            ..own
        }));
        assert!(!boot_id().is_empty() && memory_mb() > 0);
    }
}
