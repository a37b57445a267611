//! Which code the process has mapped: shared objects by name, compiled code by size.

use std::collections::BTreeSet;

use crate::device::{DeviceCall, DeviceError, LoadedCode};

const PAGE_BYTES: u64 = 4096;

/// The executable code of this process now.
///
/// # Errors
/// A [`DeviceError`] when the memory map cannot be read or has a line of an unknown form.
pub fn loaded_code() -> Result<LoadedCode, DeviceError> {
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(|error| {
        let code = error.raw_os_error().map_or(-1, i64::from);
        DeviceError::new(DeviceCall::LoadedCode, error.to_string()).with_code(code)
    })?;
    code_in_maps(&maps)
}

/// The executable code that the text of a memory map tells of: each mapped file counts one, and so
/// does each page of executable memory without a file, which is what run-time compilers make.
///
/// # Errors
/// A [`DeviceError`] that shows a line which cannot be read.
pub fn code_in_maps(maps: &str) -> Result<LoadedCode, DeviceError> {
    let mut files = BTreeSet::new();
    let mut pages = 0;
    for line in maps.lines() {
        let (range, permissions, path) = fields(line).ok_or_else(|| unreadable(line))?;
        if !permissions.contains('x') {
            continue;
        }
        if path.starts_with('/') {
            files.insert(path);
        } else {
            pages += range_bytes(range).ok_or_else(|| unreadable(line))? / PAGE_BYTES;
        }
    }
    let mut fingerprint = Fnv::new();
    for file in &files {
        fingerprint.add(file.as_bytes());
        fingerprint.add(b"\0");
    }
    fingerprint.add(&pages.to_le_bytes());
    Ok(LoadedCode { count: files.len() as u64 + pages, fingerprint: fingerprint.0 })
}

/// Address range, permissions and path (empty for memory without a name) of a line.
fn fields(line: &str) -> Option<(&str, &str, &str)> {
    let (range, rest) = line.split_once(' ')?;
    let (permissions, rest) = rest.split_once(' ')?;
    // Offset, device and inode come next; a path may hold spaces.
    let mut rest = rest.splitn(3, ' ').nth(2)?;
    rest = rest.find(' ').map_or("", |end| rest[end..].trim_start());
    Some((range, permissions, rest))
}

fn range_bytes(range: &str) -> Option<u64> {
    let (from, to) = range.split_once('-')?;
    u64::from_str_radix(to, 16).ok()?.checked_sub(u64::from_str_radix(from, 16).ok()?)
}

fn unreadable(line: &str) -> DeviceError {
    DeviceError::new(DeviceCall::LoadedCode, format!("unknown line in the memory map: {line}"))
}

struct Fnv(u64);

impl Fnv {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55d0c0000000-55d0c0010000 r-xp 00000000 fe:01 1234                       /usr/bin/worker
55d0c0010000-55d0c0020000 rw-p 00010000 fe:01 1234                       /usr/bin/worker
7f0000000000-7f0000010000 r-xp 00000000 fe:01 99                         /opt/a b/lib.so
7f0000020000-7f0000022000 rwxp 00000000 00:00 0 
7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0                          [vdso]
";

    #[test]
    fn files_count_once_and_anonymous_code_by_page() {
        let code = code_in_maps(MAPS).unwrap();
        assert_eq!(code.count, 2 + 2 + 2);
    }

    #[test]
    fn a_swap_of_one_file_for_another_changes_the_fingerprint_only() {
        let before = code_in_maps(MAPS).unwrap();
        let after = code_in_maps(&MAPS.replace("lib.so", "bil.so")).unwrap();
        assert_eq!(before.count, after.count);
        assert_ne!(before, after);
    }

    #[test]
    fn more_compiled_code_changes_the_count_and_more_data_does_not() {
        let before = code_in_maps(MAPS).unwrap();
        let compiled = code_in_maps(&MAPS.replace("7f0000022000", "7f0000023000")).unwrap();
        assert_eq!(compiled.count, before.count + 1);
        let data = format!("{MAPS}7f0000030000-7f0000040000 rw-p 00000000 00:00 0 \n");
        assert_eq!(code_in_maps(&data).unwrap(), before);
    }

    #[test]
    fn an_unknown_line_is_an_error_and_not_skipped() {
        assert!(code_in_maps("nonsense").is_err());
        assert!(code_in_maps("zz-11 r-xp 00000000 00:00 0 \n").is_err());
    }

    #[test]
    fn this_process_has_code_and_asking_twice_changes_nothing() {
        let first = loaded_code().unwrap();
        assert!(first.count > 0);
        assert_eq!(first, loaded_code().unwrap());
    }
}
