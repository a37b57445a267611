//! Memory for private copies, laid out alike in every process.
//!
//! Where operands lie decides which cache sets they share and whether loads and stores alias, and that alone can move a
//! time by percents between processes of one program. So copies are cut, in a fixed order and at fixed distances, from
//! chunks that begin at a huge page, and the kernel is asked to back them by huge pages.

use std::ops::Range;
use std::ptr::NonNull;
use std::rc::Rc;

use memmap2::{Advice, MmapMut, MmapOptions};

/// The size and alignment that chunks are made of, in bytes: a huge page.
const HUGE: usize = 2 << 20;
/// Alignment of a copy in bytes: one cache line.
const LINE: usize = 64;
/// Bytes between copies: an odd number of lines, so that copies of a power of two do not fall on the same sets, and
/// not a multiple of a page, so that a load does not alias the store beside it.
const GAP: usize = 17 * LINE;

/// A chunk of anonymous memory, zeroed by the kernel.
#[derive(Debug)]
struct Chunk {
    // Owns the memory that `base` points into.
    _map: MmapMut,
    base: NonNull<u8>,
    bytes: usize,
}

impl Chunk {
    fn new(bytes: usize) -> std::io::Result<Self> {
        let bytes = bytes.next_multiple_of(HUGE);
        let mut map = MmapOptions::new().len(bytes + HUGE).map_anon()?;
        // Huge pages are a wish: without them the layout is still fixed within pages.
        let _ = map.advise(Advice::HugePage);
        let skip = map.as_ptr().align_offset(HUGE);
        let base = NonNull::from(&mut map[skip..skip + bytes]).cast::<u8>();
        Ok(Self { _map: map, base, bytes })
    }
}

/// Cuts pieces from chunks.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    chunk: Option<Rc<Chunk>>,
    used: usize,
}

/// A piece of a chunk that nobody else has.
#[derive(Debug)]
pub(crate) struct Piece {
    chunk: Rc<Chunk>,
    range: Range<usize>,
}

impl Arena {
    /// A piece of so many bytes, `skew` bytes past a cache line.
    ///
    /// # Errors
    /// When there is no memory.
    pub(crate) fn cut(&mut self, bytes: usize, skew: usize) -> std::io::Result<Piece> {
        let start = self.used.next_multiple_of(LINE) + skew % LINE;
        let chunk = match &self.chunk {
            Some(chunk) if start + bytes <= chunk.bytes => Rc::clone(chunk),
            _ => {
                let chunk = Rc::new(Chunk::new(bytes + LINE)?);
                self.chunk = Some(Rc::clone(&chunk));
                self.used = 0;
                chunk
            }
        };
        let start = self.used.next_multiple_of(LINE) + skew % LINE;
        self.used = start + bytes + GAP;
        Ok(Piece { chunk, range: start..start + bytes })
    }
}

impl Piece {
    /// The piece's bytes.
    pub(crate) fn len(&self) -> usize {
        self.range.len()
    }

    /// The address of its first byte.
    pub(crate) fn base(&mut self) -> *mut u8 {
        // SAFETY: `cut` keeps the range inside the chunk.
        unsafe { self.chunk.base.as_ptr().add(self.range.start) }
    }

    /// Fills the piece.
    ///
    /// # Panics
    /// When `bytes` are not as many as the piece has.
    pub(crate) fn fill(&mut self, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.len(), "a piece is filled whole");
        // SAFETY: the piece has that many bytes inside its chunk, no other piece overlaps it (`cut` only moves on), and
        // `bytes` is a borrow of other memory, since this piece is borrowed mutably.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base(), bytes.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_disjoint_and_keep_their_distance_from_a_line() {
        let mut arena = Arena::default();
        let mut ends: Vec<(usize, usize)> = Vec::new();
        for (bytes, skew) in [(100, 0), (3 << 20, 8), (64, 63), (1, 2), (5 << 20, 4), (0, 0)] {
            let mut piece = arena.cut(bytes, skew).unwrap();
            let from = piece.base() as usize;
            assert_eq!(from % LINE, skew);
            assert!(ends.iter().all(|(a, b)| from + bytes <= *a || *b <= from), "{bytes}");
            ends.push((from, from + bytes));
            piece.fill(&vec![7; bytes]);
            std::mem::forget(piece);
        }
    }

    #[test]
    fn two_arenas_lay_the_same_requests_out_alike() {
        let layout = || {
            let mut arena = Arena::default();
            let mut piece = |bytes| arena.cut(bytes, 0).unwrap().base() as usize % HUGE;
            [piece(16 << 10), piece(16 << 10), piece(3 << 20), piece(100)]
        };
        assert_eq!(layout(), layout());
    }
}
