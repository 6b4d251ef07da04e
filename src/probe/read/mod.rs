//! What somebody wrote → what is run. Everything that is wrong is told at once, with its path.

pub(super) mod annotation;
pub(crate) mod files;
pub(crate) mod manifest;
pub(crate) mod matches;
pub(crate) mod names;
pub(crate) mod node;
pub(crate) mod pod;
pub(crate) mod probe;
