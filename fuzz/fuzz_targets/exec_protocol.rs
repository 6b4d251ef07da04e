//! Feeds arbitrary bytes to the exec helper's protocol, as each kind of message, and derives the
//! attributes and differences that follow from them. Nothing may panic.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| probeshim::direct::interpret(bytes));
