//! Alone in its process, because it changes what every turn looks at.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use proofhouse_timer::Device;
use proofhouse_timer::host::HostDevice;

#[test]
fn new_executable_memory_counts_as_loaded_code() {
    let mut device = HostDevice::new(|_set: u32| Ok(()));
    let before = device.loaded_code().unwrap();
    let mapped = map_one_executable_page();
    let after = device.loaded_code().unwrap();
    assert!(mapped);
    assert_eq!(after.count, before.count + 1);
}

#[allow(unsafe_code, reason = "a page of executable memory has no safe form")]
fn map_one_executable_page() -> bool {
    let protection = libc::PROT_READ | libc::PROT_EXEC;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches no memory of
    // this program; it is never unmapped nor executed.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0) };
    page != libc::MAP_FAILED
}
