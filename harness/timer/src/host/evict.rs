//! The pass that drives buffers out of the caches.

use std::hint::black_box;

use crate::device::{DeviceCall, DeviceError};

const LINE_BYTES: usize = 64;
const WORD_BYTES: usize = size_of::<u64>();

/// Memory that is read, line by line, to fill the caches with something else.
///
/// It only reads, so that no dirty line is written back during a timed region, and every page was
/// written once before, because untouched pages all map to one page of zeros and evict nothing.
#[derive(Debug, Default)]
pub(super) struct Evictor {
    words: Vec<u64>,
}

impl Evictor {
    pub(super) fn pass(&mut self, bytes: u64) -> Result<(), DeviceError> {
        let words =
            usize::try_from(bytes.div_ceil(WORD_BYTES as u64)).map_err(|_| refused(bytes))?;
        if self.words.len() < words {
            self.grow(words, bytes)?;
        }
        let mut sum = 0_u64;
        for line in self.words[..words].chunks(LINE_BYTES / WORD_BYTES) {
            sum = sum.wrapping_add(line[0]);
        }
        black_box(sum);
        Ok(())
    }

    fn grow(&mut self, words: usize, bytes: u64) -> Result<(), DeviceError> {
        self.words = Vec::new();
        self.words.try_reserve_exact(words).map_err(|_| refused(bytes))?;
        self.words.extend((0..words as u64).map(|word| word | 1));
        Ok(())
    }
}

fn refused(bytes: u64) -> DeviceError {
    DeviceError::new(DeviceCall::Evict, format!("no memory for an evicting pass of {bytes} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_grows_to_what_is_asked_and_stays() {
        let mut evictor = Evictor::default();
        evictor.pass(1000).unwrap();
        assert_eq!(evictor.words.len(), 125);
        evictor.pass(8).unwrap();
        assert_eq!(evictor.words.len(), 125);
        evictor.pass(0).unwrap();
    }

    #[test]
    fn a_pass_that_has_no_memory_is_a_typed_error() {
        let error = Evictor::default().pass(u64::MAX).unwrap_err();
        assert_eq!(error.call, DeviceCall::Evict);
    }
}
