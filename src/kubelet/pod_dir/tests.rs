//! Files of a pod on this host.

pub(super) mod limited;
mod subpaths;

use std::os::unix::fs::symlink;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::*;
use crate::kubelet::cri_config::no_file;
use crate::kubelet::node::NodeInfo;
use crate::manifest::ConfigObjects;
use crate::manifest::pod::HostPathKind;
use crate::manifest::reader::tests::{play, pod_set};

/// A node, the objects of a manifest, and a temporary directory for the files of pods.
struct TestHost {
    _dir: tempfile::TempDir,
    node: NodeInfo,
    objects: Arc<ConfigObjects>,
}

impl TestHost {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        // The kernel reports mount points without links.
        let path = dir.path().canonicalize().unwrap();
        let (logs, pods) = (path.join("logs"), path.join("pods"));
        let node = NodeInfo {
            address: "192.0.2.2".to_owned(),
            ..NodeInfo::detect(logs, false, pods, String::new())
        };
        Self { _dir: dir, node, objects: Arc::default() }
    }

    /// Stores the objects of a manifest, and returns its pod.
    fn read(&mut self, text: &str) -> Arc<Pod> {
        let set = pod_set(text).unwrap();
        self.objects = set.objects;
        set.pods.into_iter().next().unwrap()
    }

    fn facts<'a>(&'a self, pod: &'a Pod, addresses: &'a [String]) -> EnvFacts<'a> {
        EnvFacts { pod, node: &self.node, seen: "then", addresses, objects: &self.objects }
    }
}

