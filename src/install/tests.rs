//! Installs and uninstalls below a directory, with a manager of units that can fail at each step.

mod manager;
mod plan;
mod service;
mod trial;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use manager::{FakeManager, KillPoint};
use tempfile::TempDir;

use super::*;
use crate::socket::SocketPath;

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
        for dir in ["etc/systemd/system", "run", "var/lib"] {
            fs::create_dir_all(root.path().join(dir)).unwrap();
        }
        let paths = Paths::below(root.path());
        let manager = FakeManager::new(paths.clone());
        Self { root, paths, manager }
    }

    /// Returns the content and the mode of each file, and the mode of each directory, without those
    /// in memory. The command line of the kubelet is one of the files.
    fn tree(&self) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
        let dirs = ["etc", "proc", "usr", "var"].map(|dir| self.root.path().join(dir));
        let mut dirs: Vec<PathBuf> = dirs.into_iter().filter(|dir| dir.exists()).collect();
        let mut found = BTreeMap::new();
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
        installer.switch_kubelet(&plan).map(drop)
    }

    async fn plan(&self) -> Result<InstallPlan, InstallError> {
        self.plan_with(|_| {}).await
    }

    async fn dry_run(&self) -> String {
        let plan = self.plan_with(|options| options.dry_run = true).await.unwrap();
        plan.describe(&self.paths, &self.manager).unwrap()
    }

    async fn plan_with(&self, change: impl FnOnce(&mut InstallOptions)) -> Result<InstallPlan, InstallError> {
        let mut options =
            InstallOptions { upstream: None, kubelet: true, confirm_within: Duration::ZERO, dry_run: false };
        change(&mut options);
        let program = self.root.path().join("etc/default/kubelet");
        InstallPlan::new(options, program, &self.paths, &self.manager).await
    }

    async fn uninstall(&self) -> Result<(), InstallError> {
        self.uninstall_with(true).await
    }

    async fn uninstall_with(&self, purge: bool) -> Result<(), InstallError> {
        Uninstaller { paths: &self.paths, manager: &self.manager, report: &|_| {} }.uninstall(purge).await
    }

    /// Kills the process at the nth step from now on.
    fn kill_at(&self, step: Option<(usize, KillPoint)>) {
        self.manager.steps.borrow_mut().clear();
        self.manager.killed_at.set(step);
    }

    fn kubelet_uses_probeshim(&self) -> bool {
        let line = fs::read_to_string(self.root.path().join("proc/7/cmdline")).unwrap();
        line.contains("unix:///run/probeshim/probeshim.sock")
    }

    fn lose_record_and_units(&self) {
        fs::remove_dir_all(self.paths.at(Paths::state())).unwrap();
        for unit in InstalledUnit::ALL {
            fs::remove_file(self.paths.at(Paths::unit(unit))).unwrap();
        }
    }

    fn drop_in(&self) -> PathBuf {
        self.paths.at(Paths::kubelet_drop_in("kubelet.service"))
    }
}

/// Returns each point at which a number of steps can be interrupted.
fn kill_points(steps: usize) -> impl Iterator<Item = (usize, KillPoint)> {
    (1..=steps).flat_map(|step| [(step, KillPoint::Before), (step, KillPoint::After)])
}

#[tokio::test]
async fn an_uninstallation_leaves_the_tree_as_it_was_after_an_installation_that_was_interrupted_anywhere() {
    let node = TestNode::new();
    let before = node.tree();
    node.install().await.unwrap();
    assert!(node.kubelet_uses_probeshim());
    let (installed, steps) = (node.tree(), node.manager.steps.borrow().len());
    assert!(steps > 5, "{:?}", node.manager.steps);
    node.uninstall().await.unwrap();
    assert_eq!(node.tree(), before);
    for point in kill_points(steps) {
        node.kill_at(Some(point));
        node.install().await.unwrap_err();
        node.kill_at(None);
        // A repetition completes the installation.
        node.install().await.unwrap();
        assert_eq!(node.tree(), installed, "after {point:?}");
        node.uninstall().await.unwrap();
        assert_eq!(node.tree(), before, "after {point:?}");
        node.kill_at(Some(point));
        node.install().await.unwrap_err();
        node.kill_at(None);
        node.uninstall().await.unwrap();
        assert_eq!(node.tree(), before, "after {point:?}");
    }
}

#[tokio::test]
async fn an_uninstallation_that_was_interrupted_anywhere_can_be_repeated_or_followed_by_an_installation() {
    let node = TestNode::new();
    let before = node.tree();
    node.install().await.unwrap();
    let installed = node.tree();
    node.kill_at(None);
    node.uninstall().await.unwrap();
    let steps = node.manager.steps.borrow().len();
    for point in kill_points(steps) {
        for installs_again in [false, true] {
            node.kill_at(None);
            node.install().await.unwrap();
            node.kill_at(Some(point));
            // The last steps may fail without a consequence: systemd has forgotten the unit
            // already.
            let _ = node.uninstall().await;
            node.kill_at(None);
            if installs_again {
                node.install().await.unwrap();
                assert_eq!(node.tree(), installed, "after {point:?}");
            }
            node.uninstall().await.unwrap();
            assert_eq!(node.tree(), before, "after {point:?}");
        }
    }
}

