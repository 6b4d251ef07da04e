//! The state of the runtime that all pod workers share. A task reads it every five seconds
//! (kubelet: `runtime.go`: `runtimeState`, `kubelet.go`: `updateRuntimeUp`).

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;
use tonic::{Code, Status};

use super::runtime_clients::log_failure;
use crate::cri::v1::{
    CgroupDriver, RuntimeCondition, RuntimeConfigRequest, RuntimeConfigResponse, RuntimeHandlerFeatures,
    StatusRequest, StatusResponse,
};
use crate::cri::{MeteredRuntimeClient, RUNTIME_REQUEST_TIMEOUT, with_timeout};

/// Interval from the end of one update to the start of the next (`kubelet.go`: `Run`).
const UPDATE_INTERVAL: Duration = Duration::from_secs(5);

/// The state of the runtime at the last update; `None` before the first one.
#[derive(Debug)]
pub(super) struct RuntimeState(watch::Sender<Option<Conditions>>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Conditions {
    /// Reason why the network is not ready; `None` if it is.
    network_error: Option<String>,
    /// Features of the runtime's handlers, by the names of the handlers. An old runtime lists no
    /// handlers.
    handlers: BTreeMap<String, RuntimeHandlerFeatures>,
    cgroup_driver: CgroupDriver,
}

impl Default for RuntimeState {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl RuntimeState {
    /// Returns the reason why the network of the runtime is not ready; `None` if it is. Waits for
    /// the first update, as the kubelet does before it syncs pods.
    pub(super) async fn network_error(&self) -> Option<String> {
        self.read(|conditions| conditions.network_error.clone()).await
    }

    /// Returns whether a handler of the runtime supports recursive read-only mounts. Waits for the
    /// first update.
    pub(super) async fn supports_rro(&self, handler: &str) -> bool {
        let features = self.read(|conditions| conditions.handlers.get(handler).copied()).await;
        features.is_some_and(|features| features.recursive_read_only_mounts)
    }

    /// Returns whether a handler of the runtime supports user namespaces; `None` if the runtime
    /// lists handlers but not this one. Waits for the first update (kubelet: `kubelet_getters.go`:
    /// `HandlerSupportsUserNamespaces`).
    pub(super) async fn supports_user_namespaces(&self, handler: &str) -> Option<bool> {
        self.read(|conditions| {
            let features = conditions.handlers.get(handler).map(|features| features.user_namespaces);
            features.or(conditions.handlers.is_empty().then_some(false))
        })
        .await
    }

    /// Returns the driver by which the runtime creates control groups. Waits for the first update.
    pub(super) async fn cgroup_driver(&self) -> CgroupDriver {
        self.read(|conditions| conditions.cgroup_driver).await
    }

    async fn read<T>(&self, read: impl Fn(&Conditions) -> T) -> T {
        let mut updates = self.0.subscribe();
        loop {
            if let Some(conditions) = &*updates.borrow_and_update() {
                return read(conditions);
            }
            // The sender lives as long as this borrow of it.
            let _ = updates.changed().await;
        }
    }

    /// Updates the state forever. A failed update leaves the state as it was.
    pub(super) async fn update_forever(&self, client: &MeteredRuntimeClient) {
        let mut is_reported = false;
        loop {
            match self.query(client.clone()).await {
                Ok((response, cgroup_driver)) => {
                    is_reported = false;
                    self.update(response, cgroup_driver);
                }
                Err(status) => {
                    is_reported =
                        is_reported || log_failure(&status, "container runtime sanity check failed");
                }
            }
            sleep(UPDATE_INTERVAL).await;
        }
    }

    /// Returns the status of the runtime and its cgroup driver. Requests the driver until the first
    /// update: a restart of the runtime with another driver is not noticed, as by the kubelet.
    async fn query(
        &self,
        mut client: MeteredRuntimeClient,
    ) -> Result<(StatusResponse, CgroupDriver), Status> {
        let known = self.0.borrow().as_ref().map(|conditions| conditions.cgroup_driver);
        let cgroup_driver = if let Some(known) = known {
            known
        } else {
            let request = client.runtime_config(RuntimeConfigRequest::default());
            driver_of(with_timeout(RUNTIME_REQUEST_TIMEOUT, request).await)?
        };
        let response = with_timeout(RUNTIME_REQUEST_TIMEOUT, client.status(StatusRequest::default())).await?;
        Ok((response, cgroup_driver))
    }

    /// Applies a response to a Status call. The handlers of a runtime that is not ready stay as
    /// they were.
    fn update(&self, response: StatusResponse, cgroup_driver: CgroupDriver) {
        let conditions = response.status.unwrap_or_default().conditions;
        let handlers = response.runtime_handlers.into_iter();
        let handlers = handlers.map(|handler| (handler.name, handler.features.unwrap_or_default()));
        self.0.send_modify(|known| {
            let known = known.get_or_insert_default();
            known.network_error = network_error(&conditions);
            known.cgroup_driver = cgroup_driver;
            if conditions.iter().any(|it| it.r#type == "RuntimeReady" && it.status) {
                known.handlers = handlers.collect();
            }
        });
    }
}

/// Returns the cgroup driver by an answer to `RuntimeConfig` (kubelet: `cmd/kubelet/app/server.go`:
/// `getCgroupDriverFromCRI`). A runtime without this call, such as containerd 1.7, counts as one
/// with cgroupfs, which is the default of the kubelet.
fn driver_of(answer: Result<RuntimeConfigResponse, Status>) -> Result<CgroupDriver, Status> {
    match answer {
        // The kubelet falls back to its own setting if the answer has no part for Linux.
        Ok(response) => Ok(response.linux.map_or(CgroupDriver::Cgroupfs, |linux| linux.cgroup_driver())),
        Err(status) if status.code() == Code::Unimplemented => Ok(CgroupDriver::Cgroupfs),
        Err(status) => Err(status),
    }
}

/// Returns the reason why the network is not ready, by the conditions of the runtime. Without the
/// condition it counts as not ready.
fn network_error(conditions: &[RuntimeCondition]) -> Option<String> {
    let condition = match conditions.iter().find(|condition| condition.r#type == "NetworkReady") {
        Some(condition) if condition.status => return None,
        Some(RuntimeCondition { reason, message, .. }) => {
            format!("NetworkReady=false reason:{reason} message:{message}")
        }
        None => "<nil>".to_owned(),
    };
    Some(format!("container runtime network not ready: {condition}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cri::v1::{LinuxRuntimeConfiguration, RuntimeHandler, RuntimeHandlerFeatures, RuntimeStatus};

    fn condition(kind: &str, status: bool) -> RuntimeCondition {
        RuntimeCondition {
            r#type: kind.to_owned(),
            status,
            reason: "NetworkPluginNotReady".to_owned(),
            message: "cni plugin not initialized".to_owned(),
        }
    }

    #[test]
    fn a_network_without_its_condition_is_not_ready() {
        let error = |text: &str| Some(format!("container runtime network not ready: {text}"));
        let not_ready = "NetworkReady=false reason:NetworkPluginNotReady message:cni plugin not initialized";
        for (conditions, expected) in [
            (vec![condition("RuntimeReady", true), condition("NetworkReady", true)], None),
            (vec![condition("RuntimeReady", true), condition("NetworkReady", false)], error(not_ready)),
            (vec![condition("RuntimeReady", true)], error("<nil>")),
        ] {
            assert_eq!(network_error(&conditions), expected, "{conditions:?}");
        }
    }

    /// Kubelet: `kubelet.go`: `updateRuntimeUp`.
    #[tokio::test]
    async fn the_handlers_of_a_runtime_that_is_not_ready_stay() {
        let state = RuntimeState::default();
        let response = |is_ready, name: &str| StatusResponse {
            status: Some(RuntimeStatus {
                conditions: vec![condition("RuntimeReady", is_ready), condition("NetworkReady", is_ready)],
            }),
            runtime_handlers: vec![RuntimeHandler {
                name: name.to_owned(),
                features: Some(RuntimeHandlerFeatures {
                    recursive_read_only_mounts: true,
                    user_namespaces: true,
                }),
            }],
            ..StatusResponse::default()
        };
        state.update(response(true, "a"), CgroupDriver::Cgroupfs);
        assert!(state.network_error().await.is_none());
        state.update(response(false, "b"), CgroupDriver::Systemd);
        assert!(state.network_error().await.is_some());
        assert!(state.supports_rro("a").await && !state.supports_rro("b").await);
        assert_eq!(state.supports_user_namespaces("a").await, Some(true));
        assert_eq!(state.supports_user_namespaces("b").await, None);
        assert_eq!(state.cgroup_driver().await, CgroupDriver::Systemd);
    }

    #[test]
    fn a_runtime_without_runtime_config_counts_as_one_with_cgroupfs() {
        let answer = |driver: CgroupDriver| RuntimeConfigResponse {
            linux: Some(LinuxRuntimeConfiguration { cgroup_driver: driver.into() }),
        };
        for (answer, expected) in [
            (Ok(answer(CgroupDriver::Systemd)), Some(CgroupDriver::Systemd)),
            (Ok(answer(CgroupDriver::Cgroupfs)), Some(CgroupDriver::Cgroupfs)),
            (Ok(RuntimeConfigResponse::default()), Some(CgroupDriver::Cgroupfs)),
            (Err(Status::unimplemented("unknown method")), Some(CgroupDriver::Cgroupfs)),
            (Err(Status::unavailable("no connection")), None),
        ] {
            assert_eq!(driver_of(answer.clone()).ok(), expected, "{answer:?}");
        }
    }
}
