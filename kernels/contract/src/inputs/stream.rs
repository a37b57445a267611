//! Counter-based random words: any element can be made alone.

/// Step between counters: 2^64 over the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The SplitMix64 finalizer.
#[must_use]
pub const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// The 64-bit FNV-1a hash.
#[must_use]
pub fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The random words of one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    key: u64,
}

impl Stream {
    /// The stream of the tensor called `name` under `seed`.
    #[must_use]
    pub fn new(seed: u64, name: &str) -> Self {
        Self { key: mix(seed ^ fnv1a(name.as_bytes())) }
    }

    /// Word `lane` (0 to 3) of element `index`.
    #[must_use]
    pub const fn word(self, index: u64, lane: u64) -> u64 {
        let counter = index.wrapping_mul(4).wrapping_add(lane + 1);
        mix(self.key.wrapping_add(counter.wrapping_mul(STEP)))
    }

    /// A nearly standard normal value: a multiple of 2^-16 within ±6.
    #[must_use]
    pub fn normal(self, index: u64) -> f64 {
        let pieces = |word: u64| {
            (word & 0xffff) + (word >> 16 & 0xffff) + (word >> 32 & 0xffff) + (word >> 48)
        };
        let sum =
            pieces(self.word(index, 0)) + pieces(self.word(index, 1)) + pieces(self.word(index, 2));
        (sum as i64 - 6 * 65_535) as f64 / 65_536.0
    }

    /// A uniform value: a multiple of 2^-23 in [-1, 1).
    #[must_use]
    pub fn uniform(self, index: u64) -> f64 {
        ((self.word(index, 0) >> 40) as i64 - (1 << 23)) as f64 / f64::from(1 << 23)
    }

    /// A uniform integer below `bound`; 0 when the bound is 0.
    #[must_use]
    pub fn below(self, index: u64, bound: u64) -> u64 {
        ((u128::from(self.word(index, 0)) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_hashes_match_their_published_values() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        // First output of SplitMix64 seeded with 0.
        assert_eq!(mix(STEP), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn normal_values_have_mean_zero_and_unit_variance() {
        let stream = Stream::new(7, "x");
        let count = 200_000u64;
        let (mut sum, mut squares, mut beyond_two) = (0.0, 0.0, 0u64);
        for index in 0..count {
            let value = stream.normal(index);
            sum += value;
            squares += value * value;
            beyond_two += u64::from(value.abs() > 2.0);
        }
        let (mean, variance) = (sum / count as f64, squares / count as f64);
        assert!(mean.abs() < 0.01, "{mean}");
        assert!((variance - 1.0).abs() < 0.02, "{variance}");
        let tail = beyond_two as f64 / count as f64;
        assert!((tail - 0.0455).abs() < 0.003, "{tail}");
    }

    #[test]
    fn values_are_exact_in_f32_and_streams_differ_by_name_and_seed() {
        let (left, right) = (Stream::new(1, "x"), Stream::new(1, "w"));
        let other_seed = Stream::new(2, "x");
        for index in 0..1000 {
            for value in [left.normal(index), left.uniform(index)] {
                assert_eq!(f64::from(value as f32), value);
            }
            assert_ne!(left.word(index, 0), right.word(index, 0));
            assert_ne!(left.word(index, 0), other_seed.word(index, 0));
            assert!(left.below(index, 10) < 10);
        }
        assert_eq!(left.below(0, 0), 0);
    }
}
