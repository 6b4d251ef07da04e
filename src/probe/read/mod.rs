//! What somebody wrote → what is run. Everything that is wrong is told at once, with its path.

pub(super) mod annotation;
pub(super) mod files;
pub(super) mod manifest;
pub(crate) mod matches;
pub(crate) mod node;
pub(super) mod pod;
pub(crate) mod probe;
