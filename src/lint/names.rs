//! Names of lints that several modules use.

/// A probe killed the container.
pub(super) const KILLS: &str = "kills";

/// The container exited by itself.
pub(super) const RESTARTS: &str = "restarts";

/// The runtime could not start the container.
pub(super) const START_ERRORS: &str = "start-errors";

/// The postStart hook of the container failed.
pub(super) const FAILED_POST_START: &str = "failed-post-start";

/// A kubelet stopped the container, and no exec probe explains it.
pub(super) const KUBELET_STOPS: &str = "kubelet-stops";

/// The readiness of the container was lost again and again.
pub(super) const FLAPPING: &str = "flapping";

/// Attempts failed.
pub(super) const FAILURES: &str = "failures";
