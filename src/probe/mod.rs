//! Probes as they are specified, and where that is written.
//!
//! ```text
//! --pods files ──► manifest ──┐
//! annotations of a sandbox ───┴─► Specs ──► what is executed in which container, and why
//! ```

mod annotation;
mod expand;
mod files;
mod manifest;
mod node;
mod owner;
mod spec;
mod specs;

pub use annotation::annotation_problems;
pub use files::FileError;
pub use spec::{ExecUse, Source, Use};
pub use specs::Specs;
