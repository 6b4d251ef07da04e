//! subPaths of volumes that change while they are looked up.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use rustix::fs::{CWD, Mode, RenameFlags, mkfifoat, renameat_with};

use super::*;
use crate::kubelet::pod_dir::mountinfo::{mounted_below, mounts};

/// Returns the manifest of a pod with a volume of each kind, and one container with these
/// volumeMounts.
fn pod_with(volume_mounts: &str) -> String {
    format!(
        "
{{apiVersion: v1, kind: ConfigMap, metadata: {{name: c}}, data: {{key: config, other: more}}}}
---
{{apiVersion: v1, kind: Secret, metadata: {{name: s}}, stringData: {{key: secret}}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: p, uid: u, labels: {{app: web}}}}
spec:
  containers:
  - {{name: main, image: i, env: [{{name: UP, value: ../..}}, {{name: ROOT, value: /etc}}, {{name: EMPTY, value: ''}}], volumeMounts: [{volume_mounts}]}}
  volumes:
  - {{name: empty, emptyDir: {{}}}}
  - {{name: config, configMap: {{name: c, items: [{{key: key, path: key}}, {{key: other, path: dir/other}}]}}}}
  - {{name: secret, secret: {{secretName: s}}}}
  - {{name: projected, projected: {{sources: [{{configMap: {{name: c}}}}, {{downwardAPI: {{items: [{{path: labels, fieldRef: {{fieldPath: metadata.labels}}}}]}}}}]}}}}
"
    )
}

/// A pod with prepared volumes.
struct PreparedPod {
    host: TestHost,
    pod: Pod,
    dir: PodDir,
    binds: bool,
}

impl PreparedPod {
    fn new(volume_mounts: &str) -> Self {
        let mut host = TestHost::new();
        let pod = Pod::clone(&host.read(&pod_with(volume_mounts)));
        let dir = PodDir::for_pod(&pod, &host.node.pods);
        dir.prepare(&host.facts(&pod, &[])).unwrap();
        // Without the right to mount, the runtime gets paths.
        Self { host, pod, dir, binds: may_mount() }
    }

    fn volume(&self) -> PathBuf {
        self.host.node.pods.join("u/volumes/kubernetes.io~empty-dir/empty")
    }

    /// Returns the host paths of the container's volumeMounts.
    fn mounts(&self) -> Result<Vec<PathBuf>, VolumeError> {
        let (container, facts) = (&self.pod.containers[0], self.host.facts(&self.pod, &[]));
        let variables = crate::kubelet::cri_config::variables(container, &facts, &no_file).unwrap();
        let options = MountOptions { binds: self.binds, ..MountOptions::default() };
        let mounts = self.dir.mounts(container, &facts, &variables, &options)?;
        Ok(mounts.into_iter().take(container.mounts.len()).map(|mount| mount.host_path.into()).collect())
    }

    fn mounted(&self) -> Vec<PathBuf> {
        mounted_below(&self.host.node.pods).unwrap()
    }
}

/// An attack: one container repeatedly exchanges a directory of its volume for a link to a
/// directory of the host, while the subPath of another container is prepared.
#[test]
fn no_subpath_leads_out_of_its_volume_while_a_container_exchanges_directories_for_links() {
    let deep = format!("a{}", "/b".repeat(300));
    let prepared = PreparedPod::new(&format!("{{name: empty, mountPath: /m, subPath: {deep}}}"));
    let (volume, outside) = (prepared.volume(), prepared.host.node.pods.with_file_name("outside"));
    fs::create_dir(volume.join("a")).unwrap();
    fs::create_dir_all(outside.join("b")).unwrap();
    let private = fs::Permissions::from_mode(0o700);
    fs::set_permissions(outside.join("b"), private).unwrap();
    symlink(&outside, volume.join(".l")).unwrap();
    // Descriptors stay valid while the names are exchanged.
    let (inside, directory) = (File::open(volume.join("a")).unwrap(), File::open(&volume).unwrap());
    let (over, exchanges) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                renameat_with(&directory, "a", &directory, ".l", RenameFlags::EXCHANGE).unwrap();
                exchanges.fetch_add(1, Ordering::Relaxed);
            }
        });
        while exchanges.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let (mut attempts, mut mounted) = (0, 0);
            while attempts < 300 || mounted == 0 {
                attempts += 1;
                match prepared.mounts() {
                    Ok(paths) => {
                        mounted += 1;
                        check_inside(&prepared, &paths[0]);
                    }
                    Err(error) => {
                        let details = error.details().unwrap_or_default();
                        let expected =
                            ["leads out of its volume", "File exists", "No such file or directory"];
                        assert!(expected.iter().any(|it| details.contains(it)), "{error}: {details}");
                    }
                }
                removal::remove(inside.as_fd(), OsStr::new("b")).unwrap();
                let found = fs::metadata(outside.join("b")).unwrap();
                assert_eq!(
                    found.mode() & 0o7777,
                    0o700,
                    "the mode of a directory of the host has been changed"
                );
                assert_eq!(
                    fs::read_dir(outside.join("b")).unwrap().count(),
                    0,
                    "something was made on the host"
                );
            }
        }));
        over.store(true, Ordering::Relaxed);
        found.unwrap();
    });
    prepared.dir.remove().unwrap();
    assert_eq!(prepared.mounted(), Vec::<PathBuf>::new());
    assert!(outside.join("b").is_dir());
}

