//! A copy of what a call carries: the beginning of it, within a limit for each and a limit for all.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The memory that copies may take together. What is copied gives back its part when dropped.
#[derive(Clone, Debug)]
pub struct Room(Arc<AtomicUsize>);

/// Why a copy is not whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Missed {
    /// There was more than a copy may hold.
    TooLong,
    /// Other copies had taken the memory.
    NoRoom,
}

/// The beginning of what one direction of a call carried.
#[derive(Debug)]
pub struct Copy {
    bytes: Vec<u8>,
    limit: usize,
    missed: Option<Missed>,
    room: Room,
}

impl Room {
    /// Room for so many bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    fn take(&self, bytes: usize) -> bool {
        let left = |left: usize| left.checked_sub(bytes);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Copy {
    /// An empty copy that will hold up to `limit` bytes.
    #[must_use]
    pub fn new(limit: usize, room: &Room) -> Self {
        Self { bytes: Vec::new(), limit, missed: None, room: room.clone() }
    }

    /// What was copied: everything, or why not.
    pub fn whole(&self) -> Result<&[u8], Missed> {
        self.missed.map_or(Ok(&self.bytes), Err)
    }

    /// Takes what passes. A copy that cannot be whole is of no use, and gives up what it held.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        if self.missed.is_some() {
            return;
        }
        if bytes.len() > self.limit - self.bytes.len() {
            self.give_up(Missed::TooLong);
        } else if !self.room.take(bytes.len()) {
            self.give_up(Missed::NoRoom);
        } else {
            self.bytes.extend_from_slice(bytes);
        }
    }

    fn give_up(&mut self, why: Missed) {
        self.room.give_back(self.bytes.len());
        self.bytes = Vec::new();
        self.missed = Some(why);
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        self.room.give_back(self.bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_whole_or_says_why_not_and_gives_its_room_back() {
        let room = Room::new(10);
        let mut small = Copy::new(6, &room);
        small.add(b"abc");
        small.add(b"def");
        assert_eq!(small.whole(), Ok(&b"abcdef"[..]));
        let mut late = Copy::new(6, &room);
        late.add(b"1234");
        late.add(b"5");
        assert_eq!(late.whole(), Err(Missed::NoRoom));
        drop(small);
        let mut long = Copy::new(6, &room);
        long.add(b"123456");
        long.add(b"7");
        long.add(b"8");
        assert_eq!(long.whole(), Err(Missed::TooLong));
        assert!(room.take(10) && !room.take(1), "what was dropped or given up has been given back");
    }
}
