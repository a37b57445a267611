//! The last-level cache: what a cold measurement must wash out.

use std::fs;

use proofhouse_schema::probe::Probe;
use proofhouse_schema::units::Bytes;

const FOLDER: &str = "/sys/devices/system/cpu/cpu0/cache";

/// The largest level's size.
pub(super) fn last_level() -> Probe<Bytes> {
    let entries = match fs::read_dir(FOLDER) {
        Ok(entries) => entries,
        Err(error) => return Probe::Unavailable(format!("{FOLDER}: {error}")),
    };
    let level = |entry: fs::DirEntry| -> Option<(u32, u64)> {
        let read = |name| fs::read_to_string(entry.path().join(name)).ok();
        Some((read("level")?.trim().parse().ok()?, size(read("size")?.trim())?))
    };
    match entries.filter_map(Result::ok).filter_map(level).max() {
        Some((_, bytes)) => Probe::Known(Bytes(bytes)),
        None => Probe::Unavailable(format!("{FOLDER}: no level tells a size")),
    }
}

/// `266240K` in bytes.
fn size(text: &str) -> Option<u64> {
    let (digits, factor) = match text.strip_suffix('K') {
        Some(digits) => (digits, 1 << 10),
        None => match text.strip_suffix('M') {
            Some(digits) => (digits, 1 << 20),
            None => (text, 1),
        },
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_have_their_unit() {
        assert_eq!(size("266240K"), Some(266_240 << 10));
        assert_eq!(size("32M"), Some(32 << 20));
        assert_eq!(size("512"), Some(512));
        assert_eq!(size("many"), None);
    }
}
