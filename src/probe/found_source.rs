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

use super::name_sources::{KubeconfigFile, LocalKubelet, SourceState};
use super::source_update::{FoundPods, SourceUpdate};
use crate::api_server::ApiServer;
use crate::file_id::FileId;
use crate::local_kubelet::{
    KubeletConfiguration, KubeletProcess, ListeningSocket, PortError, installed_kubeconfig,
    known_manifest_dirs,
};
use crate::manifest::{Files, KubeletClient, Manifests, ReadOptions, Source};
use crate::socket::SocketPath;

/// Interval between two looks at the node.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// Minimum interval between two looks, if there is a new pod.
const MIN_LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Minimum interval between two looks, as a multiple of the duration of the last one.
const LOOK_BACKOFF_FACTOR: u32 = 50;

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
    /// Directories of static pods as the kubelet names them, and as they can be opened.
    static_pods: Vec<(PathBuf, PathBuf)>,
    files: Files,
    /// The read-only port, if it is used.
    port: Option<Result<(Url, ListeningSocket), PortError>>,
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
            static_pods,
            files: Files::default(),
            port,
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
            self.kubelet = self.find();
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
        self.kubeconfig = self.kubelet.as_ref().and_then(|known| kubeconfig_of(&known.process));
        self.installed_kubeconfig = installed_kubeconfig(Path::new("/")).map(|(_, path)| {
            let problem = ApiServer::problem_of_node_kubeconfig(&path);
            KubeconfigFile { path, problem }
        });
    }

    /// Returns the first kubelet that uses the runtime. Without one, it may be a kubelet whose
    /// configuration cannot be read.
    fn find(&self) -> Option<KnownKubelet> {
        let is_ours = |configuration: &KubeletConfiguration| {
            let endpoint = configuration.container_runtime_endpoint.as_deref().unwrap_or_default();
            let endpoint = SocketPath::parse(endpoint);
            endpoint
                .is_ok_and(|endpoint| self.search.sockets.iter().any(|socket| socket.is_same_as(&endpoint)))
        };
        let found = KubeletProcess::find(&self.proc, std::process::id()).into_iter();
        let found = found.map(|process| {
            let configuration = process.configuration().map_err(|error| error.to_string());
            KnownKubelet { process, configuration }
        });
        let (read, unread): (Vec<_>, Vec<_>) = found.partition(|known| known.configuration.is_ok());
        let mut ours = read.into_iter().filter(|known| known.configuration.as_ref().is_ok_and(is_ours));
        ours.next().or_else(|| unread.into_iter().next())
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
        SourceUpdate::Found { found, kubelet, installed_kubeconfig }
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

/// Returns the kubeconfig of a kubelet, and whether this process can use it by its path.
fn kubeconfig_of(kubelet: &KubeletProcess) -> Option<KubeconfigFile> {
    let (path, of_kubelet) = kubelet.kubeconfig()?;
    let id = |path: &Path| fs::metadata(path).map(|file| FileId::from_metadata(&file));
    let problem = match (id(&path), id(&of_kubelet)) {
        (Err(error), _) | (_, Err(error)) => Some(format!("{}: {error}", path.display())),
        (Ok(own), Ok(other)) if own != other => {
            Some(format!("{}: is not the file that the kubelet has at this path", path.display()))
        }
        _ => ApiServer::problem_of_node_kubeconfig(&path),
    };
    Some(KubeconfigFile { path, problem })
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;
    use crate::local_kubelet::FakeProc;

    /// Returns a look at processes, whose kubelets use the runtime if they have the default
    /// endpoint.
    fn look_at(proc: &FakeProc) -> NodeLook {
        let containerd = SocketPath::parse("unix:///run/containerd/containerd.sock").unwrap();
        let search = KubeletSearch { sockets: vec![containerd], uses_read_only_port: true };
        proc.add(std::process::id(), "probeshim", 0, "pid:[1]", &["probeshim"]);
        NodeLook { proc: proc.path().to_owned(), ..NodeLook::new(search, false) }
    }

    fn pid(look: &NodeLook) -> Option<u32> {
        look.kubelet.as_ref().map(|known| known.process.pid)
    }

    #[test]
    fn a_kubelet_with_an_unreadable_configuration_is_the_last_choice_and_is_read_again() {
        let (proc, dir) = (FakeProc::new(), tempfile::tempdir().unwrap());
        let config = dir.path().join("config.yaml");
        let mut look = look_at(&proc);
        proc.add(20, "kubelet", 0, "pid:[1]", &["kubelet", &format!("--config={}", config.display())]);
        look.look();
        assert_eq!(pid(&look), Some(20));
        assert!(look.kubelet.as_ref().unwrap().configuration.is_err());
        proc.add(21, "kubelet", 0, "pid:[1]", &["kubelet", "--container-runtime-endpoint=unix:///other"]);
        proc.add(22, "kubelet", 0, "pid:[1]", &["kubelet"]);
        look.look();
        assert_eq!(pid(&look), Some(22), "it is readable and uses the runtime");

        let mut look = look_at(&FakeProc::new());
        look.proc = proc.path().to_owned();
        fs::write(&config, "staticPodPath: /a\n").unwrap();
        look.look();
        assert_eq!(pid(&look), Some(20));
        fs::write(&config, "[").unwrap();
        fs::remove_dir_all(proc.path().join("22")).unwrap();
        let mut look = NodeLook { kubelet: None, ..look };
        look.look();
        assert!(look.kubelet.as_ref().unwrap().configuration.is_err());
        fs::write(&config, "staticPodPath: /a\n").unwrap();
        look.look();
        assert!(look.kubelet.unwrap().configuration.is_ok(), "an error is not final");
    }

    #[tokio::test]
    async fn the_pods_of_a_read_only_port_that_the_kubelet_no_longer_has_are_forgotten() {
        let proc = FakeProc::new();
        let mut look = look_at(&proc);
        proc.add(20, "kubelet", 0, "pid:[1]", &["kubelet"]);
        look.look();
        assert!(look.pods_of_port().await.pods.is_none(), "the kubelet does not listen yet");
        fs::remove_dir_all(proc.path().join("20")).unwrap();
        look.look();
        assert!(look.pods_of_port().await.pods.is_none(), "the kubelet is restarted");
        proc.add(21, "kubelet", 0, "pid:[1]", &["kubelet", "--read-only-port=0"]);
        look.look();
        assert_eq!(look.pods_of_port().await.pods, Some(Manifests::default()));
    }

    #[test]
    fn a_fifo_as_static_pod_path_is_not_read() {
        let (proc, dir) = (FakeProc::new(), tempfile::tempdir().unwrap());
        let fifo = dir.path().join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        // A reader would wait for the end of this writer.
        let _writer = fs::File::options().read(true).write(true).open(&fifo).unwrap();
        let mut look = look_at(&proc);
        let path = format!("--pod-manifest-path={}", fifo.display());
        proc.add(20, "kubelet", 0, "pid:[1]", &["kubelet", &path]);
        look.look();
        let problem = look.static_pods().state.unwrap().problem.unwrap();
        assert!(problem.ends_with("it is a FIFO; only regular files are read"), "{problem}");
    }

    #[test]
    fn a_kubeconfig_in_another_mount_namespace_is_not_recommended() {
        let (proc, dir) = (FakeProc::new(), tempfile::tempdir().unwrap());
        let path = dir.path().join("kubelet.conf");
        fs::write(&path, "").unwrap();
        proc.add(20, "kubelet", 0, "pid:[1]", &["kubelet", &format!("--kubeconfig={}", path.display())]);
        let problem = || {
            let kubelet = KubeletProcess::find(proc.path(), 1).remove(0);
            kubeconfig_of(&kubelet).unwrap().problem.unwrap()
        };
        assert!(problem().contains("current-context"), "an empty file does not suffice: {}", problem());
        let root = proc.path().join("20/root");
        let other = root.join(path.strip_prefix("/").unwrap());
        fs::create_dir_all(other.parent().unwrap()).unwrap();
        fs::write(other, "").unwrap();
        fs::remove_file(proc.path().join("20/ns/mnt")).unwrap();
        std::os::unix::fs::symlink("mnt:[2]", proc.path().join("20/ns/mnt")).unwrap();
        assert!(problem().ends_with("is not the file that the kubelet has at this path"), "{}", problem());
    }
}
