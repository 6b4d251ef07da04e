//! The kubelet of this node as a source of names that needs no configuration and no credential: its
//! static pods, and its read-only port.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};
use tracing::error;
use url::Url;

use super::name_sources::{FoundNode, KubeconfigFile, LocalKubelet, SourceState};
use super::source_update::{FoundPods, SourceUpdate};
use crate::api_server::NodeKubeconfigs;
use crate::file_id::FileId;
use crate::local_kubelet::{
    IgnoreReason, IgnoredKubelet, KubeletConfiguration, KubeletProcess, ListeningSocket, PortError,
    installed_kubeconfig, known_manifest_dirs,
};
use crate::manifest::{Files, KubeletClient, Manifests, ReadOptions, Source};
use crate::socket::SocketPath;
use crate::terminal::sanitize;

/// Interval between two looks at the node.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// Minimum interval between two looks, if there is a new pod.
const MIN_LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Minimum interval between two looks, as a multiple of the duration of the last one.
const LOOK_BACKOFF_FACTOR: u32 = 50;

/// Maximum number of ignored processes that are described.
const MAX_IGNORED: usize = 3;

/// The search for the kubelet that uses a runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeletSearch {
    /// Sockets of the runtime and of probeshim. Kubelets with other runtimes are ignored.
    pub sockets: Vec<SocketPath>,
    /// Whether the read-only port is used. It is not needed beside a configured source.
    pub uses_read_only_port: bool,
}

/// A kubelet with its configuration.
#[derive(Clone, Debug)]
struct KnownKubelet {
    process: KubeletProcess,
    /// Configuration, or the reason why it cannot be read.
    configuration: Result<KubeletConfiguration, String>,
}

/// The node as it was last seen.
#[derive(Clone, Debug)]
struct NodeLook {
    search: KubeletSearch,
    proc: PathBuf,
    kubelet: Option<KnownKubelet>,
    /// Sentences about processes with the name of a kubelet that are ignored.
    ignored: Vec<String>,
    /// Directories of static pods as the kubelet names them, and as they can be opened.
    static_pods: Vec<(PathBuf, PathBuf)>,
    files: Files,
    /// The read-only port, if it is used.
    port: Option<Result<(Url, ListeningSocket), PortError>>,
    /// The kubeconfigs that were examined.
    kubeconfigs: NodeKubeconfigs,
    /// Kubeconfig of the kubelet.
    kubeconfig: Option<KubeconfigFile>,
    /// Kubeconfig that a distribution has written.
    installed_kubeconfig: Option<KubeconfigFile>,
    redact: bool,
}

impl KubeletSearch {
    /// Looks for the kubelet, its static pods and its read-only port until the receiver of the
    /// updates is dropped.
    pub(super) async fn run(
        self,
        redact: bool,
        mut triggers: watch::Receiver<()>,
        updates: mpsc::Sender<SourceUpdate>,
    ) {
        let mut look = NodeLook::new(self, redact);
        while !updates.is_closed() {
            let started = Instant::now();
            let (earlier, mut next) = (look.clone(), look);
            look = spawn_blocking(move || {
                next.look();
                next
            })
            .await
            .unwrap_or_else(|_| {
                error!("bug in probeshim: the search for the kubelet panicked; please report it");
                earlier
            });
            let slow = LOOK_BACKOFF_FACTOR * started.elapsed();
            let update = look.update().await;
            if updates.send(update).await.is_err() {
                return;
            }
            let earliest = Instant::now() + MIN_LOOK_INTERVAL.max(slow);
            tokio::select! {
                () = sleep_until(earliest.max(started + LOOK_INTERVAL)) => {}
                () = async { let _ = triggers.changed().await; sleep_until(earliest).await } => {}
            }
        }
    }
}

impl NodeLook {
    fn new(search: KubeletSearch, redact: bool) -> Self {
        let (kubelet, static_pods, port) = (None, Vec::new(), None);
        Self {
            search,
            proc: PathBuf::from("/proc"),
            kubelet,
            ignored: Vec::new(),
            static_pods,
            files: Files::default(),
            port,
            kubeconfigs: NodeKubeconfigs::default(),
            kubeconfig: None,
            installed_kubeconfig: None,
            redact,
        }
    }

