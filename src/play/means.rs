//! What pods are played with: the runtime, the prober, the node, and what is remembered of failures.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OnceCell;
use tokio::time::Instant;
use tonic::Status;
use tonic::transport::Channel;

use super::backoff::Backoff;
use super::node::Node;
use super::notice::{Notice, Witness};
use super::seen::Seen;
use crate::cri::labels::POD_UID;
use crate::cri::v1::image_service_client::ImageServiceClient;
use crate::cri::v1::runtime_service_client::RuntimeServiceClient;
use crate::cri::v1::{
    ContainerFilter, ContainerStatusRequest, ListContainersRequest, ListPodSandboxRequest, PodSandboxFilter,
    PodSandboxStatusRequest, StatusRequest, VersionRequest,
};
use crate::cri::{OwnClient, PATIENCE, unless_gone, within};
use crate::prober::{Executor, KUBELET, Prober};
use crate::tap;

/// What pods are played with.
#[derive(Debug)]
pub(super) struct Means {
    /// For what is done: it is seen as what any client does.
    pub(super) acts: RuntimeServiceClient<Channel>,
    pub(super) images: ImageServiceClient<Channel>,
    /// For what is asked.
    pub(super) asks: OwnClient,
    /// For what is executed and stopped.
    pub(super) executor: Executor,
    /// Who makes probes, if anybody does.
    pub(super) prober: Option<Prober>,
    pub(super) node: Node,
    /// For containers that end, and for images that are not to be had.
    pub(super) crashes: Backoff,
    pub(super) pulls: Backoff,
    pub(super) witness: Arc<dyn Witness>,
    pub(super) runtime_name: OnceCell<String>,
    pub(super) records: Records,
    /// When a kubelet was seen last.
    pub(super) kubelet_seen: Mutex<Option<Instant>>,
}

/// What was seen last of the containers and sandboxes of each pod: their states, by their ids.
#[derive(Debug, Default)]
pub(super) struct Records(Mutex<HashMap<String, Record>>);

/// Of one pod.
pub(super) type Record = HashMap<String, i32>;

impl Records {
    /// Takes what is seen of a pod. Tells whether it is anything new.
    pub(super) fn take(&self, uid: &str, record: Record) -> bool {
        let mut records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = records.get(uid) != Some(&record);
        if is_new {
            records.insert(uid.to_owned(), record);
        }
        is_new
    }

    /// Whether the runtime has ever told of a pod, be it that there is nothing of it.
    pub(super) fn knows(&self, uid: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(uid)
    }

    pub(super) fn forget(&self, uid: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }
}

impl Means {
    /// What the runtime calls itself.
    pub(super) async fn runtime_name(&self) -> Result<&str, Status> {
        let ask = || async {
            let mut asks = self.asks.clone();
            let answered = within(PATIENCE, asks.version(VersionRequest::default())).await?;
            Ok::<_, Status>(answered.runtime_name)
        };
        self.runtime_name.get_or_try_init(ask).await.map(String::as_str)
    }

    /// Whether this handler of the runtime can make a mount read-only with all that is mounted below it.
    pub(super) async fn can_recurse(&self, handler: &str) -> Result<bool, Status> {
        let status = within(PATIENCE, self.asks.clone().status(StatusRequest::default())).await?;
        let known = status.runtime_handlers.into_iter().find(|known| known.name == handler);
        Ok(known.and_then(|known| known.features).is_some_and(|it| it.recursive_read_only_mounts))
    }

    /// What the runtime says of a pod.
    pub(super) async fn inspect(&self, uid: &str) -> Result<Seen, Status> {
        let mut asks = self.asks.clone();
        let label_selector = || HashMap::from([(POD_UID.to_owned(), uid.to_owned())]);
        let filter = PodSandboxFilter { label_selector: label_selector(), ..PodSandboxFilter::default() };
        let request = ListPodSandboxRequest { filter: Some(filter) };
        let listed = within(PATIENCE, asks.list_pod_sandbox(request)).await?.items;
        let filter = ContainerFilter { label_selector: label_selector(), ..ContainerFilter::default() };
        let request = ListContainersRequest { filter: Some(filter) };
        let containers = within(PATIENCE, asks.list_containers(request)).await?.containers;
        let mut record: Record = listed.iter().map(|it| (it.id.clone(), it.state)).collect();
        record.extend(containers.iter().map(|it| (it.id.clone(), it.state)));
        let mut sandboxes = Vec::new();
        for sandbox in listed {
            let request = PodSandboxStatusRequest { pod_sandbox_id: sandbox.id, verbose: false };
            let status = unless_gone(within(PATIENCE, asks.pod_sandbox_status(request)).await)?;
            sandboxes.extend(status.and_then(|answer| answer.status));
        }
        let mut statuses = Vec::new();
        for container in containers {
            let request = ContainerStatusRequest { container_id: container.id, verbose: false };
            let status = unless_gone(within(PATIENCE, asks.container_status(request)).await)?;
            statuses.extend(status.and_then(|answer| answer.status));
        }
        self.records.take(uid, record);
        Ok(Seen::new(sandboxes, statuses))
    }

    /// Everything on the node, by the uids of pods.
    pub(super) async fn list(&self) -> Result<HashMap<String, Record>, Status> {
        let mut asks = self.asks.clone();
        let sandboxes =
            within(PATIENCE, asks.list_pod_sandbox(ListPodSandboxRequest::default())).await?.items;
        let containers = within(PATIENCE, asks.list_containers(ListContainersRequest::default())).await?;
        let mut records: HashMap<String, Record> = HashMap::new();
        let of_sandboxes = sandboxes.into_iter().map(|it| (it.labels, it.id, it.state));
        let of_containers = containers.containers.into_iter().map(|it| (it.labels, it.id, it.state));
        for (labels, id, state) in of_sandboxes.chain(of_containers) {
            if let Some(uid) = labels.get(POD_UID) {
                records.entry(uid.clone()).or_default().insert(id, state);
            }
        }
        Ok(records)
    }

    /// A kubelet has been seen. Tells whether it was not there just before.
    pub(super) fn see_kubelet(&self, now: Instant) -> bool {
        let is_new = !self.is_held();
        *self.kubelet_seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
        is_new
    }

    /// Whether a kubelet is there: two masters would be at odds.
    pub(super) fn is_held(&self) -> bool {
        let seen = self.kubelet_seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.is_some_and(|seen| seen.elapsed() < KUBELET)
    }

    /// Tells of something that has happened.
    pub(super) fn tell(
        &self,
        pod: &Arc<tap::Pod>,
        container: Option<&Arc<tap::Container>>,
        (reason, is_warning): (&'static str, bool),
        message: String,
    ) {
        let (pod, container) = (pod.clone(), container.cloned());
        self.witness.notice(Notice { pod, container, reason, is_warning, message });
    }
}