/// Returns whether this machine permits mounts.
pub(super) fn may_mount() -> bool {
    let dir = tempfile::tempdir().unwrap();
    let mounted = mount("tmpfs", dir.path(), "tmpfs", MountFlags::empty(), c"size=4096");
    mounted.and_then(|()| unmount(dir.path(), UnmountFlags::empty())).is_ok()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

const DOCUMENTS: &str = "
{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {mode: fast, 'other': x}}
---
apiVersion: v1
kind: Pod
metadata: {name: p, uid: u, labels: {app: web}, annotations: {note: \"a\\x01<b>\"}}
spec:
  hostAliases: [{ip: 10.1.2.3, hostnames: [foo, bar]}]
  containers:
  - name: main
    image: i
    env: [{name: DIR, value: sub}]
    volumeMounts:
    - {name: empty, mountPath: /e, subPathExpr: '$(DIR)/deep'}
    - {name: files, mountPath: /f, readOnly: true, recursiveReadOnly: IfPossible}
    - {name: down, mountPath: /d}
  volumes:
  - {name: empty, emptyDir: {}}
  - {name: files, configMap: {name: c, defaultMode: 384, items: [{key: mode, path: a/mode}, {key: other, path: other, mode: 420}]}}
  - name: down
    downwardAPI:
      items:
      - {path: labels, fieldRef: {fieldPath: metadata.labels}}
      - {path: annotations, fieldRef: {fieldPath: metadata.annotations}}
";

#[test]
fn volumes_are_created_updated_atomically_and_removed_with_the_pod() {
    let mut host = TestHost::new();
    let pod = host.read(DOCUMENTS);
    let (dir, addresses) = (PodDir::for_pod(&pod, &host.node.pods), ["10.0.0.4".to_owned()]);
    dir.prepare(&host.facts(&pod, &addresses)).unwrap();
    let root = host.node.pods.join("u");
    let files = root.join("volumes/kubernetes.io~configmap/files");
    assert_eq!((read(&files.join("a/mode")), read(&files.join("other"))), ("fast".into(), "x".into()));
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!((mode(&files.join("a/mode")), mode(&files.join("other"))), (0o600, 0o644));
    let labels = root.join("volumes/kubernetes.io~downward-api/down/labels");
    assert_eq!(read(&labels), "app=\"web\"");
    let annotations = read(&labels.with_file_name("annotations"));
    let expected = "kubernetes.io/config.hash=\"u\"\nkubernetes.io/config.seen=\"then\"\n\
                    kubernetes.io/config.source=\"file\"\nnote=\"a\\x01<b>\"";
    assert_eq!(annotations, expected);
    let facts = host.facts(&pod, &addresses);
    let variables = super::super::cri_config::variables(&pod.containers[0], &facts, &no_file).unwrap();
    let all_mounts = |recurses| {
        let options = MountOptions { recurses, ..MountOptions::default() };
        dir.mounts(&pod.containers[0], &facts, &variables, &options).unwrap()
    };
    let mounts = all_mounts(false);
    let paths: Vec<&str> = mounts.iter().map(|mount| mount.container_path.as_str()).collect();
    assert_eq!(paths, ["/e", "/f", "/d", "/etc/hosts", "/dev/termination-log"]);
    assert!(mounts[0].host_path.ends_with("empty/sub/deep") && Path::new(&mounts[0].host_path).is_dir());
    assert_eq!(
        mounts.iter().map(|mount| mount.readonly).collect::<Vec<_>>(),
        [false, true, true, false, false]
    );
    assert_eq!(mode(Path::new(&mounts[0].host_path)), 0o777, "as its volume");
    assert!(mounts.iter().all(|mount| !mount.recursive_read_only), "the runtime cannot");
    let mounts = all_mounts(true);
    let recursive: Vec<bool> = mounts.iter().map(|mount| mount.recursive_read_only).collect();
    assert_eq!(recursive, [false, true, false, false, false]);
    let hosts = read(Path::new(&mounts[3].host_path));
    assert!(
        hosts.ends_with("10.0.0.4\tp\n\n# Entries added by HostAliases.\n10.1.2.3\tfoo\tbar\n"),
        "{hosts}"
    );
    assert_eq!(mode(Path::new(&mounts[4].host_path)), 0o666);

    let before = fs::read_link(files.join("..data")).unwrap();
    dir.prepare(&host.facts(&pod, &addresses)).unwrap();
    assert_eq!(fs::read_link(files.join("..data")).unwrap(), before, "nothing has changed");
    let other =
        host.read(&DOCUMENTS.replace("mode: fast", "mode: slow").replace("path: other", "path: third"));
    dir.prepare(&host.facts(&other, &addresses)).unwrap();
    assert_eq!((read(&files.join("a/mode")), read(&files.join("third"))), ("slow".into(), "x".into()));
    assert!(!files.join("other").exists() && !files.join(before).exists());
    dir.remove().unwrap();
    assert!(!root.exists());
    dir.remove().unwrap();
}

#[test]
fn a_missing_object_fails_a_new_volume_and_leaves_an_existing_volume_unchanged() {
    const CONFIG_MAP: &str =
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {mode: fast, 'other': x}}";
    let mut host = TestHost::new();
    let without = DOCUMENTS.replace(CONFIG_MAP, "");
    let without = without.trim_start_matches("\n\n---");
    let pod = host.read(without);
    let (dir, volumes) = (PodDir::for_pod(&pod, &host.node.pods), host.node.pods.join("u/volumes"));
    let failed = dir.prepare(&host.facts(&pod, &[])).unwrap_err();
    let message = "MountVolume.SetUp failed for volume \"files\" : configmap \"c\" not found";
    assert_eq!(failed.to_string(), message);
    assert!(!volumes.join("kubernetes.io~configmap/files").exists());
    for (data, reason) in [
        ("{mode: fast}", Some("configmap references non-existent config key: other")),
        ("{mode: fast, 'other': x}", None),
        ("{mode: slow, 'other': x}", None),
    ] {
        let objects = format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: c}}, data: {data}}}\n---\n{without}"
        );
        assert_eq!(host.read(&objects), pod, "the pod is the same, whatever the object holds");
        let prepared = dir.prepare(&host.facts(&pod, &[])).map_err(|error| error.to_string());
        match reason {
            Some(reason) => assert!(prepared.unwrap_err().ends_with(reason)),
            None => assert!(prepared.unwrap().is_empty()),
        }
    }
    let files = volumes.join("kubernetes.io~configmap/files");
    assert_eq!(read(&files.join("a/mode")), "slow");
    host.read(without);
    let outdated = dir.prepare(&host.facts(&pod, &[])).unwrap();
    assert_eq!(outdated.iter().map(ToString::to_string).collect::<Vec<_>>(), [message]);
    assert_eq!(read(&files.join("a/mode")), "slow", "the containers keep their files");
}