#[tokio::test]
async fn an_uninstallation_with_a_lost_record_leaves_the_tree_as_it_was() {
    let node = TestNode::new();
    let before = node.tree();
    node.install().await.unwrap();
    fs::remove_file(node.paths.at(Paths::record())).unwrap();
    node.uninstall().await.unwrap();
    assert_eq!(node.tree(), before);
    // The state directory is lost too.
    node.install().await.unwrap();
    fs::remove_dir_all(node.paths.at(Paths::state())).unwrap();
    node.uninstall().await.unwrap();
    assert_eq!(node.tree(), before);
}

#[tokio::test]
async fn an_uninstallation_without_record_and_units_points_the_kubelet_back() {
    let node = TestNode::new();
    node.install().await.unwrap();
    node.lose_record_and_units();
    assert!(is_installed(&node.paths));
    node.uninstall().await.unwrap();
    assert!(!node.kubelet_uses_probeshim());
}

#[tokio::test]
async fn an_installation_with_a_lost_record_keeps_the_runtime_and_writes_the_record_again() {
    let node = TestNode::new();
    node.install().await.unwrap();
    confirm(&node.paths, &node.manager).unwrap();
    let installed = node.tree();
    fs::remove_dir_all(node.paths.at(Paths::state())).unwrap();
    assert_eq!(switch_state(&node.paths).unwrap(), Some(Confirmation::Confirmed));
    assert!(node.kubelet_uses_probeshim());
    node.install().await.unwrap();
    assert_eq!(node.tree(), installed);
}

#[tokio::test]
async fn an_upstream_that_is_a_socket_of_probeshim_is_refused() {
    let node = TestNode::new();
    let before = node.tree();
    for upstream in ["/run/probeshim/probeshim.sock", "/run/probeshim/run/crio/crio.sock"] {
        let upstream = SocketPath::parse(upstream).unwrap();
        let plan = node.plan_with(|options| options.upstream = Some(upstream.clone())).await;
        let error = plan.unwrap_err().to_string();
        assert!(error.starts_with(&format!("{upstream} is a socket of probeshim itself")), "{error}");
    }
    assert_eq!(node.tree(), before);
    // The kubelet uses a socket of probeshim, and nothing else of the installation is left.
    node.install().await.unwrap();
    node.lose_record_and_units();
    let error = node.plan().await.unwrap_err().to_string();
    assert!(error.starts_with("unix:///run/probeshim/probeshim.sock is a socket of probeshim"), "{error}");
    let findings = diagnose(&node.paths, &node.manager).await.unwrap();
    let failed: Vec<&str> = findings
        .iter()
        .filter(|finding| finding.state == FindingState::Failed)
        .map(|finding| finding.check)
        .collect();
    assert!(failed.contains(&"runtime") && failed.contains(&"installation"), "{findings:?}");
}

#[tokio::test]
async fn the_diagnosis_of_an_installation_with_a_lost_record_examines_its_units() {
    let node = TestNode::new();
    node.install().await.unwrap();
    fs::remove_file(node.paths.at(Paths::record())).unwrap();
    let findings = diagnose(&node.paths, &node.manager).await.unwrap();
    let detail = |check: &str| {
        let found = findings.iter().find(|finding| finding.check == check);
        &*found.unwrap_or_else(|| panic!("{check}: {findings:?}")).detail
    };
    assert_eq!(
        detail("record"),
        "/var/lib/probeshim/install.json is lost; the unit of the service has a copy"
    );
    assert_eq!(detail("units"), "as this program writes them");
    assert!(detail("kubelet endpoint").starts_with("the change is not confirmed"));
}

#[tokio::test]
async fn an_uninstallation_does_not_start_a_kubelet_that_was_stopped() {
    let node = TestNode::new();
    node.install().await.unwrap();
    node.manager.kubelet_state.set("inactive");
    node.uninstall().await.unwrap();
    assert_eq!(node.manager.kubelet_state.get(), "inactive");
    node.manager.start_kubelet();
    // One that has failed may have failed because of probeshim.
    node.install().await.unwrap();
    node.manager.kubelet_state.set("failed");
    node.uninstall().await.unwrap();
    assert_eq!(node.manager.kubelet_state.get(), "active");
}

#[tokio::test]
async fn an_installation_that_was_killed_while_it_wrote_its_record_can_be_removed() {
    let node = TestNode::new();
    let before = node.tree();
    let state = node.paths.at(Paths::state());
    fs::create_dir(&state).unwrap();
    assert!(is_installed(&node.paths), "the directory of the record");
    node.uninstall_with(false).await.unwrap();
    assert_eq!(node.tree(), before);
    fs::create_dir(&state).unwrap();
    fs::write(state.join(".install.json.new"), "{").unwrap();
    assert!(is_installed(&node.paths), "an incomplete record");
    node.uninstall_with(false).await.unwrap();
    assert_eq!(node.tree(), before);
    assert!(!is_installed(&node.paths));
}

#[tokio::test]
async fn the_timer_that_reverts_the_kubelet_runs_before_the_kubelet_is_changed() {
    let node = TestNode::new();
    node.install().await.unwrap();
    let calls = node.manager.steps.borrow().clone();
    let at = |line: &str| {
        calls.iter().position(|call| call == line).unwrap_or_else(|| panic!("{line}: {calls:?}"))
    };
    assert!(at("restart probeshim-revert.timer") < at("restart kubelet.service"));
    // The drop-in is written between the two.
    node.uninstall().await.unwrap();
    node.kill_at(Some((at("restart probeshim-revert.timer") + 1, KillPoint::Before)));
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
    node.manager.bypass();
    assert!(matches!(confirmed(), Err(InstallError::Reverted)));
    assert_eq!(switch_state(&node.paths).unwrap(), Some(Confirmation::Reverted));
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
