//! The size of the last-level cache, from sysfs.

use std::path::Path;

const CACHES: &str = "/sys/devices/system/cpu/cpu0/cache";

/// Bytes of the largest data or unified cache of the highest level; none when sysfs tells nothing.
#[must_use]
pub fn last_level_cache_bytes() -> Option<u64> {
    last_level_in(Path::new(CACHES))
}

fn last_level_in(caches: &Path) -> Option<u64> {
    let entries = std::fs::read_dir(caches).ok()?;
    entries.filter_map(|entry| level_and_bytes(&entry.ok()?.path())).max().map(|(_, bytes)| bytes)
}

fn level_and_bytes(cache: &Path) -> Option<(u32, u64)> {
    let read = |name| std::fs::read_to_string(cache.join(name)).ok();
    if read("type")?.trim() == "Instruction" {
        return None;
    }
    Some((read("level")?.trim().parse().ok()?, parse_size(read("size")?.trim())?))
}

fn parse_size(text: &str) -> Option<u64> {
    let (digits, unit) = match text.strip_suffix(['K', 'M', 'G']) {
        Some(digits) => (digits, text.as_bytes()[text.len() - 1]),
        None => (text, b' '),
    };
    let scale: u64 = match unit {
        b'K' => 1 << 10,
        b'M' => 1 << 20,
        b'G' => 1 << 30,
        _ => 1,
    };
    digits.parse::<u64>().ok()?.checked_mul(scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units() {
        assert_eq!(parse_size("48K"), Some(48 << 10));
        assert_eq!(parse_size("260M"), Some(260 << 20));
        assert_eq!(parse_size("512"), Some(512));
        assert_eq!(parse_size("many"), None);
        assert_eq!(parse_size(""), None);
    }

    #[test]
    fn the_highest_level_wins_and_instruction_caches_do_not_count() {
        let root = std::env::temp_dir().join(format!("proofhouse-cache-{}", std::process::id()));
        for (name, level, kind, size) in [
            ("index0", "1", "Data", "48K"),
            ("index1", "9", "Instruction", "64K"),
            ("index2", "2", "Unified", "2048K"),
        ] {
            let folder = root.join(name);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("level"), level).unwrap();
            std::fs::write(folder.join("type"), kind).unwrap();
            std::fs::write(folder.join("size"), size).unwrap();
        }
        let found = last_level_in(&root);
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(found, Some(2 << 20));
    }

    #[test]
    fn a_missing_folder_is_no_size() {
        assert_eq!(last_level_in(Path::new("/nowhere/at/all")), None);
    }
}