/// Checks that a path, as a container would see it, is in the volume.
fn check_inside(prepared: &PreparedPod, path: &Path) {
    if !prepared.binds {
        return assert!(path.starts_with(prepared.volume()), "{}", path.display());
    }
    let all = mounts(None).unwrap();
    let mount = all.iter().rfind(|mount| mount.point == path).expect("it is mounted");
    let below = prepared.volume().strip_prefix(prepared.host.node.pods.parent().unwrap()).unwrap().to_owned();
    let root = mount.root.display().to_string();
    assert!(root.contains(&format!("/{}/", below.display())), "{root}");
}

#[test]
fn subpaths_are_found_through_the_links_of_configmap_secret_and_projected_volumes() {
    let prepared = PreparedPod::new(
        "{name: config, mountPath: /0, subPath: key}, {name: config, mountPath: /1, subPath: ..data/key}, \
         {name: config, mountPath: /2, subPath: dir}, {name: config, mountPath: /3, subPath: dir/other}, \
         {name: secret, mountPath: /4, subPath: key}, {name: projected, mountPath: /5, subPath: labels}, \
         {name: projected, mountPath: /6, subPath: key}, {name: config, mountPath: /7}",
    );
    let paths = prepared.mounts().unwrap();
    let contents: Vec<String> = [0, 1, 3, 4, 5, 6].map(|index: usize| read(&paths[index])).into();
    assert_eq!(contents, ["config", "config", "more", "secret", "app=\"web\"", "config"]);
    assert_eq!(read(&paths[2].join("other")), "more");
    if prepared.binds {
        let expected = |index: usize, volume: &str| {
            prepared
                .host
                .node
                .pods
                .join("u/volume-subpaths")
                .join(volume)
                .join("main")
                .join(index.to_string())
        };
        assert_eq!(paths[3], expected(3, "config"), "as the kubelet");
        assert_eq!(paths[5], expected(5, "projected"));
        assert_eq!(prepared.mounted().len(), 7);
        // An update of a volume does not change the files of running containers, as in the kubelet.
        let pod = Pod { labels: [("app".to_owned(), "other".to_owned())].into(), ..prepared.pod.clone() };
        prepared.dir.prepare(&prepared.host.facts(&pod, &[])).unwrap();
        assert_eq!(read(&paths[5]), "app=\"web\"");
    }
    prepared.dir.remove().unwrap();
    assert_eq!(prepared.mounted(), Vec::<PathBuf>::new());
    assert!(!prepared.host.node.pods.join("u").exists());
}

#[test]
fn a_subpath_may_be_any_kind_of_file_in_its_volume() {
    let prepared = PreparedPod::new(
        "{name: empty, mountPath: /f, subPath: file}, {name: empty, mountPath: /p, subPath: pipe}, {name: empty, mountPath: /n, subPath: new/dir}",
    );
    fs::write(prepared.volume().join("file"), "content").unwrap();
    // The FIFO has no reader. The lookup must not block.
    mkfifoat(CWD, prepared.volume().join("pipe"), Mode::RWXU).unwrap();
    let paths = prepared.mounts().unwrap();
    assert_eq!(read(&paths[0]), "content");
    let found = [1, 2].map(|index: usize| fs::metadata(&paths[index]).unwrap());
    assert!(!found[0].is_file() && !found[0].is_dir() && found[1].is_dir());
    assert_eq!(found[1].mode() & 0o777, 0o777, "as its volume");
    // A file that a container writes at a subPath is in the volume.
    fs::write(paths[2].join("written"), "x").unwrap();
    assert_eq!(read(&prepared.volume().join("new/dir/written")), "x");
    // The next instance gets the same paths, on its own mounts.
    fs::remove_file(prepared.volume().join("file")).unwrap();
    fs::create_dir(prepared.volume().join("file")).unwrap();
    let again = prepared.mounts().unwrap();
    assert_eq!(again, paths);
    assert!(again[0].is_dir());
    prepared.dir.remove().unwrap();
}

