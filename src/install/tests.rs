//! Installs and uninstalls below a directory, with a manager of units that can fail at each step.

mod service;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use super::*;
use crate::socket::SocketPath;

const EXTRA_ARGS_UNIT: &str = "# /lib/systemd/system/kubelet.service\n[Service]\nEnvironmentFile=-/etc/default/kubelet\n\
    ExecStart=/usr/bin/kubelet $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS\n";

/// A manager that records its calls, and refuses one of them.
#[derive(Default)]
struct FakeManager {
    calls: RefCell<Vec<String>>,
    fails_at: Cell<Option<usize>>,
    /// State of the units; `None` for "inactive".
    active_state: Cell<Option<&'static str>>,
}

impl ServiceManager for FakeManager {
    fn run(&self, arguments: &[&str]) -> Result<String, ServiceManagerError> {
        let line = arguments.join(" ");
        // Queries change nothing, so they are no steps.
        match arguments {
            ["cat", _] => return Ok(EXTRA_ARGS_UNIT.to_owned()),
            ["show", "--value", "--property", "LoadState", "kubelet.service"] => {
                return Ok("loaded\n".to_owned());
            }
            ["show", "--value", "--property", "MainPID", _] => return Ok("7\n".to_owned()),
            ["show", ..] => return Ok(format!("{}\n", self.active_state.get().unwrap_or("inactive"))),
            _ => {}
        }
        let mut calls = self.calls.borrow_mut();
        calls.push(line.clone());
        if self.fails_at.get() == Some(calls.len()) {
            return Err(ServiceManagerError::Failed { arguments: line, message: "killed".to_owned() });
        }
        Ok(String::new())
    }
}

/// A node whose files are below a directory.
struct TestNode {
    root: TempDir,
    paths: Paths,
    manager: FakeManager,
}

impl TestNode {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("etc/default/kubelet", "KUBELET_EXTRA_ARGS=-v=2\n");
        write(
            "var/lib/kubelet/config.yaml",
            "containerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n",
        );
        // Disabled, so that nothing waits for the kubelet.
        write("proc/7/cmdline", "kubelet\0--config=/var/lib/kubelet/config.yaml\0--healthz-port=0\0");
        fs::create_dir_all(root.path().join("etc/systemd/system")).unwrap();
        let paths = Paths::below(root.path());
        Self { root, paths, manager: FakeManager::default() }
    }

    /// Returns the content and the mode of each file, and the mode of each directory.
    fn tree(&self) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
        let (mut found, mut dirs) = (BTreeMap::new(), vec![self.root.path().to_owned()]);
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                let meta = fs::symlink_metadata(&path).unwrap();
                let content = if meta.is_dir() { Vec::new() } else { fs::read(&path).unwrap() };
                if meta.is_dir() {
                    dirs.push(path.clone());
                }
                found.insert(path, (meta.permissions().mode(), content));
            }
        }
        found
    }

    /// Installs with the kubelet, without the checks, which need a running one.
    async fn install(&self) -> Result<(), InstallError> {
        self.install_with(&|_| {}).await
    }

    /// Installs, and reports each change.
    async fn install_with(&self, report: &dyn Fn(&str)) -> Result<(), InstallError> {
        let plan = self.plan().await?;
        let installer = Installer { paths: &self.paths, manager: &self.manager, report };
        installer.install(&plan)?;
        installer.switch_kubelet(&plan).await.map(drop)
    }

    async fn plan(&self) -> Result<InstallPlan, InstallError> {
        let options = InstallOptions { upstream: None, kubelet: true, confirm_within: Duration::ZERO };
        let program = self.root.path().join("etc/default/kubelet");
        InstallPlan::new(options, program, &self.paths, &self.manager).await
    }

    async fn uninstall(&self) -> Result<(), InstallError> {
        Uninstaller { paths: &self.paths, manager: &self.manager, report: &|_| {} }.uninstall(true).await
    }

    /// Refuses the nth step from now on.
    fn fail_at(&self, step: Option<usize>) {
        self.manager.calls.borrow_mut().clear();
        self.manager.fails_at.set(step);
    }

    fn drop_in(&self) -> PathBuf {
        self.paths.at(Paths::kubelet_drop_in("kubelet.service"))
    }
}

