//! critest, the conformance suite for CRI runtimes: the same cases pass and fail directly and
//! through the relay.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use fixtures::accounts;
use fixtures::containerd::{Containerd, Version};
use fixtures::image::{Image, Store, WAIT};
use fixtures::machine::{program, tool};
use fixtures::need;
use fixtures::registry::Registry;
use fixtures::runtime::Runtime as _;
use fixtures::scenarios::life;
use fixtures::shim::Probeshim;
use serde_json::Value;

/// Minimum number of passing cases. With fewer, the comparison is not meaningful.
const ENOUGH: usize = 65;

const SHELL: [&str; 1] = ["/bin/sh"];
const WEB: [&str; 6] = ["/bin/httpd", "-f", "-v", "-p", "80", "-h/www"];
const WEB_OF_NODE: [&str; 5] = ["/bin/httpd", "-f", "-p", "12003", "-h/www"];
const WEB_THAT_SAYS_SO: [&str; 3] = ["/bin/sh", "-c", "echo httpd starts; exec /bin/httpd -f -p 80 -h/www"];

/// Images that critest pulls, with their user and command.
const IMAGES: [(&str, &str, &[&str]); 21] = [
    ("registry.k8s.io/pause:3.9", "", &WAIT),
    ("registry.k8s.io/e2e-test-images/busybox:1.29-2", "", &SHELL),
    ("registry.k8s.io/e2e-test-images/nginx:1.14-2", "", &WEB),
    ("registry.k8s.io/e2e-test-images/httpd:2.4.39-4", "", &WEB_THAT_SAYS_SO),
    ("gcr.io/k8s-staging-cri-tools/hostnet-nginx-amd64:latest", "", &WEB_OF_NODE),
    ("gcr.io/k8s-staging-cri-tools/hostnet-nginx-arm64:latest", "", &WEB_OF_NODE),
    ("gcr.io/k8s-staging-cri-tools/test-image-user-uid:latest", "1002", &SHELL),
    ("gcr.io/k8s-staging-cri-tools/test-image-user-username:latest", "www-data", &SHELL),
    ("gcr.io/k8s-staging-cri-tools/test-image-user-uid-group:latest", "1003:users", &SHELL),
    ("gcr.io/k8s-staging-cri-tools/test-image-user-username-group:latest", "www-data:100", &SHELL),
    ("gcr.io/k8s-staging-cri-tools/test-image-predefined-group:latest", "1000", &SHELL),
    ("gcr.io/k8s-staging-cri-tools/test-image-latest:latest", "", &SHELL),
    ("gcr.io/k8s-staging-cri-tools/test-image-tag:test", "", &SHELL),
    ("gcr.io/k8s-staging-cri-tools/test-image-tag:all", "", &SHELL),
    ("gcr.io/k8s-staging-cri-tools/test-image-1:latest", "", &SHELL),
    ("gcr.io/k8s-staging-cri-tools/test-image-2:latest", "", &SHELL),
    ("gcr.io/k8s-staging-cri-tools/test-image-3:latest", "", &SHELL),
    ("gcr.io/k8s-staging-cri-tools/test-image-tags:1", "", &SHELL),
    ("gcr.io/k8s-staging-cri-tools/test-image-tags:2", "", &SHELL),
    ("gcr.io/k8s-staging-cri-tools/test-image-tags:3", "", &SHELL),
    ("registry.k8s.io/e2e-test-images/nonewprivs:1.3", "", &SHELL),
];

#[test]
fn critest_passes_and_fails_the_same_cases_directly_and_relayed() {
    let critest = need!(tool("critest-1.36")).join("critest");
    let mut store = Store::new(&need!(program("busybox", "busybox-static")));
    for (name, user, command) in IMAGES {
        store.add(Image { name, user, command });
    }
    let registry = Registry::serve(store);
    let containerd = need!(Containerd::start(Version::V2_2));
    let folder = containerd.folder();
    fs::create_dir_all(folder.join("certs.d/_default")).unwrap();
    fs::write(folder.join("certs.d/_default/hosts.toml"), registry.hosts_toml()).unwrap();

    let direct = cases(&critest, folder, &containerd.socket());
    let shim = Probeshim::start(folder, &containerd.socket());
    let (before, seen) = life::before(&containerd, &shim);
    let relayed = cases(&critest, folder, shim.socket());
    let passed = direct.values().filter(|state| *state == "passed").count();
    eprintln!("critest: {passed} of {} cases pass on the runtime itself", direct.len());
    let differing: Vec<_> = direct.iter().filter(|(case, state)| relayed.get(*case) != Some(state)).collect();
    assert!(differing.is_empty(), "passed or failed directly, but not through the relay: {differing:#?}");
    assert_eq!(direct.len(), relayed.len());
    assert!(passed >= ENOUGH, "{direct:#?}");
    let ours = || accounts::difference(&accounts::by_code(&shim.counted()), &seen);
    let theirs = || accounts::difference(&containerd.accounts().unwrap(), before.as_ref().unwrap());
    accounts::agree(|| accounts::split_canceled(ours()).1, || accounts::split_canceled(theirs()).1);
    let [canceled, counted] = [ours(), theirs()].map(|all| accounts::split_canceled(all).0);
    for (method, count) in counted {
        assert!(canceled.get(&method) >= Some(&count), "{method}: {canceled:?}");
    }
}

/// Runs critest and returns the state of each case. Cases run in the same order each time.
fn cases(critest: &Path, folder: &Path, endpoint: &Path) -> BTreeMap<String, String> {
    let report = folder.join("critest.json");
    let mut command = Command::new(critest);
    command.arg("--runtime-endpoint").arg(format!("unix://{}", endpoint.display()));
    command.args(["--ginkgo.no-color", "--ginkgo.seed=1", "--ginkgo.json-report"]).arg(&report);
    // Without this option critest reads a configuration file from its own directory.
    command.arg("--config").arg(folder.join("crictl.yaml")).current_dir(folder);
    fs::write(folder.join("crictl.yaml"), "").unwrap();
    let output = command.output().unwrap();
    let log = String::from_utf8_lossy(&output.stdout);
    let Ok(report) = fs::read_to_string(&report) else { panic!("critest ended without a report: {log}") };
    let report: Value = serde_json::from_str(&report).unwrap();
    let specs = report[0]["SpecReports"].as_array().unwrap();
    specs
        .iter()
        .filter(|spec| spec["LeafNodeType"] == "It")
        .map(|spec| {
            let containers = spec["ContainerHierarchyTexts"].as_array().unwrap().iter();
            let words: Vec<&str> =
                containers.chain([&spec["LeafNodeText"]]).map(|text| text.as_str().unwrap()).collect();
            (words.join(" "), spec["State"].as_str().unwrap().to_owned())
        })
        .collect()
}
