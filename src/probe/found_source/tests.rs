//! Tests of the search for the kubelet.

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
    let expected = "the process kubelet (pid 21) is ignored, because its runtime endpoint unix:///other is neither \
                    the runtime nor probeshim";
    assert_eq!(look.ignored, [expected]);

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
        let kubelet = KubeletProcess::find(proc.path(), 1).0.remove(0);
        kubeconfig_of(&kubelet, &mut NodeKubeconfigs::default()).unwrap().problem.unwrap()
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

#[test]
fn few_ignored_processes_are_described_and_those_of_root_come_first() {
    let proc = FakeProc::new();
    let mut look = look_at(&proc);
    (11..15).for_each(|pid| proc.add(pid, "kubelet", 1000, "pid:[1]", &["kubelet"]));
    proc.add(30, "kubelet", 0, "pid:[2]", &["kubelet"]);
    look.look();
    assert_eq!(pid(&look), None);
    let expected = [
        "the process kubelet (pid 30) is ignored, because it is in another pid namespace than probeshim",
        "the process kubelet (pid 11) is ignored, because root has not started it",
        "the process kubelet (pid 12) is ignored, because root has not started it",
        "2 more processes of this name are ignored",
    ];
    assert_eq!(look.ignored, expected);
}