#[test]
fn existing_links_lead_no_subpath_out_of_its_volume() {
    let outside = tempfile::tempdir().unwrap();
    fs::create_dir(outside.path().join("b")).unwrap();
    let [created, prepared] = ["create subPath directory", "prepare subPath"]
        .map(|action| format!("failed to {action} for volumeMount \"empty\" of container \"main\""));
    let leads_out = Some("leads out of its volume");
    for (link, sub_path, expected, details) in [
        (outside.path().to_owned(), "subPath: l/b", &*prepared, leads_out),
        (outside.path().to_owned(), "subPath: l/new", &*created, leads_out),
        ("../../..".into(), "subPath: l", &*prepared, leads_out),
        ("../../../new".into(), "subPath: l", &*created, leads_out),
        ("nowhere".into(), "subPath: l/new", &*created, Some("File exists")),
        ("/nowhere".into(), "subPath: l", &*created, leads_out),
        ("/proc/self/root".into(), "subPath: l/etc", &*prepared, leads_out),
        (
            "x".into(),
            "subPathExpr: $(UP)/new",
            "unable to provision SubPath `../../new`: must not contain '..'",
            None,
        ),
        ("x".into(), "subPathExpr: $(ROOT)", "error SubPath `/etc` must not be an absolute path", None),
        ("x".into(), "subPathExpr: $(NO)/$(EMPTY)/$(A)$(UP)", "missing value for A, EMPTY, NO", None),
    ] {
        let prepared = PreparedPod::new(&format!("{{name: empty, mountPath: /m, {sub_path}}}"));
        symlink(&link, prepared.volume().join("l")).unwrap();
        let error = prepared.mounts().unwrap_err();
        assert_eq!(error.to_string(), expected, "{link:?} {sub_path}");
        let withheld = error.details();
        assert_eq!(withheld.is_some(), details.is_some(), "{withheld:?}");
        assert!(withheld.unwrap_or_default().contains(details.unwrap_or_default()), "{link:?} {sub_path}");
        assert_eq!(prepared.mounted(), Vec::<PathBuf>::new());
    }
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    let prepared = PreparedPod::new("{name: empty, mountPath: /m, subPath: l/new}");
    fs::create_dir(prepared.volume().join("inner")).unwrap();
    symlink("inner", prepared.volume().join("l")).unwrap();
    prepared.mounts().unwrap();
    assert!(prepared.volume().join("inner/new").is_dir(), "a link that stays in the volume is followed");
    prepared.dir.remove().unwrap();
    let prepared = PreparedPod::new("{name: empty, mountPath: /m, subPathExpr: $$(NO)}");
    prepared.mounts().unwrap();
    assert!(prepared.volume().join("$(NO)").is_dir(), "this names no variable");
    prepared.dir.remove().unwrap();
}

/// After SIGKILL, the next run knows an orphan only by its uid.
#[test]
fn subpath_mounts_of_an_earlier_run_are_unmounted_by_the_next_run() {
    let prepared = PreparedPod::new(
        "{name: empty, mountPath: /f, subPath: dir}, {name: config, mountPath: /g, subPath: key}",
    );
    if !prepared.binds {
        return fixtures::skip::skip("mounts take the right to mount");
    }
    let paths = prepared.mounts().unwrap();
    let targets = prepared.dir.subpath_targets(&prepared.pod, &prepared.pod.containers[0]);
    assert_eq!(targets, paths, "what is recorded is what is mounted");
    let next = PodDir::for_pod(&prepared.pod, &prepared.host.node.pods);
    next.release("other").unwrap();
    assert_eq!(prepared.mounted().len(), 2, "another container has nothing to do with them");
    next.release("main").unwrap();
    assert_eq!(prepared.mounted(), Vec::<PathBuf>::new());
    next.release("main").unwrap();
    // If the pod's directory has moved, mounts are found by their recorded mount points.
    prepared.mounts().unwrap();
    for target in &targets {
        unmount_stale(target).unwrap();
        unmount_stale(target).unwrap();
    }
    assert_eq!(prepared.mounted(), Vec::<PathBuf>::new());
    // The removal of an orphan unmounts its subPaths.
    prepared.mounts().unwrap();
    let orphan =
        Pod::identity_only(["n", "p", "u"].map(str::to_owned), crate::manifest::pod::PodOrigin::Orphan);
    PodDir::for_pod(&orphan, &prepared.host.node.pods).remove().unwrap();
    assert!(prepared.mounted().is_empty() && !prepared.host.node.pods.join("u").exists());
}

#[test]
fn a_mount_that_is_in_use_keeps_its_pod_from_being_removed() {
    let prepared = PreparedPod::new("{name: empty, mountPath: /f, subPath: dir}");
    if !prepared.binds {
        return fixtures::skip::skip("mounts take the right to mount");
    }
    let path = prepared.mounts().unwrap().remove(0);
    fs::write(path.join("file"), "content").unwrap();
    let in_use = File::open(path.join("file")).unwrap();
    let error = prepared.dir.remove().unwrap_err();
    assert!(matches!(error, VolumeError::StillMounted { .. }), "{error}");
    assert_eq!(read(&path.join("file")), "content");
    assert!(prepared.mounts().is_err(), "nothing is made for a pod that is being removed");
    drop(in_use);
    prepared.dir.remove().unwrap();
    assert!(prepared.mounted().is_empty() && !prepared.host.node.pods.join("u").exists());
}
