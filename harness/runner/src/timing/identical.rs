//! Remembered results: a run on contents seen just before must not be much faster than one on new contents.
//!
//! The supervisor times these runs with its own clock, waits for a core taken off; the worker's timer takes no part. Before every run the checker
//! writes the file anew, so that caches are in the same state; only whether the bytes are new differs.

use std::time::Duration;

use proofhouse_gate::stats::check_identical_inputs;
use proofhouse_schema::evidence::Finding;

/// Times of pairs: on new contents, and on the same again.
#[derive(Debug, Default)]
pub(super) struct Memory {
    fresh_ns: Vec<f64>,
    again_ns: Vec<f64>,
}

impl Memory {
    /// Pairs that count; one more is taken first to warm up.
    pub(super) const PAIRS: u32 = 12;
    /// Pairs of them in which the second must be faster by a tenth before a difference is believed: were that an even
    /// chance, it would happen twice in a hundred times.
    const AGREEING: usize = 10;

    pub(super) fn add(&mut self, pair: u32, again: bool, elapsed: Duration) {
        if pair > 0 {
            let times = if again { &mut self.again_ns } else { &mut self.fresh_ns };
            times.push(elapsed.as_nanos() as f64);
        }
    }

    /// Pairs in which the second run was faster by more than a tenth.
    fn faster(&self) -> usize {
        let pairs = self.fresh_ns.iter().zip(&self.again_ns);
        pairs.filter(|(fresh, again)| **fresh > 1.1 * **again).count()
    }
}

/// A finding when results are remembered.
pub(super) fn remembers(memory: &Memory) -> Option<Finding> {
    let checked = match check_identical_inputs(&memory.fresh_ns, &memory.again_ns) {
        Ok(checked) => checked,
        Err(error) => {
            let detail = format!("whether results are remembered could not be checked: {error}");
            return Some(Finding { code: "identical-inputs-unchecked".to_owned(), detail });
        }
    };
    (checked.remembered && memory.faster() >= Memory::AGREEING).then(|| Finding {
        code: "cached-result".to_owned(),
        detail: format!(
            "on contents seen just before it is {:.2} times as fast as on new contents, in {} of {} pairs",
            checked.ratio,
            memory.faster(),
            memory.fresh_ns.len()
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(again: impl Fn(u32) -> u64) -> Memory {
        let mut memory = Memory::default();
        for pair in 0..=Memory::PAIRS {
            memory.add(pair, false, Duration::from_micros(1000));
            memory.add(pair, true, Duration::from_micros(again(pair)));
        }
        memory
    }

    #[test]
    fn a_result_that_is_remembered_is_found() {
        assert_eq!(remembers(&memory(|_| 100)).unwrap().code, "cached-result");
        assert_eq!(remembers(&memory(|_| 880)).unwrap().code, "cached-result");
    }

    #[test]
    fn an_honest_worker_with_noise_is_not_accused() {
        assert_eq!(remembers(&memory(|_| 1000)), None);
        assert_eq!(remembers(&memory(|_| 950)), None);
        assert_eq!(remembers(&memory(|pair| if pair % 4 == 0 { 1500 } else { 850 })), None);
    }

    #[test]
    fn no_times_are_a_finding_and_not_a_pass() {
        let finding = remembers(&Memory::default()).unwrap();
        assert_eq!(finding.code, "identical-inputs-unchecked");
    }
}