    /// Looks at processes, files and sockets. A kubelet reads its configuration when it starts. One
    /// that cannot be read is read again each time.
    fn look(&mut self) {
        let is_current =
            |known: &KnownKubelet| known.configuration.is_ok() && known.process.is_alive(&self.proc);
        if !self.kubelet.as_ref().is_some_and(is_current) {
            (self.kubelet, self.ignored) = self.find();
        }
        let static_pods = self.static_pod_paths();
        if static_pods == self.static_pods {
            self.files.rescan();
        } else {
            let paths: Vec<PathBuf> = static_pods.iter().map(|(_, path)| path.clone()).collect();
            let source = Source::StaticPods;
            let options =
                ReadOptions { redact: self.redact, level: source.level(), source, ..ReadOptions::default() };
            (self.files, self.static_pods) = (Files::new(&paths, options), static_pods);
        }
        self.port = self.read_only_port();
        self.kubeconfig =
            self.kubelet.as_ref().and_then(|known| kubeconfig_of(&known.process, &mut self.kubeconfigs));
        self.installed_kubeconfig = installed_kubeconfig(Path::new("/")).map(|(_, path)| {
            let problem = self.kubeconfigs.problem(&path);
            KubeconfigFile { path, problem }
        });
    }

    /// Returns the first kubelet that uses the runtime. Without one, it may be a kubelet whose
    /// configuration cannot be read. Returns sentences about the ignored processes as well.
    fn find(&self) -> (Option<KnownKubelet>, Vec<String>) {
        let (processes, mut ignored) = KubeletProcess::find(&self.proc, std::process::id());
        let (mut ours, mut unread) = (Vec::new(), Vec::new());
        for process in processes {
            let configuration = process.configuration().map_err(|error| error.to_string());
            let other_endpoint =
                configuration.as_ref().map(|configuration| self.other_endpoint(configuration));
            match other_endpoint {
                Err(_) => unread.push(KnownKubelet { process, configuration }),
                Ok(None) => ours.push(KnownKubelet { process, configuration }),
                Ok(Some(endpoint)) => {
                    let reason = IgnoreReason::OtherRuntime(endpoint.to_owned());
                    ignored.push(IgnoredKubelet { pid: process.pid, reason });
                }
            }
        }
        (ours.into_iter().chain(unread).next(), describe_ignored(ignored))
    }

