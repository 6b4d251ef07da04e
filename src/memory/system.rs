//! The allocator, and calls of the C library and the kernel about memory. This module contains all
//! unsafe code of the crate.

#![allow(
    unsafe_code,
    reason = "GlobalAlloc is an unsafe trait; mallopt, malloc_trim and madvise are foreign functions"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::{env, fs, io};

use super::counter::count;

/// Number of free bytes at the end of a heap above which glibc returns them by itself.
/// `malloc_trim` skips the end of every heap except the main thread's, and by default glibc lets it
/// grow to 64 MiB.
#[cfg(target_env = "gnu")]
const MAX_FREE_END_BYTES: i32 = 2 << 20;

/// Size in bytes above which an allocation gets its own mapping. Once the other limit is set, glibc
/// no longer adapts this one, and its 128 KiB would map and unmap the lists of large nodes with
/// every call.
#[cfg(target_env = "gnu")]
const MIN_MAPPING_BYTES: i32 = 1 << 20;

/// The system's allocator, with a counter of allocated bytes.
#[derive(Debug)]
pub struct CountingAllocator;

// If the counter were inlined into its thousands of callers, the program would be a tenth larger.
// SAFETY: every call is passed to `System` unchanged, and the counter neither allocates nor panics.
unsafe impl GlobalAlloc for CountingAllocator {
    #[inline(never)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the rules of `alloc`, which are those of `System`.
        let memory = unsafe { System.alloc(layout) };
        count_new(memory, layout.size());
        memory
    }

    #[inline(never)]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        let memory = unsafe { System.alloc_zeroed(layout) };
        count_new(memory, layout.size());
        memory
    }

    #[inline(never)]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as in `alloc`; all memory of this allocator is from `System`.
        unsafe { System.dealloc(memory, layout) };
        count(layout.size().cast_signed().wrapping_neg());
    }

    #[inline(never)]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as in `dealloc`.
        let moved = unsafe { System.realloc(memory, layout, new_size) };
        if !moved.is_null() {
            count(new_size.cast_signed().wrapping_sub(layout.size().cast_signed()));
        }
        moved
    }
}

/// Counts an allocation, unless it failed.
fn count_new(memory: *const u8, size: usize) {
    if !memory.is_null() {
        count(size.cast_signed());
    }
}

/// Limits the free memory that glibc keeps at the end of each heap. musl keeps none that matters.
pub(super) fn limit_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: both functions take any number, and glibc locks the state that they change.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, MAX_FREE_END_BYTES);
        libc::mallopt(libc::M_MMAP_THRESHOLD, MIN_MAPPING_BYTES);
    }
}

/// Returns every free page to the system. Threads that allocate from a heap wait while it is
/// trimmed.
pub(super) fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the function has no preconditions.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Unmaps the pages of this program's code, most of which only the start of the program needed.
/// Code that is executed again is mapped again from the page cache.
pub(super) fn release_code() -> io::Result<()> {
    let program = env::current_exe()?;
    for mapping in fs::read_to_string("/proc/self/maps")?.lines() {
        let mut fields = mapping.split_ascii_whitespace();
        let (Some(range), Some("r-xp")) = (fields.next(), fields.next()) else { continue };
        let is_of_program = fields.nth(3).is_some_and(|path| program.as_os_str() == path);
        let Some((start, end)) = range.split_once('-').filter(|_| is_of_program) else { continue };
        let address = |text| usize::from_str_radix(text, 16).map_err(io::Error::other);
        let (start, end) = (address(start)?, address(end)?);
        // SAFETY: the pages are read-only and mapped from a file, so the kernel finds the same
        // bytes when they are executed again. Only breakpoints that a debugger has set meanwhile
        // are lost.
        unsafe {
            libc::madvise(std::ptr::with_exposed_provenance_mut(start), end - start, libc::MADV_DONTNEED);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::counter::COUNTER;

    #[test]
    fn allocations_that_fail_are_not_counted() {
        let (large, small) = (Layout::from_size_align(1 << 62, 8).unwrap(), Layout::new::<u64>());
        let before = COUNTER.allocated();
        // SAFETY: the layouts are not empty, and memory is freed with the layout of its allocation.
        unsafe {
            assert!(CountingAllocator.alloc(large).is_null());
            assert!(CountingAllocator.alloc_zeroed(large).is_null());
            let memory = CountingAllocator.alloc(small);
            assert!(CountingAllocator.realloc(memory, small, large.size()).is_null());
            CountingAllocator.dealloc(memory, small);
        }
        // Other tests allocate meanwhile.
        assert!(COUNTER.allocated().abs_diff(before) < 1 << 40);
    }
}