/// An update of a volume is completed if the process was killed after any of its steps.
#[test]
fn an_interrupted_update_of_a_volume_is_completed() {
    let mut host = TestHost::new();
    let pod = host.read(DOCUMENTS);
    let dir = PodDir::for_pod(&pod, &host.node.pods);
    dir.prepare(&host.facts(&pod, &[])).unwrap();
    let files = host.node.pods.join("u/volumes/kubernetes.io~configmap/files");
    let names = || -> Vec<String> {
        let entries = fs::read_dir(&files).unwrap();
        let mut names: Vec<_> = entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let before = names();
    // The state after a crash: the new files are in use without links, and the old files still
    // exist with a link.
    fs::remove_file(files.join("other")).unwrap();
    fs::create_dir_all(files.join("..0123456789abcdef/x")).unwrap();
    symlink("..0123456789abcdef", files.join("..data_tmp")).unwrap();
    symlink("..data/left", files.join("left")).unwrap();
    dir.prepare(&host.facts(&pod, &[])).unwrap();
    assert_eq!(names(), before);
    assert_eq!(read(&files.join("other")), "x");
}

#[test]
fn a_subpath_without_a_file_is_a_directory_that_volume_updates_keep() {
    let mut host = TestHost::new();
    let pod = host.read(DOCUMENTS);
    let dir = PodDir::for_pod(&pod, &host.node.pods);
    dir.prepare(&host.facts(&pod, &[])).unwrap();
    let files = host.node.pods.join("u/volumes/kubernetes.io~configmap/files");
    fs::create_dir(files.join("absent")).unwrap();
    let other = host.read(&DOCUMENTS.replace("mode: fast", "mode: slow"));
    dir.prepare(&host.facts(&other, &[])).unwrap();
    assert_eq!(read(&files.join("a/mode")), "slow");
    assert!(files.join("absent").is_dir());
}

#[test]
fn a_host_path_must_have_the_specified_type() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    fs::write(at("file"), "").unwrap();
    for (name, kind, expected) in [
        ("file", "File", Ok(())),
        ("file", "Directory", Err("is not a directory")),
        ("absent", "", Ok(())),
        ("absent", "File", Err("is not a file")),
        ("file", "Socket", Err("is not a socket file")),
        ("new", "DirectoryOrCreate", Ok(())),
        ("new", "Directory", Ok(())),
        ("made", "FileOrCreate", Ok(())),
        ("made", "File", Ok(())),
    ] {
        let text = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: p}}, spec: {{containers: [{{name: a, image: i}}], volumes: [{{name: v, hostPath: {{path: {}, type: '{kind}'}}}}]}}}}",
            at(name)
        );
        let (host, pod) = (TestHost::new(), play(&text).unwrap().remove(0));
        let prepared = PodDir::for_pod(&pod, &host.node.pods).prepare(&host.facts(&pod, &[]));
        match expected {
            Ok(()) => assert!(prepared.unwrap().is_empty()),
            Err(reason) => assert!(prepared.unwrap_err().to_string().ends_with(reason), "{name} {kind}"),
        }
    }
}

#[test]
fn a_uid_that_is_not_a_directory_name_removes_nothing() {
    let mut host = TestHost::new();
    let mut pod = Pod::clone(&host.read(DOCUMENTS));
    let dir = tempfile::tempdir_in(host.node.pods.parent().unwrap()).unwrap();
    let name = dir.path().file_name().unwrap().to_str().unwrap().to_owned();
    fs::create_dir(&host.node.pods).unwrap();
    for uid in [format!("../{name}"), "..".to_owned(), ".".to_owned(), String::new()] {
        pod.uid = uid;
        let directory = PodDir::for_pod(&pod, &host.node.pods);
        assert!(
            directory.prepare(&host.facts(&pod, &[])).is_err() && directory.remove().is_err(),
            "{}",
            pod.uid
        );
    }
    assert!(dir.path().is_dir() && host.node.pods.is_dir());
}

