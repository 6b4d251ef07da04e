//! The prober.

pub mod handler;
