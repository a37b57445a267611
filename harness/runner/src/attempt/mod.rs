//! One attempt: one process, from spawn to its recorded end.

mod confine;
mod family;
mod launch;
mod loss;
mod reaper;
mod tail;
mod worker;

pub(crate) use family::CoreTime;
pub use launch::{Launch, Placement};
pub use loss::{Loss, sentence};
pub(crate) use reaper::Reaper;
pub use reaper::{ReaperProgram, reap};
pub(crate) use worker::{Answer, Watch, Worker, now, unexpected};

/// Makes orphans of attempts come to this process, so that they can be counted and ended.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn become_subreaper() -> std::io::Result<()> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Ok(())
}
