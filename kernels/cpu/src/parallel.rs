//! Work spread over the threads of the current rayon pool, when it is worth it.

use std::num::NonZeroUsize;

use crate::rows::Split;

/// Makes the process's pool of so many threads; the first caller of a process decides, later ones change nothing.
pub fn use_threads(threads: NonZeroUsize) {
    // It fails only where the process has a pool already.
    let _ = rayon::ThreadPoolBuilder::new().num_threads(threads.get()).build_global();
}

/// Bytes of operands under which a part is not worth a thread of its own.
pub(crate) const GRAIN_BYTES: usize = 256 << 10;

/// Whether work on that many bytes should be parted in two.
///
/// Small work never touches the pool, so that it never starts one.
pub(crate) fn worth_parting(bytes: usize) -> bool {
    bytes >= 2 * GRAIN_BYTES && rayon::current_num_threads() > 1
}

/// Runs `work(first_row, part)` over parts of the rows and returns the fault of the lowest faulty part.
///
/// Rows are independent, so how they are parted does not change their results.
pub(crate) fn over_rows<P, F, W>(rows: P, row_bytes: usize, work: &W) -> Option<F>
where
    P: Split,
    F: Send,
    W: Fn(usize, P) -> Option<F> + Sync,
{
    part(rows, 0, row_bytes, work)
}

fn part<P, F, W>(rows: P, first: usize, row_bytes: usize, work: &W) -> Option<F>
where
    P: Split,
    F: Send,
    W: Fn(usize, P) -> Option<F> + Sync,
{
    let count = rows.count();
    if count < 2 || !worth_parting(count.saturating_mul(row_bytes)) {
        return work(first, rows);
    }
    let middle = count / 2;
    let (head, tail) = rows.split(middle);
    let (early, late) = rayon::join(
        || part(head, first, row_bytes, work),
        || part(tail, first + middle, row_bytes, work),
    );
    early.or(late)
}