    /// Returns the runtime endpoint of a kubelet, if that is neither the runtime nor probeshim.
    fn other_endpoint<'a>(&self, configuration: &'a KubeletConfiguration) -> Option<&'a str> {
        let endpoint = configuration.container_runtime_endpoint.as_deref().unwrap_or_default();
        let socket = SocketPath::parse(endpoint);
        let is_ours = socket.is_ok_and(|socket| self.search.sockets.iter().any(|it| it.is_same_as(&socket)));
        (!is_ours).then_some(endpoint)
    }

    fn static_pod_paths(&self) -> Vec<(PathBuf, PathBuf)> {
        let known = || known_manifest_dirs().into_iter().map(|dir| (dir.clone(), dir)).collect();
        let Some(KnownKubelet { process, configuration }) = &self.kubelet else { return known() };
        let Ok(configuration) = configuration else { return known() };
        let path = configuration.static_pod_path.iter();
        path.map(|path| (path.clone(), process.path(path))).collect()
    }

    /// Verifies the socket of the read-only port. `None` if no process listens there.
    fn read_only_port(&self) -> Option<Result<(Url, ListeningSocket), PortError>> {
        let KnownKubelet { process, configuration } = self.kubelet.as_ref()?;
        let configuration = configuration.as_ref().ok().filter(|_| self.search.uses_read_only_port)?;
        let port = configuration.read_only_port.filter(|port| *port != 0)?;
        let address = configuration.read_only_address();
        let url = Url::parse(&format!("http://{}", std::net::SocketAddr::new(address, port))).ok()?;
        match ListeningSocket::of_kubelet(&self.proc, process, address, port) {
            Err(PortError::Closed(_)) => None,
            socket => Some(socket.map(|socket| (url, socket))),
        }
    }

    /// Requests the pods of the read-only port, and returns what was found.
    async fn update(&self) -> SourceUpdate {
        let found = vec![self.pods_of_port().await, self.static_pods()];
        let kubeconfig = self.kubeconfig.clone();
        let kubelet = self.kubelet.as_ref().map(|known| LocalKubelet { pid: known.process.pid, kubeconfig });
        let installed_kubeconfig = self.installed_kubeconfig.clone();
        let node = FoundNode { kubelet, ignored_kubelets: self.ignored.clone(), installed_kubeconfig };
        SourceUpdate::Found { found, node }
    }

    /// Returns whether the kubelet is known to have no read-only port.
    fn has_no_port(&self) -> bool {
        let configuration = self.kubelet.as_ref().and_then(|known| known.configuration.as_ref().ok());
        configuration.is_some_and(|configuration| configuration.read_only_port == Some(0))
    }

    fn static_pods(&self) -> FoundPods {
        let manifests = self.files.manifests();
        let unread = self.kubelet.as_ref().and_then(|known| known.configuration.as_ref().err().cloned());
        let places: Vec<String> =
            self.static_pods.iter().map(|(path, _)| path.display().to_string()).collect();
        let is_any = !places.is_empty() || unread.is_some();
        let state = SourceState {
            source: Source::StaticPods,
            place: if places.is_empty() { "an unknown directory".to_owned() } else { places.join(", ") },
            pods: manifests.iter().count(),
            problem: unread.or_else(|| self.files.problems().into_iter().next()),
        };
        FoundPods { source: Source::StaticPods, state: is_any.then_some(state), pods: Some(manifests) }
    }

    /// Returns the pods of the read-only port. The response counts only if the port belongs to the
    /// kubelet before the request and after it: another process may bind it when the kubelet ends.
    /// The pods of the last response stay known.
    async fn pods_of_port(&self) -> FoundPods {
        let source = Source::ReadOnlyPort;
        let failed = |place: String, problem: String| {
            let state = SourceState { source, place, pods: 0, problem: Some(problem) };
            FoundPods { source, state: Some(state), pods: None }
        };
        let (url, socket) = match self.port.clone() {
            // The kubelet may be about to listen, unless it never does.
            None => {
                let pods = self.has_no_port().then(Manifests::default);
                return FoundPods { source, state: None, pods };
            }
            Some(Err(error)) => return failed(error.port().to_string(), error.to_string()),
            Some(Ok(port)) => port,
        };
        let place = url.port().unwrap_or_default().to_string();
        let response = KubeletClient::of_read_only_port(url.clone()).pods(source, self.redact).await;
        let look = self.clone();
        let verified = spawn_blocking(move || look.read_only_port()).await.ok().flatten();
        if verified != Some(Ok((url, socket))) {
            return failed(place, "the port was not the kubelet's during the whole request".to_owned());
        }
        match response {
            Err(error) => failed(place, error.to_string()),
            Ok((pods, problems)) => {
                let problem = problems.into_iter().next();
                let state = SourceState { source, place, pods: pods.iter().count(), problem };
                FoundPods { source, state: Some(state), pods: Some(pods) }
            }
        }
    }
}

/// Returns sentences about processes that are ignored. Any user can start processes of this name,
/// so that those of root come first.
fn describe_ignored(mut ignored: Vec<IgnoredKubelet>) -> Vec<String> {
    ignored.sort_by_key(|it| (matches!(it.reason, IgnoreReason::OtherUser), it.pid));
    let more = ignored.len().saturating_sub(MAX_IGNORED);
    let mut sentences: Vec<String> =
        ignored.iter().take(MAX_IGNORED).map(|it| sanitize(&it.to_string())).collect();
    if more > 0 {
        sentences.push(format!("{more} more processes of this name are ignored"));
    }
    sentences
}

/// Returns the kubeconfig of a kubelet, and whether this process can use it by its path.
fn kubeconfig_of(kubelet: &KubeletProcess, kubeconfigs: &mut NodeKubeconfigs) -> Option<KubeconfigFile> {
    let (path, of_kubelet) = kubelet.kubeconfig()?;
    let id = |path: &Path| fs::metadata(path).map(|file| FileId::from_metadata(&file));
    let problem = match (id(&path), id(&of_kubelet)) {
        (Err(error), _) | (_, Err(error)) => Some(format!("{}: {error}", path.display())),
        (Ok(own), Ok(other)) if own != other => {
            Some(format!("{}: is not the file that the kubelet has at this path", path.display()))
        }
        _ => kubeconfigs.problem(&path),
    };
    Some(KubeconfigFile { path, problem })
}

#[cfg(test)]
mod tests;
