//! Pods that refer to ConfigMaps and Secrets, which static pods may not: `play` beside the kubelet
//! of an API server.

use std::path::Path;
use std::time::Duration;

use fixtures::cluster::Cluster;
use fixtures::need;
use fixtures::scenarios::differential::compared_with_cluster;
use fixtures::scenarios::story::cases_in;

/// Directory of the manifests, each with a story.
const PODS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/pods");

/// Duration of the observation.
const WATCHED: Duration = Duration::from_secs(20);

#[test]
fn pods_that_refer_to_objects_behave_as_on_the_kubelet_of_an_api_server() {
    let cluster = need!(Cluster::start());
    let cases = cases_in(Path::new(PODS), &[]);
    let differences = need!(compared_with_cluster(&cluster, &cases, WATCHED));
    assert_eq!(differences, [""; 0], "{}", differences.join("\n"));
}
