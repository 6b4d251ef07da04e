//! What somebody wrote → what is run. Everything that is wrong is told at once, with its path.

pub(super) mod annotation;
pub(crate) mod cursor;
pub(crate) mod files;
pub(crate) mod manifest;
pub(crate) mod pod;
pub(crate) mod probe;
pub(crate) mod selector;
pub(crate) mod validation;
