//! Work on many bytes, spread over threads.
//!
//! A file of a case is fresh memory each time, and the first touch of a page costs more than what is then done with it.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Bytes from which on another thread is worth its start.
const WORTH: usize = 4 << 20;

/// Threads that may be used.
pub(crate) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// `0..items` in as many runs as threads are worth it, `bytes` of work together.
pub(crate) fn runs(items: usize, bytes: usize) -> Vec<Range<usize>> {
    runs_for(items, bytes, threads())
}

fn runs_for(items: usize, bytes: usize, threads: usize) -> Vec<Range<usize>> {
    let wanted = (bytes / WORTH).clamp(1, threads.max(1));
    let each = items.div_ceil(wanted).max(1);
    (0..items).step_by(each).map(|from| from..(from + each).min(items)).collect()
}

/// What each run gives, in their order.
pub(crate) fn side_by_side<R: Send, T: Send>(runs: Vec<R>, work: impl Fn(R) -> T + Sync) -> Vec<T> {
    if runs.len() < 2 {
        return runs.into_iter().map(work).collect();
    }
    let work = &work;
    std::thread::scope(|scope| {
        let started: Vec<_> = runs.into_iter().map(|run| scope.spawn(move || work(run))).collect();
        // A panic in a thread is one in here.
        started
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

/// Whether two slices of one length are the same.
pub(crate) fn same(left: &[u8], right: &[u8]) -> bool {
    let same = |run: Range<usize>| left[run.clone()] == right[run];
    left.len() == right.len()
        && side_by_side(runs(left.len(), left.len()), same).into_iter().all(|same| same)
}

/// Writes a file's bytes from its beginning on.
///
/// # Errors
/// Those of writing.
pub(crate) fn write(file: &File, bytes: &[u8]) -> io::Result<()> {
    let write = |run: Range<usize>| file.write_all_at(&bytes[run.clone()], run.start as u64);
    side_by_side(runs(bytes.len(), bytes.len()), write).into_iter().collect()
}

/// Reads a whole file of a length that is known; none where it has another length or is no plain file. Whoever may have
/// replaced the file decides neither what is allocated nor how long this takes.
///
/// # Errors
/// Those of opening and reading, also when the file became shorter meanwhile.
pub(crate) fn read(path: &Path, length: usize) -> io::Result<Option<Vec<u8>>> {
    // A FIFO would be waited for, and a link leads elsewhere.
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW;
    let mut options = std::fs::OpenOptions::new();
    let opened = options.read(true).custom_flags(flags.bits().cast_signed()).open(path);
    let file = match opened {
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            return Ok(None);
        }
        opened => opened?,
    };
    let facts = file.metadata()?;
    if !facts.is_file() || facts.len() != length as u64 {
        return Ok(None);
    }
    let mut bytes = vec![0; length];
    let each = runs(length, length).first().map_or(1, |run| run.len());
    let parts: Vec<(usize, &mut [u8])> = bytes.chunks_mut(each).enumerate().collect();
    let read = |(index, part): (usize, &mut [u8])| file.read_exact_at(part, (index * each) as u64);
    side_by_side(parts, read).into_iter().collect::<io::Result<()>>()?;
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_hold_every_item_once_and_small_work_stays_in_one() {
        for (items, bytes, threads) in [(0, 0, 4), (7, 1 << 30, 4), (3, 1 << 30, 16), (1000, 9, 8)]
        {
            let runs = runs_for(items, bytes, threads);
            let all: Vec<usize> = runs.iter().cloned().flatten().collect();
            assert_eq!(all, (0..items).collect::<Vec<_>>());
            assert!(runs.len() <= threads && (bytes >= WORTH || runs.len() <= 1));
        }
        assert_eq!(runs_for(1 << 30, 1 << 30, 4).len(), 4);
    }

    #[test]
    fn what_several_threads_wrote_and_read_is_the_same_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let bytes: Vec<u8> = (0..3 * WORTH + 5).map(|at| (at % 251) as u8).collect();
        write(&File::create(&path).unwrap(), &bytes).unwrap();
        assert!(std::fs::read(&path).unwrap() == bytes);
        assert!(read(&path, bytes.len()).unwrap().unwrap() == bytes);
        let mut other = bytes.clone();
        assert!(same(&bytes, &other));
        other[2 * WORTH] ^= 1;
        assert!(!same(&bytes, &other) && !same(&bytes, &bytes[1..]));
        std::fs::write(&path, []).unwrap();
        assert!(read(&path, 0).unwrap().unwrap().is_empty());
    }

    #[test]
    fn what_took_the_place_of_the_file_is_neither_followed_nor_waited_for_nor_given_memory() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        File::create(path("huge")).unwrap().set_len(1 << 40).unwrap();
        assert!(read(&path("huge"), 100).unwrap().is_none());
        let made = std::process::Command::new("mkfifo").arg(path("fifo")).status().unwrap();
        assert!(made.success() && read(&path("fifo"), 100).unwrap().is_none());
        std::fs::write(path("file"), [7; 100]).unwrap();
        std::os::unix::fs::symlink(path("file"), path("link")).unwrap();
        assert!(read(&path("link"), 100).unwrap().is_none());
        std::fs::create_dir(path("folder")).unwrap();
        assert!(read(&path("folder"), 100).unwrap().is_none());
        assert!(read(&path("gone"), 100).is_err());
    }
}
