//! Executes the commands of ExecSyncs in containers without the runtime, at a fraction of its cost.
//!
//! A helper process starts each command in the namespaces and the cgroup of the container, with the
//! attributes that the runtime's own processes have. A container is verified before: a process that
//! the runtime starts is recorded at its exec, and one of the helper's is compared with it, field
//! by field. All other containers are left to the runtime, with the reason. The helper is a program
//! of its own, the crate `exec-helper`, which the build script embeds in this one.
//!
//! ```text
//! Policies ──request──► HelperExecutor ──Launch──► helper ──► process in the container
//!                          │     ▲                   │ ptrace
//!      ContainerStatus ────┘     └────Recorded───────┴──► process of the runtime
//! ```

mod attributes;
mod exec;
mod executor;
mod helper_process;
mod init_process;
mod inspection;
mod interpret;
mod process_lists;
mod requested_container;
mod spec;
mod verification;

pub use executor::HelperExecutor;
pub(crate) use interpret::interpret;
