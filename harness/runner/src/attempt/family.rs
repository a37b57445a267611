//! The processes of an attempt: memory in use, and who is left when the leader has ended.

use std::collections::BTreeMap;
use std::fs;
use std::rc::Rc;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, waitpid};

use super::reaper::Reaper;

const PAGE: u64 = 4096;

/// A process and when it started: process ids are used again, pairs are not.
type Processes = BTreeMap<i32, u64>;

/// By what the processes of one attempt are known.
#[derive(Debug)]
pub(super) struct Known {
    /// The first process, which leads the attempt's group.
    leader: i32,
    /// What every process inherits that does not drop its environment.
    nonce: String,
    /// Those that were seen below the leader, wherever they went since.
    pub(super) seen: Processes,
}

impl Known {
    pub(super) fn new(leader: i32, nonce: &str) -> Self {
        Self { leader, nonce: nonce.to_owned(), seen: Processes::new() }
    }

    /// Processes of the attempt that live, but for this one.
    pub(super) fn living(&self) -> Vec<i32> {
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        let is_ours = |pid: &i32| {
            let Some(stat) = Stat::read(*pid) else { return false };
            stat.state != 'Z' && (self.is_related(*pid, &stat) || self.carries_nonce(*pid))
        };
        processes().filter(|pid| *pid != own).filter(is_ours).collect()
    }

    fn is_related(&self, pid: i32, stat: &Stat) -> bool {
        stat.group == self.leader || self.seen.get(&pid) == Some(&stat.started)
    }

    fn carries_nonce(&self, pid: i32) -> bool {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let needle = self.nonce.as_bytes();
        !needle.is_empty() && environment.windows(needle.len()).any(|window| window == needle)
    }
}

/// The ids of all processes that can be seen.
fn processes() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
}

/// The processes of one attempt.
#[derive(Debug)]
pub(super) struct Family {
    known: Known,
    reaper: Rc<Reaper>,
    /// The most resident memory seen, in bytes.
    pub(super) peak: u64,
}

impl Family {
    pub(super) fn new(leader: u32, nonce: &str, reaper: &Rc<Reaper>) -> Self {
        let leader = i32::try_from(leader).unwrap_or(0);
        reaper.attempt(leader, nonce);
        Self { known: Known::new(leader, nonce), reaper: Rc::clone(reaper), peak: 0 }
    }

    /// Nobody of it is left.
    pub(super) fn over(&self) {
        self.reaper.over(self.known.leader);
    }

    /// Resident bytes of the leader and everything it started, as far as it is still below it.
    pub(super) fn resident(&mut self) -> u64 {
        let mut total = 0;
        let mut stack = vec![self.known.leader];
        while let Some(pid) = stack.pop() {
            total += resident(pid);
            for child in children(pid) {
                if let Some(stat) = Stat::read(child) {
                    if self.known.seen.insert(child, stat.started) != Some(stat.started) {
                        self.reaper.process(self.known.leader, child, stat.started);
                    }
                    stack.push(child);
                }
            }
        }
        self.peak = self.peak.max(total);
        total
    }

    /// The leader's own high-water mark, which no polling misses.
    pub(super) fn high_water(&mut self) {
        let status =
            fs::read_to_string(format!("/proc/{}/status", self.known.leader)).unwrap_or_default();
        let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
        let kib = line.and_then(|l| l.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
        self.peak = self.peak.max(kib.unwrap_or(0) * 1024);
    }

    pub(super) fn signal_group(&self, signal: Signal) {
        if let Some(group) = Pid::from_raw(self.known.leader) {
            // No such group is what is wanted in the end.
            let _ = kill_process_group(group, signal);
        }
    }

    /// Whether a process belongs to the attempt's group.
    pub(super) fn has(&self, pid: i32) -> bool {
        Stat::read(pid).is_some_and(|stat| stat.group == self.known.leader)
    }

    /// Processes of the attempt that live although the leader has ended.
    pub(super) fn left(&self) -> Vec<i32> {
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        processes()
            .filter(|pid| *pid != self.known.leader && *pid != own)
            .filter(|pid| {
                let Some(stat) = Stat::read(*pid) else { return false };
                let related = self.known.is_related(*pid, &stat)
                    || (stat.parent == own && self.known.carries_nonce(*pid));
                if related && stat.state == 'Z' {
                    reap(*pid);
                }
                related && stat.state != 'Z'
            })
            .collect()
    }
}

/// Ends a process by force.
pub(super) fn end(pid: i32) {
    if let Some(target) = Pid::from_raw(pid) {
        // It may have ended by itself; both are right.
        let _ = kill_process(target, Signal::KILL);
    }
    reap(pid);
}

/// Takes the exit status of a process that was inherited, if it is ours and has ended.
fn reap(pid: i32) {
    if let Some(target) = Pid::from_raw(pid) {
        let _ = waitpid(Some(target), WaitOptions::NOHANG);
    }
}

/// The kernel's account of a thread, from its `schedstat`; zeros where the kernel does not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct CoreTime {
    /// Nanoseconds on a core.
    pub(crate) used_ns: f64,
    /// Nanoseconds runnable and not running.
    pub(crate) waited_ns: f64,
}

impl CoreTime {
    pub(super) fn read(path: &str) -> Self {
        let text = fs::read_to_string(path).unwrap_or_default();
        let mut fields = text.split_ascii_whitespace().map(|field| field.parse().unwrap_or(0.0));
        let mut next = || fields.next().unwrap_or(0.0);
        Self { used_ns: next(), waited_ns: next() }
    }

    /// From an earlier account to this one.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            used_ns: (self.used_ns - earlier.used_ns).max(0.0),
            waited_ns: (self.waited_ns - earlier.waited_ns).max(0.0),
        }
    }
}

struct Stat {
    state: char,
    parent: i32,
    group: i32,
    started: u64,
}

impl Stat {
    fn read(pid: i32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name may hold spaces and parentheses; the last one closes it.
        let fields: Vec<&str> =
            text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace().collect();
        Some(Self {
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
        })
    }
}

fn resident(pid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages = text.split_ascii_whitespace().nth(1).and_then(|field| field.parse::<u64>().ok());
    pages.unwrap_or(0) * PAGE
}

fn children(pid: i32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|text| {
            text.split_ascii_whitespace().filter_map(|p| p.parse().ok()).collect::<Vec<i32>>()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_process_has_memory_and_a_stat() {
        let mut family = Family::new(std::process::id(), "none", &Rc::default());
        assert!(family.resident() > 100_000);
        family.high_water();
        assert!(family.peak > 100_000);
        assert!(Stat::read(std::process::id() as i32).is_some_and(|s| s.parent > 0));
    }

    #[test]
    fn a_process_that_is_gone_takes_no_memory() {
        assert_eq!(resident(i32::MAX), 0);
        assert!(Stat::read(i32::MAX).is_none());
    }
}
