//! Reads pods, and the objects to which they refer, from the values of a document.
//!
//! `spec` reads the fields that probes, hooks and restarts depend on, which suffices for pods that
//! others run. `pod` reads all fields of a pod.

mod claim;
pub(in crate::manifest) mod config_object;
mod container;
mod controller_fields;
mod cron_schedule;
mod env;
pub(in crate::manifest) mod fields;
mod file_volume;
mod hostname;
mod namespaces;
mod network;
mod os;
mod placement;
pub(in crate::manifest) mod pod;
pub(in crate::manifest) mod probe;
mod resources;
mod security;
mod selector;
pub(in crate::manifest) mod spec;
mod volume;
mod volume_mount;
pub(in crate::manifest) mod workload;
mod written;

#[cfg(test)]
pub(crate) mod tests;
