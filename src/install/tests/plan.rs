//! Plans of installations.

use fixtures::authority::Authority;

use super::*;

#[tokio::test]
async fn a_second_installation_keeps_the_runtime_of_the_first_although_the_kubelet_uses_probeshim() {
    let node = TestNode::new();
    node.install().await.unwrap();
    assert!(node.kubelet_uses_probeshim());
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
    let text = node.dry_run().await;
    assert_eq!(node.tree(), before);
    assert!(node.manager.steps.borrow().is_empty());
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
    let assert_equal = async |last: &str| {
        node.kill_at(None);
        let text = node.dry_run().await;
        let shown = |prefix: &str| {
            let shown = text.lines().filter_map(|line| line.strip_prefix(prefix)).map(str::to_owned);
            shown.collect::<Vec<String>>()
        };
        let reports = RefCell::new(Vec::new());
        node.install_with(&|line| reports.borrow_mut().push(line.to_owned())).await.unwrap();
        assert_eq!(shown("systemctl "), *node.manager.steps.borrow(), "{text}");
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
    confirm(&node.paths, &node.manager).unwrap();
    node.manager.active_state.set("active");
    assert_equal("enable probeshim.service").await;
    // Another program.
    fs::write(node.root.path().join("etc/default/kubelet"), "KUBELET_EXTRA_ARGS=-v=2\n\n").unwrap();
    assert_equal("reload probeshim.service").await;
    // Units that have failed, and a kubelet that was pointed back.
    node.manager.active_state.set("failed");
    node.manager.bypass();
    let shown = assert_equal("restart kubelet.service").await;
    assert!(shown.contains(&"reset-failed probeshim.socket".to_owned()), "{shown:?}");
}

#[tokio::test]
async fn an_installation_in_front_of_a_kubelet_sets_its_kubeconfig_and_a_removal_takes_it_back() {
    let node = TestNode::new();
    let write = |path: &str, text: &str| write(&node, path, text);
    let certificates = tempfile::tempdir().unwrap();
    write("etc/kubernetes/kubelet.conf", &kubeconfig(certificates.path(), ""));
    let before = node.tree();
    let text = node.dry_run().await;
    let line = "    kubelet: {kubeconfig: /etc/kubernetes/kubelet.conf}";
    assert!(
        text.contains("write /etc/probeshim/config.yaml") && text.lines().any(|shown| shown == line),
        "{text}"
    );
    let finding =
        node.plan().await.unwrap().findings().iter().find(|it| it.check == "names").cloned().unwrap();
    assert!(finding.detail.contains("/etc/kubernetes/kubelet.conf (kubeadm)"), "{finding:?}");
    node.install().await.unwrap();
    let config = node.paths.at(Paths::config_file());
    assert!(fs::read_to_string(&config).unwrap().contains(line.trim()));
    // A repetition keeps it, and still removes it later.
    node.install().await.unwrap();
    node.uninstall_with(false).await.unwrap();
    assert_eq!(node.tree(), before);
    // The configuration of a user gets the line, and loses exactly that.
    write("etc/probeshim/config.yaml", "enforce: off");
    fs::set_permissions(&config, fs::Permissions::from_mode(0o640)).unwrap();
    let before = node.tree();
    node.install().await.unwrap();
    assert_eq!(fs::read_to_string(&config).unwrap(), format!("enforce: off\n{}\n", line.trim()));
    node.install().await.unwrap();
    node.uninstall_with(false).await.unwrap();
    assert_eq!(node.tree(), before);
    // A line that was changed later stays, and is reported.
    node.install().await.unwrap();
    write("etc/probeshim/config.yaml", "kubelet: {kubeconfig: /a}\n");
    let reports = RefCell::new(Vec::new());
    let report = |line: &str| reports.borrow_mut().push(line.to_owned());
    let uninstaller = Uninstaller { paths: &node.paths, manager: &node.manager, report: &report };
    uninstaller.uninstall(false).await.unwrap();
    assert_eq!(fs::read_to_string(&config).unwrap(), "kubelet: {kubeconfig: /a}\n");
    let stays = "the field kubelet stays in /etc/probeshim/config.yaml: it was changed";
    assert!(reports.borrow().iter().any(|line| line == stays), "{reports:?}");
    write("etc/probeshim/config.yaml", "kubelet: {url: 'http://127.0.0.1:10255'}\n");
    node.install().await.unwrap();
    assert_eq!(fs::read_to_string(&config).unwrap(), "kubelet: {url: 'http://127.0.0.1:10255'}\n");
}

#[tokio::test]
async fn a_kubeconfig_is_not_set_if_probeshim_would_enforce_all_pods_or_cannot_use_it() {
    let node = TestNode::new();
    let write = |path: &str, text: &str| write(&node, path, text);
    let warning = async || {
        let plan = node.plan().await.unwrap();
        assert!(plan.kubeconfig.as_ref().unwrap().file().is_none());
        let finding = plan.findings().iter().find(|it| it.check == "names").unwrap();
        format!("{} {}", finding.detail, finding.remedy.as_ref().unwrap())
    };
    write("etc/kubernetes/kubelet.conf", "");
    assert!(warning().await.contains("kubelet.conf: current-context \"\" must be one of the contexts"));
    let certificates = tempfile::tempdir().unwrap();
    write("etc/kubernetes/kubelet.conf", &kubeconfig(certificates.path(), ", proxy-url: 'http://a'"));
    let text = warning().await;
    assert!(
        text.contains("proxy-url is not supported") && text.contains("https://127.0.0.1:10250"),
        "{text}"
    );

    write("etc/kubernetes/kubelet.conf", &kubeconfig(certificates.path(), ""));
    for (mode, effect) in [("dry-run", "run the probes"), ("kill", "kill or restart containers")] {
        write("etc/probeshim/config.yaml", &format!("enforce: {mode}\n"));
        let text = warning().await;
        assert!(text.contains(&format!("enforce is {mode}: probeshim would then run")), "{text}");
        assert!(text.contains(effect), "{text}");
        assert!(
            text.ends_with("add this line: kubelet: {kubeconfig: /etc/kubernetes/kubelet.conf}"),
            "{text}"
        );
    }
    // An administrator has set the flag in the unit.
    write("etc/probeshim/config.yaml", "enforce: off\n");
    node.manager.active_state.set("{ argv[]=/usr/local/bin/probeshim run --enforce=kill ; }");
    let text = warning().await;
    assert!(text.contains("enforce is kill"), "{text}");
    write("etc/probeshim/config.yaml", "enforce: kill\n");
    node.manager.active_state.set("{ argv[]=/usr/local/bin/probeshim run --enforce off ; }");
    assert!(node.plan().await.unwrap().kubeconfig.unwrap().file().is_some());
}

fn write(node: &TestNode, path: &str, text: &str) {
    let path = node.root.path().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Returns the kubeconfig of a node, with more fields of the cluster. The directory gets its
/// certificate.
fn kubeconfig(dir: &Path, fields: &str) -> String {
    let authority = Authority::create(dir, "authority");
    let (certificate, key) = authority.issue_to("kubelet", "system:node:node-1", "system:nodes");
    let (certificate, key, authority) =
        (certificate.display(), key.display(), authority.certificate().display().to_string());
    format!(
        "
current-context: a
contexts: [{{name: a, context: {{cluster: c, user: u}}}}]
clusters: [{{name: c, cluster: {{server: 'https://h', certificate-authority: {authority}{fields}}}}}]
users: [{{name: u, user: {{client-certificate: {certificate}, client-key: {key}}}}}]
"
    )
}

#[tokio::test]
async fn a_program_that_was_installed_otherwise_is_replaced_in_that_way() {
    let node = TestNode::new();
    let program = node.paths.at(Paths::program());
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    fs::copy(node.root.path().join("etc/default/kubelet"), &program).unwrap();
    node.install().await.unwrap();
    // The new version is run from another path.
    fs::write(node.root.path().join("etc/default/kubelet"), "KUBELET_EXTRA_ARGS=-v=2\n\n").unwrap();
    let error = node.plan().await.unwrap_err().to_string();
    assert!(error.contains("replace it in the way in which it was installed (`make install`)"), "{error}");
    assert!(!error.contains("remove"), "{error}");
}

#[tokio::test]
async fn the_socket_of_a_switched_kubelet_is_not_moved_without_the_kubelet() {
    let node = TestNode::new();
    let crio = || Some(SocketPath::parse("unix:///run/crio/crio.sock").unwrap());
    let without_kubelet = async || {
        let plan = node.plan_with(|options| (options.kubelet, options.upstream) = (false, crio()));
        plan.await.map(drop)
    };
    node.install().await.unwrap();
    let error = without_kubelet().await.unwrap_err().to_string();
    assert!(
        error.starts_with(
            "the kubelet uses unix:///run/probeshim/probeshim.sock, which would be replaced by \
             unix:///run/probeshim/run/crio/crio.sock; add --kubelet"
        ),
        "{error}"
    );
    // With the kubelet the timer runs before the socket is gone.
    let plan = node.plan_with(|options| options.upstream = crio()).await.unwrap();
    let steps = plan.describe(&node.paths, &node.manager).unwrap();
    drop(plan);
    let at = |line: &str| {
        steps.lines().position(|shown| shown == line).unwrap_or_else(|| panic!("{line} is missing:\n{steps}"))
    };
    let stop = at("systemctl stop probeshim.service probeshim.socket");
    assert!(at("systemctl restart probeshim-revert.timer") < stop, "{steps}");
    node.manager.bypass();
    without_kubelet().await.unwrap();
}

#[tokio::test]
async fn a_repeated_installation_restarts_k3s_only_until_its_change_is_confirmed() {
    let node = TestNode::new();
    node.manager.kubelet_unit.set("k3s.service");
    let restarts = async || {
        node.kill_at(None);
        node.install().await.unwrap();
        node.manager.steps.borrow().contains(&"restart k3s.service".to_owned())
    };
    assert!(restarts().await);
    // The first restart may have been interrupted.
    assert!(restarts().await);
    confirm(&node.paths, &node.manager).unwrap();
    assert!(!restarts().await);
    assert!(!node.manager.has_timer.get());
}

#[tokio::test]
async fn a_kubelet_without_drop_ins_is_switched_by_hand() {
    let node = TestNode::new();
    for (unit, expected) in [
        ("snap.microk8s.daemon-kubelite.service", "snap restart microk8s.daemon-kubelite"),
        (
            "k0sworker.service",
            "--kubelet-extra-args=--container-runtime-endpoint=unix:///run/probeshim/probeshim.sock",
        ),
        ("other.service", "run `probeshim install` without --kubelet"),
    ] {
        node.manager.kubelet_unit.set(unit);
        let error = node.plan().await.unwrap_err().to_string();
        assert!(error.contains(expected), "{unit}: {error}");
    }
}

#[tokio::test]
async fn flags_that_the_running_kubelet_has_and_its_files_do_not_refuse_the_change() {
    let node = TestNode::new();
    fs::write(node.root.path().join("proc/7/environ"), "A=b\0KUBELET_EXTRA_ARGS=-v=2 --node-ip=10.0.0.1\0")
        .unwrap();
    let refused = async || {
        let plan = node.plan().await.unwrap();
        let states = plan.findings().iter().filter(|finding| finding.check == "extra arguments");
        states.map(|finding| finding.state).collect::<Vec<FindingState>>()
    };
    assert_eq!(refused().await, [FindingState::Failed]);
    fs::write(node.root.path().join("proc/7/environ"), "KUBELET_EXTRA_ARGS=-v=2\0").unwrap();
    assert_eq!(refused().await, []);
}
