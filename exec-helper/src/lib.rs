//! The exec helper: a small process with a single thread that runs commands in containers, and
//! records how the runtime runs them. It is a program of its own, which is embedded in probeshim,
//! because each command begins as a copy of its process: the less memory it has, the faster.
//!
//! ```text
//! probeshim ──Launch──► helper ──clone3──► child ──execve──► command
//!           ◄──Exited──                      └──status──► probeshim
//!           ──Watch───► helper ──ptrace──► process that the runtime prepares
//!           ◄─Recorded─
//! ```

#![warn(missing_debug_implementations)]
#![allow(clippy::disallowed_types, reason = "the helper has no async runtime, whose time could be paused")]

pub mod packet;
pub mod pidfd;
pub mod process_list;
pub mod protocol;
pub mod text;

mod child;
mod command;
mod expected;
mod helper;
mod namespaces;
mod sandbox;
mod snapshot;
mod sys;
mod watch;

pub use helper::run;
pub use snapshot::differences;

/// Name of the helper's process and of its program in memory.
pub const PROCESS_NAME: &str = "probeshim-exec";
