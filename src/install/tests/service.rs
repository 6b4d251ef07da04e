//! The process and the socket of the installed service, as installations replace them and `doctor`
//! shows them.

use std::os::unix::fs::{MetadataExt as _, symlink};
use std::os::unix::net::UnixListener;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

impl TestNode {
    /// Writes a file below the root directory.
    fn write(&self, path: &str, text: &str) {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Makes the service run with the unit that is installed now.
    async fn run_service(&self) {
        let digest = self.plan().await.unwrap().unit_settings().digest();
        self.write("proc/7/environ", &format!("A=1\0PROBESHIM_UNIT={digest}\0B=2\0"));
        self.manager.active_state.set("active");
    }

    /// Installs, and returns the commands of systemd for the service.
    async fn steps_on_service(&self) -> Vec<String> {
        self.kill_at(None);
        self.install().await.unwrap();
        let steps = self.manager.steps.borrow();
        let commands = ["start ", "restart ", "reload "];
        let of_service = steps.iter().filter(|step| step.ends_with(" probeshim.service"));
        of_service.filter(|step| commands.iter().any(|command| step.starts_with(command))).cloned().collect()
    }

    /// Returns the state and the detail of a finding.
    async fn finding(&self, check: &str) -> (FindingState, String) {
        let findings = diagnose(&self.paths, &self.manager).await.unwrap();
        let finding = findings.iter().find(|finding| finding.check == check);
        let finding = finding.unwrap_or_else(|| panic!("{check}: {findings:?}"));
        (finding.state, finding.detail.clone())
    }
}

#[tokio::test]
async fn a_service_with_another_command_line_or_mode_is_restarted_and_a_new_program_takes_over() {
    let node = TestNode::new();
    node.install().await.unwrap();
    node.run_service().await;
    assert_eq!(node.steps_on_service().await, [""; 0]);

    // A successor would be in the mount namespace of its predecessor.
    node.write("etc/probeshim/config.yaml", "enforce: restart\n");
    assert_eq!(node.steps_on_service().await, ["restart --no-block probeshim.service"]);
    // An installation that was killed before the restart, and is repeated.
    assert_eq!(node.steps_on_service().await, ["restart --no-block probeshim.service"]);
    let (state, detail) = node.finding("process").await;
    assert_eq!(state, FindingState::Warning, "{detail}");
    node.run_service().await;
    assert_eq!(node.steps_on_service().await, [""; 0]);
    let (state, detail) = node.finding("process").await;
    assert_eq!(state, FindingState::Ok, "{detail}");

    // systemd applies another time for the drain without a restart.
    node.write("etc/probeshim/config.yaml", "enforce: restart\ndrainTimeout: 7s\n");
    assert_eq!(node.steps_on_service().await, ["reload probeshim.service"]);
    // A program that `make install` replaced.
    assert_eq!(node.steps_on_service().await, [""; 0]);
    symlink("/usr/local/bin/probeshim (deleted)", node.root.path().join("proc/7/exe")).unwrap();
    let (state, detail) = node.finding("process").await;
    assert!(state == FindingState::Warning && detail.contains("was replaced on disk"), "{detail}");
    assert_eq!(node.steps_on_service().await, ["reload probeshim.service"]);
}

#[tokio::test]
async fn the_socket_has_the_owner_and_mode_of_the_runtimes_socket() {
    let node = TestNode::new();
    let [runtime, ours] = ["run/containerd/containerd.sock", "run/probeshim/probeshim.sock"]
        .map(|path| node.root.path().join(path));
    let _listeners = [&runtime, &ours].map(|path| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        UnixListener::bind(path).unwrap()
    });
    let owner = fs::metadata(&runtime).unwrap();
    node.write("etc/passwd", &format!("runtime:x:{}:0::/:/bin/sh\n", owner.uid()));
    node.write("etc/group", &format!("runtime:x:{}:\n", owner.gid()));
    let mode_of = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let set_mode = |mode| fs::set_permissions(&runtime, fs::Permissions::from_mode(mode)).unwrap();
    let unit = node.paths.at(Paths::unit(InstalledUnit::Socket));
    for mode in [0o600, 0o660] {
        set_mode(mode);
        let shown = node.plan().await.unwrap().describe(&node.paths, &node.manager).unwrap();
        let step = format!("and mode {mode:04o} of /run/probeshim/probeshim.sock");
        assert!(shown.contains(&step), "{shown}");
        // The socket exists already, and systemd would change nothing about it.
        node.install().await.unwrap();
        let text = fs::read_to_string(&unit).unwrap();
        assert!(text.contains(&format!("\nSocketMode={mode:04o}\n")), "{text}");
        assert_eq!(mode_of(&ours), mode);
        assert_eq!(node.finding("socket access").await.0, FindingState::Ok);
        assert_eq!(node.finding("units").await.0, FindingState::Ok);
    }
    set_mode(0o600);
    assert_eq!(node.finding("socket access").await.0, FindingState::Warning);
    assert_eq!(node.finding("units").await.0, FindingState::Warning);
    // While the runtime is stopped, nothing is known to be wrong.
    fs::remove_file(&runtime).unwrap();
    assert_eq!(node.finding("socket access").await.0, FindingState::Ok);
    assert_eq!(node.finding("units").await.0, FindingState::Ok);
}

