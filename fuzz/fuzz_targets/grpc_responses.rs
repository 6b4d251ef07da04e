//! The body is in `src/fuzzing`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| probeshim::fuzzing::run("grpc_responses", input));