#[tokio::test]
async fn an_uninstallation_leaves_the_tree_as_it_was_after_an_installation_that_was_interrupted_anywhere() {
    let node = TestNode::new();
    let before = node.tree();
    node.install().await.unwrap();
    let (installed, steps) = (node.tree(), node.manager.calls.borrow().len());
    assert!(steps > 5, "{:?}", node.manager.calls);
    node.uninstall().await.unwrap();
    assert_eq!(node.tree(), before);
    for step in 1..=steps {
        node.fail_at(Some(step));
        node.install().await.unwrap_err();
        node.fail_at(None);
        // A repetition completes the installation.
        node.install().await.unwrap();
        assert_eq!(node.tree(), installed, "after step {step}");
        node.uninstall().await.unwrap();
        assert_eq!(node.tree(), before, "after step {step}");
        node.fail_at(Some(step));
        node.install().await.unwrap_err();
        node.fail_at(None);
        node.uninstall().await.unwrap();
        assert_eq!(node.tree(), before, "after step {step}");
    }
}

#[tokio::test]
async fn an_uninstallation_that_was_interrupted_anywhere_can_be_repeated() {
    let node = TestNode::new();
    let before = node.tree();
    node.install().await.unwrap();
    node.fail_at(None);
    node.uninstall().await.unwrap();
    let steps = node.manager.calls.borrow().len();
    for step in 1..=steps {
        node.fail_at(None);
        node.install().await.unwrap();
        node.fail_at(Some(step));
        // The last steps may fail without a consequence: systemd has forgotten the unit already.
        let _ = node.uninstall().await;
        node.fail_at(None);
        node.uninstall().await.unwrap();
        assert_eq!(node.tree(), before, "after step {step}");
    }
}

#[tokio::test]
async fn the_timer_that_reverts_the_kubelet_runs_before_the_kubelet_is_changed() {
    let node = TestNode::new();
    node.install().await.unwrap();
    let calls = node.manager.calls.borrow().clone();
    let at = |line: &str| {
        calls.iter().position(|call| call == line).unwrap_or_else(|| panic!("{line}: {calls:?}"))
    };
    assert!(at("restart probeshim-revert.timer") < at("restart kubelet.service"));
    // The drop-in is written between the two.
    node.uninstall().await.unwrap();
    node.fail_at(Some(at("restart probeshim-revert.timer") + 1));
    node.install().await.unwrap_err();
    assert!(!node.drop_in().exists());
}

#[tokio::test]
async fn a_change_is_confirmed_once_and_not_after_it_was_reverted() {
    let node = TestNode::new();
    let confirmed = || confirm(&node.paths, &node.manager);
    assert!(matches!(confirmed(), Err(InstallError::NothingToConfirm)));
    node.install().await.unwrap();
    assert_eq!(switch_state(&node.paths).unwrap(), Some(Confirmation::Awaited));
    confirmed().unwrap();
    assert_eq!(switch_state(&node.paths).unwrap(), Some(Confirmation::Confirmed));
    confirmed().unwrap();
    // As the bypass does.
    fs::remove_file(node.drop_in()).unwrap();
    assert!(matches!(confirmed(), Err(InstallError::Reverted)));
    assert_eq!(switch_state(&node.paths).unwrap(), Some(Confirmation::Reverted));
}

#[tokio::test]
async fn a_second_installation_keeps_the_runtime_of_the_first_although_the_kubelet_uses_probeshim() {
    let node = TestNode::new();
    node.install().await.unwrap();
    let line =
        "kubelet\0--container-runtime-endpoint=unix:///run/probeshim/probeshim.sock\0--healthz-port=0\0";
    fs::write(node.root.path().join("proc/7/cmdline"), line).unwrap();
    let plan = node.plan().await.unwrap();
    assert_eq!(plan.upstream, SocketPath::parse("/run/containerd/containerd.sock").unwrap());
    assert_eq!(plan.listen, SocketPath::parse("/run/probeshim/probeshim.sock").unwrap());
}

#[tokio::test]
async fn a_program_that_another_installation_wrote_is_neither_replaced_nor_removed() {
    let node = TestNode::new();
    let program = node.paths.at(Paths::program());
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    fs::write(&program, "another").unwrap();
    let error = node.plan().await.unwrap_err().to_string();
    assert!(error.starts_with("/usr/local/bin/probeshim is another program"), "{error}");
    fs::copy(node.root.path().join("etc/default/kubelet"), &program).unwrap();
    node.install().await.unwrap();
    node.uninstall().await.unwrap();
    assert!(program.exists());
}

