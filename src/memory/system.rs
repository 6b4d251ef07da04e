//! The allocator, and what the C library and the kernel are told of memory: everything here that is unsafe.

#![allow(
    unsafe_code,
    reason = "GlobalAlloc is an unsafe trait; mallopt, malloc_trim and madvise are foreign functions"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::{env, fs, io};

use super::counter::count;

/// Free bytes at the end of a heap above which glibc returns them by itself. `malloc_trim` leaves those of every heap but the main
/// thread's, and where nothing is set glibc lets them grow to 64 MiB.
#[cfg(target_env = "gnu")]
const MAX_FREE_END_BYTES: i32 = 2 << 20;

/// Size from which on an allocation is a mapping of its own. Once the other limit is set glibc no longer adapts this one, and its 128 KiB
/// would have the lists of large nodes mapped and unmapped with every call.
#[cfg(target_env = "gnu")]
const MIN_MAPPING_BYTES: i32 = 1 << 20;

/// The system's allocator, with a count of the bytes that are allocated.
#[derive(Debug)]
pub struct CountingAllocator;

// Inlined into each of its thousands of callers, the count would make the program a tenth larger.
// SAFETY: every call is passed on to `System` as it came, and the count neither allocates nor panics.
unsafe impl GlobalAlloc for CountingAllocator {
    #[inline(never)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller keeps the rules of `alloc`, which are those of `System`.
        unsafe { System.alloc(layout) }
    }

    #[inline(never)]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    #[inline(never)]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as in `alloc`; all memory of this allocator is from `System`.
        unsafe { System.dealloc(memory, layout) };
        count(-layout.size().cast_signed());
    }

    #[inline(never)]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size.cast_signed() - layout.size().cast_signed());
        // SAFETY: as in `dealloc`.
        unsafe { System.realloc(memory, layout, new_size) }
    }
}

/// Limits what glibc keeps at the end of each heap. musl keeps nothing that matters.
pub(super) fn limit_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: both take any number, and glibc locks what they change.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, MAX_FREE_END_BYTES);
        libc::mallopt(libc::M_MMAP_THRESHOLD, MIN_MAPPING_BYTES);
    }
}

/// Returns every page that is free to the system. Threads that allocate from a heap wait while it is trimmed.
pub(super) fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it has no preconditions.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Unmaps the pages of this program's code, most of which only its start needed. What is executed again is mapped again from the page
/// cache.
pub(super) fn release_code() -> io::Result<()> {
    let program = env::current_exe()?;
    for mapping in fs::read_to_string("/proc/self/maps")?.lines() {
        let mut fields = mapping.split_ascii_whitespace();
        let (Some(range), Some("r-xp")) = (fields.next(), fields.next()) else { continue };
        let is_of_program = fields.nth(3).is_some_and(|path| program.as_os_str() == path);
        let Some((start, end)) = range.split_once('-').filter(|_| is_of_program) else { continue };
        let address = |text| usize::from_str_radix(text, 16).map_err(io::Error::other);
        let (start, end) = (address(start)?, address(end)?);
        // SAFETY: the pages are read-only and mapped from a file, so that the kernel finds the same bytes there when they are executed
        // again. Only breakpoints that a debugger has set meanwhile are lost.
        unsafe {
            libc::madvise(std::ptr::with_exposed_provenance_mut(start), end - start, libc::MADV_DONTNEED);
        }
    }
    Ok(())
}
