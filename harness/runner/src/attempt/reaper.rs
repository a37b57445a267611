//! The reaper: a small process beside a run, which outlives it by a moment.
//!
//! Workers die with the run that started them, however it dies; what they started does not. The reaper is told of every
//! attempt and of every process seen below one, and when the run is gone, which it sees by the end of its input, it ends
//! those that are left. A run that ends by itself has swept them before, and ends its reaper, too.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};

use rustix::fs::{OFlags, fcntl_setfl};

use super::family::{Known, end};

/// The leader of a group that there is not.
const NOBODY: i32 = -1;
/// Rounds in which processes are looked for: one that starts others faster than they are ended is left in the end.
const ROUNDS: u32 = 50;

/// The program that calls [`reap`] with its standard input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReaperProgram {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// A run's reaper; the default is none.
#[derive(Debug, Default)]
pub(crate) struct Reaper(RefCell<Option<(Child, ChildStdin)>>);

impl Reaper {
    /// Starts it in a process group of its own, where no signal of a terminal reaches it.
    pub(crate) fn start(program: &ReaperProgram) -> std::io::Result<Self> {
        let mut child = Command::new(&program.program)
            .args(&program.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let Some(input) = child.stdin.take() else { return Ok(Self::default()) };
        // A reaper that does not read must not hold the run up.
        fcntl_setfl(&input, OFlags::NONBLOCK)?;
        Ok(Self(RefCell::new(Some((child, input)))))
    }

    /// Says what the processes of an attempt will carry, before its first one is there: a run may be killed before it can
    /// say which that is.
    pub(super) fn expects(&self, nonce: &str) {
        self.tell(format_args!("expects {nonce}"));
    }

    /// The attempt did not come to be.
    pub(super) fn forgets(&self, nonce: &str) {
        self.tell(format_args!("forgets {nonce}"));
    }

    pub(super) fn attempt(&self, leader: i32, nonce: &str) {
        self.tell(format_args!("attempt {leader} {nonce}"));
    }

    pub(super) fn process(&self, leader: i32, pid: i32, started: u64) {
        self.tell(format_args!("process {leader} {pid} {started}"));
    }

    pub(super) fn over(&self, leader: i32) {
        self.tell(format_args!("over {leader}"));
    }

    fn tell(&self, line: std::fmt::Arguments<'_>) {
        let mut reaper = self.0.borrow_mut();
        let told =
            reaper.as_mut().map(|(_, input)| input.write_all(format!("{line}\n").as_bytes()));
        if told.is_some_and(|told| told.is_err()) {
            // Half a line may have been written: it would be taken for another one.
            retire(reaper.take());
        }
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        retire(self.0.take());
    }
}

fn retire(reaper: Option<(Child, ChildStdin)>) {
    if let Some((mut child, _input)) = reaper {
        // Ended before its input ends: what is over needs no reaper. It may have ended by itself.
        let _ = child.kill().and_then(|()| child.wait());
    }
}

/// Takes the lines of a run until they end, and then ends the processes of every attempt that was not over. It is the whole
/// of a [`ReaperProgram`].
pub fn reap(input: impl BufRead) {
    let mut attempts: BTreeMap<i32, Known> = BTreeMap::new();
    let mut expected: BTreeSet<String> = BTreeSet::new();
    for line in input.lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<i32>().ok());
        match (words.first().copied(), number(1)) {
            (Some("expects"), _) if words.len() == 2 => drop(expected.insert(words[1].to_owned())),
            (Some("forgets"), _) if words.len() == 2 => drop(expected.remove(words[1])),
            (Some("attempt"), Some(leader)) if words.len() == 3 => {
                expected.remove(words[2]);
                attempts.insert(leader, Known::new(leader, words[2]));
            }
            (Some("process"), Some(leader)) => {
                let started = words.get(3).and_then(|word| word.parse().ok());
                if let (Some(known), Some(pid), Some(started)) =
                    (attempts.get_mut(&leader), number(2), started)
                {
                    known.seen.insert(pid, started);
                }
            }
            (Some("over"), Some(leader)) => drop(attempts.remove(&leader)),
            _ => {}
        }
    }
    let unknown: Vec<Known> = expected.iter().map(|nonce| Known::new(NOBODY, nonce)).collect();
    for _ in 0..ROUNDS {
        let left: Vec<i32> = attempts.values().chain(&unknown).flat_map(Known::living).collect();
        if left.is_empty() {
            return;
        }
        left.into_iter().for_each(end);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that carries the nonce and waits for longer than the test.
    fn carrying(nonce: &str) -> Child {
        let mut command = Command::new("sleep");
        command.arg("60").env("PROOFHOUSE_NONCE_OF_A_TEST", nonce).process_group(0);
        command.spawn().unwrap()
    }

    fn gone(pid: u32) -> bool {
        !std::path::Path::new(&format!("/proc/{pid}")).exists()
    }

    #[test]
    fn an_attempt_whose_first_process_was_never_named_is_known_by_what_it_carries() {
        let (nonce, other) = ("reaper-test-3f9a1c", "reaper-test-77b0de");
        let (mut child, mut forgotten) = (carrying(nonce), carrying(other));
        let lines = format!("expects {nonce}\nexpects {other}\nforgets {other}\n");
        reap(lines.as_bytes());
        // Whoever ends a child of its own may have taken its end, too.
        assert!(child.wait().is_ok_and(|ended| !ended.success()) || gone(child.id()));
        assert!(forgotten.try_wait().unwrap().is_none(), "what did not come to be is nobody's");
        forgotten.kill().unwrap();
        forgotten.wait().unwrap();
    }
}