#[tokio::test]
async fn a_dry_run_shows_each_file_with_its_content_and_changes_nothing() {
    let node = TestNode::new();
    let before = node.tree();
    let text = node.plan().await.unwrap().describe(&node.paths, &node.manager).unwrap();
    assert_eq!(node.tree(), before);
    assert!(node.manager.calls.borrow().is_empty());
    for line in [
        "write /etc/systemd/system/probeshim.socket",
        "write /etc/systemd/system/kubelet.service.d/zz-probeshim.env",
        "    KUBELET_EXTRA_ARGS=\"-v=2 --container-runtime-endpoint=unix:///run/probeshim/probeshim.sock\"",
        "systemctl restart kubelet.service",
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line:?} is missing:\n{text}");
    }
}

#[tokio::test]
async fn a_dry_run_shows_exactly_what_an_installation_then_does() {
    let node = TestNode::new();
    let uses_probeshim =
        "kubelet\0--container-runtime-endpoint=unix:///run/probeshim/probeshim.sock\0--healthz-port=0\0";
    let assert_equal = async |last: &str| {
        node.fail_at(None);
        let text = node.plan().await.unwrap().describe(&node.paths, &node.manager).unwrap();
        let shown = |prefix: &str| {
            let shown = text.lines().filter_map(|line| line.strip_prefix(prefix)).map(str::to_owned);
            shown.collect::<Vec<String>>()
        };
        let reports = RefCell::new(Vec::new());
        node.install_with(&|line| reports.borrow_mut().push(line.to_owned())).await.unwrap();
        assert_eq!(shown("systemctl "), *node.manager.calls.borrow(), "{text}");
        assert_eq!(shown("systemctl ").last().map(String::as_str), Some(last), "{text}");
        let mut written = shown("write ");
        assert!(written.remove(0).starts_with("/var/lib/probeshim/install.json, "), "{text}");
        if shown("copy ").len() == 1 {
            written.insert(0, Paths::program().display().to_string());
        }
        let reported = reports.into_inner().into_iter();
        let reported = reported.filter_map(|line| line.strip_prefix("wrote ").map(str::to_owned));
        assert_eq!(written, reported.collect::<Vec<String>>(), "{text}");
        shown("systemctl ")
    };
    // The first installation.
    let shown = assert_equal("restart kubelet.service").await;
    assert!(shown.contains(&"enable probeshim-revert.timer".to_owned()), "{shown:?}");
    assert!(shown.contains(&"start --no-block probeshim.service".to_owned()), "{shown:?}");
    // The kubelet uses probeshim, and the change is confirmed.
    fs::write(node.root.path().join("proc/7/cmdline"), uses_probeshim).unwrap();
    confirm(&node.paths, &node.manager).unwrap();
    node.manager.active_state.set(Some("active"));
    assert_equal("enable probeshim.service").await;
    // Another program.
    fs::write(node.root.path().join("etc/default/kubelet"), "KUBELET_EXTRA_ARGS=-v=2\n\n").unwrap();
    assert_equal("reload probeshim.service").await;
    // Units that have failed, and a kubelet that was pointed back.
    node.manager.active_state.set(Some("failed"));
    fs::remove_file(node.drop_in()).unwrap();
    let shown = assert_equal("restart kubelet.service").await;
    assert!(shown.contains(&"reset-failed probeshim.socket".to_owned()), "{shown:?}");
}

#[tokio::test]
async fn a_state_directory_with_mounts_is_not_purged() {
    let node = TestNode::new();
    node.install().await.unwrap();
    fs::create_dir_all(node.root.path().join("proc/self")).unwrap();
    let mounts = "tmpfs /var/lib/probeshim/pods/1/volumes/a tmpfs rw 0 0\n";
    fs::write(node.root.path().join("proc/self/mounts"), mounts).unwrap();
    let error = node.uninstall().await.unwrap_err().to_string();
    assert!(error.starts_with("/var/lib/probeshim has mounts below it"), "{error}");
    assert!(node.drop_in().exists(), "nothing was removed");
    assert!(is_installed(&node.paths));
    assert!(!is_installed(&Paths::below(Path::new("/nonexistent"))));
}
