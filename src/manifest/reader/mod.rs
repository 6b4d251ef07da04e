//! Reads pods, and the objects that they refer to, from the values of a document.
//!
//! `spec` reads what probes, hooks and restarts depend on, which is all that is needed of pods that others run. `pod` reads a whole pod.

pub(in crate::manifest) mod config_object;
mod container;
mod env;
pub(in crate::manifest) mod fields;
pub(in crate::manifest) mod pod;
pub(in crate::manifest) mod probe;
mod security;
pub(in crate::manifest) mod spec;
mod volume;
mod written;

#[cfg(test)]
pub(crate) mod tests;