#[test]
fn files_of_new_volumes_belong_to_the_fs_group_of_the_pod() {
    if !rustix::process::geteuid().is_root() {
        return fixtures::skip::skip("groups are given by root");
    }
    let mut host = TestHost::new();
    let pod = host.read(&DOCUMENTS.replace("spec:", "spec:\n  securityContext: {fsGroup: 4242}"));
    PodDir::for_pod(&pod, &host.node.pods).prepare(&host.facts(&pod, &[])).unwrap();
    let volumes = host.node.pods.join("u/volumes");
    for (path, mode) in [
        ("kubernetes.io~empty-dir/empty", 0o2777),
        ("kubernetes.io~configmap/files", 0o2777),
        ("kubernetes.io~configmap/files/a", 0o2755),
        ("kubernetes.io~configmap/files/a/mode", 0o640),
        ("kubernetes.io~configmap/files/other", 0o644),
        ("kubernetes.io~downward-api/down", 0o3777),
    ] {
        let found = fs::metadata(volumes.join(path)).unwrap();
        assert_eq!((found.gid(), found.mode() & 0o7777), (4242, mode), "{path}");
    }
}

#[test]
fn a_host_path_is_created_without_following_a_dangling_link() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    symlink(path.join("elsewhere"), path.join("link")).unwrap();
    for kind in [HostPathKind::FileOrCreate, HostPathKind::DirectoryOrCreate] {
        assert!(volumes::host_path(&path.join("link"), kind).is_err(), "{kind:?}");
    }
    assert!(!path.join("elsewhere").exists());
    volumes::host_path(&path.join("new/deep"), HostPathKind::DirectoryOrCreate).unwrap();
    assert_eq!(fs::metadata(path.join("new/deep")).unwrap().mode() & 0o777, 0o755);
}

#[test]
fn an_empty_dir_in_memory_has_the_size_of_the_memory_limit_of_its_pod() {
    if !may_mount() {
        return fixtures::skip::skip("mounts take the right to mount");
    }
    let mut host = TestHost::new();
    let pod = host.read(
        "{apiVersion: v1, kind: Pod, metadata: {name: p, uid: u}, spec: {volumes: [{name: v, emptyDir: {medium: Memory}}],
          containers: [{name: a, image: i, resources: {limits: {memory: 8Mi}}}]}}",
    );
    let dir = PodDir::for_pod(&pod, &host.node.pods);
    let prepared = dir.prepare(&host.facts(&pod, &[]));
    let volume = host.node.pods.join("u/volumes/kubernetes.io~empty-dir/v");
    let (size, mode) = (rustix::fs::statvfs(&volume), fs::metadata(&volume).map(|found| found.mode()));
    dir.remove().unwrap();
    prepared.unwrap();
    let size = size.unwrap();
    assert_eq!((size.f_blocks * size.f_frsize, mode.unwrap() & 0o7777), (8 << 20, 0o1777));
}

#[test]
fn roots_of_file_volumes_have_the_modes_that_a_kubelet_gives_them() {
    let mut host = TestHost::new();
    let pod = host.read(
        "{apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {a: x}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a: x}}
---
{apiVersion: v1, kind: Pod, metadata: {name: p, uid: u}, spec: {containers: [{name: a, image: i}], volumes: [
  {name: c, configMap: {name: c}}, {name: s, secret: {secretName: s}}, {name: d, downwardAPI: {}},
  {name: r, projected: {sources: []}}]}}",
    );
    PodDir::for_pod(&pod, &host.node.pods).prepare(&host.facts(&pod, &[])).unwrap();
    for (path, mode) in [
        ("kubernetes.io~configmap/c", 0o777),
        ("kubernetes.io~secret/s", 0o1777),
        ("kubernetes.io~downward-api/d", 0o1777),
        ("kubernetes.io~projected/r", 0o1777),
    ] {
        let found = fs::metadata(host.node.pods.join("u/volumes").join(path)).unwrap();
        assert_eq!(found.mode() & 0o7777, mode, "{path}");
    }
}
