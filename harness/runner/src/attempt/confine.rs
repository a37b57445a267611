//! What is done to a child between fork and exec.
#![allow(unsafe_code, reason = "pre_exec: code between fork and exec")]

use rustix::process::{
    Resource, Rlimit, Signal, getppid, set_parent_process_death_signal, setrlimit,
};
use rustix::thread::{CpuSet, sched_setaffinity};

/// Makes the child die with the runner, leave no core file, and stay on the given cores.
///
/// The process group is set by the command itself.
pub(super) fn confine(command: &mut tokio::process::Command, cores: Option<&[usize]>) {
    let cores = cores.map(|cores| {
        let mut set = CpuSet::new();
        cores.iter().for_each(|core| set.set(*core));
        set
    });
    let runner = rustix::process::getpid();
    let before_exec = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The runner may have died before the line above.
        if getppid() != Some(runner) {
            return Err(std::io::Error::from(rustix::io::Errno::SRCH));
        }
        setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
        if let Some(set) = &cores {
            sched_setaffinity(None, set)?;
        }
        Ok(())
    };
    // SAFETY: the closure only makes system calls (prctl, getppid, prlimit, sched_setaffinity) on values that were
    // made before the fork; it neither allocates nor takes a lock, so it is safe between fork and exec.
    unsafe {
        command.pre_exec(before_exec);
    }
}