#[tokio::test]
async fn an_invalid_configuration_is_a_finding_beside_that_of_the_kubelet() {
    let node = TestNode::new();
    node.install().await.unwrap();
    node.write("etc/probeshim/config.yaml", "enforce: never\n");
    fs::remove_file(node.drop_in()).unwrap();
    let (state, detail) = node.finding("configuration").await;
    assert!(state == FindingState::Failed && detail.contains("never"), "{detail}");
    let (state, detail) = node.finding("kubelet endpoint").await;
    assert!(state == FindingState::Failed && detail.contains("crashed or hung repeatedly"), "{detail}");
}

#[tokio::test]
async fn a_change_that_install_reverted_is_no_failure_until_the_next_change() {
    let node = TestNode::new();
    node.install().await.unwrap();
    let installer = Installer { paths: &node.paths, manager: &node.manager, report: &|_| {} };
    installer.revert().unwrap();
    let (state, detail) = node.finding("kubelet endpoint").await;
    assert!(state == FindingState::Ok && detail.contains("`install` reverted the change"), "{detail}");
    node.install().await.unwrap();
    // After repeated crashes, systemd starts the bypass.
    node.manager.bypass();
    assert_eq!(node.finding("kubelet endpoint").await.0, FindingState::Failed);
    installer.revert().unwrap();
    assert_eq!(node.finding("kubelet endpoint").await.0, FindingState::Failed, "nothing was left to revert");
}

#[tokio::test]
async fn doctor_compares_the_running_process_with_the_configuration() {
    let node = TestNode::new();
    let admin = node.root.path().join("admin.sock");
    node.write("etc/probeshim/config.yaml", &format!("admin: {}\n", admin.display()));
    node.install().await.unwrap();
    node.run_service().await;
    let listener = tokio::net::UnixListener::bind(&admin).unwrap();
    let upstream = "unix:///run/containerd/containerd.sock";
    for (pid, socket, failure, expected, part) in [
        (7, upstream, None, FindingState::Ok, "probeshim 9.9.9 in the mode off"),
        (8, upstream, None, FindingState::Warning, "is served by pid 8, not by the service"),
        (7, "unix:///old.sock", None, FindingState::Failed, "calls are forwarded to unix:///old.sock, but"),
        (7, upstream, Some("--http: cannot listen"), FindingState::Warning, "--http: cannot listen"),
    ] {
        let status = json!({
            "version": "9.9.9", "mode": "off", "pid": pid, "started": "2026-11-24T12:00:00Z", "listen": "a", "http": null,
            "apiFailures": failure.into_iter().collect::<Vec<&str>>(),
            "upstream": {"socket": socket, "ready": true, "runtime": null, "version": null, "error": null},
            "connections": {"open": 0, "total": 0}, "record": null, "pods": [], "stuck": [],
            "calls": {"inFlight": 0, "observed": 0, "kept": 0, "dropped": 0},
        });
        let status = status.to_string();
        let (found, ()) = tokio::join!(node.finding("status"), answer(&listener, &status));
        assert!(found.0 == expected && found.1.contains(part), "{found:?}");
    }
}

/// Answers one request on the admin socket.
async fn answer(listener: &tokio::net::UnixListener, body: &str) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let response =
        format!("HTTP/1.1 200 OK\r\nprobeshim-api: 1\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(response.as_bytes()).await.unwrap();
}
