//! Integration tests: the relay between raw HTTP/2 peers, the program on procrun, the CRI's
//! definitions, names, layout and documents.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod admin;
mod capture;
mod client_pods;
mod cri;
mod demo;
mod exec_policies;
mod explain;
mod faults;
mod fuzz_corpus;
mod generated;
mod hostile;
mod killing;
mod layout;
mod memory;
mod names;
mod pauses;
mod playing;
mod probe_names;
mod probing;
mod procrun;
mod program;
mod prose;
mod reference;
mod report;
mod run;
mod stepping;
mod surviving;
mod systemd;
mod tap;
mod timeline;
mod top;
mod transparency;
mod version;
mod world;
