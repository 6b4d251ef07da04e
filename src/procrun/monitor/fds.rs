//! Inherited file descriptors.
//!
//! The process that starts procrun, such as a shell, may leave descriptors open in it, and
//! containers must not inherit them. Rust has no safe way to use a descriptor that is known only by
//! its number, so this module needs unsafe code. The numbers are read from /proc/self/fd while the
//! process has a single thread, and the only operation is to set a flag.
#![allow(unsafe_code, reason = "see above")]

use std::fs;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::io::{FdFlags, fcntl_setfd};

/// First descriptor that is not a standard stream.
const FIRST: i32 = 3;

/// Sets the close-on-exec flag of all descriptors except the standard streams.
pub(super) fn close_on_exec() -> io::Result<()> {
    let open: Vec<i32> = fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|number| *number >= FIRST)
        .collect();
    for number in open {
        // SAFETY: the descriptor is borrowed for one call, which neither closes nor uses it. The
        // descriptor that read the directory is closed at this point, and the call fails for it.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        let _ = fcntl_setfd(descriptor, FdFlags::CLOEXEC);
    }
    Ok(())
}
