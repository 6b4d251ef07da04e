//! The containers that a benchmark measures.

use std::collections::BTreeSet;

use super::super::CliError;
use super::super::pod_arg::{find_pod, owner};
use crate::admin::api::{StatusContainer, StatusPod};
use crate::suggest::did_you_mean;
use crate::terminal::{MAX_NAME_WIDTH, harmless_name, shortened};

/// Minimum length of a prefix of an id that is matched. A shorter text is rather a name.
const MIN_ID_PREFIX: usize = 4;

/// Maximum number of containers in an error.
const MAX_NAMES: usize = 10;

/// Returns the ids of the containers with these names or prefixes of their ids, in the same order.
/// The error names everything that is wrong.
pub(super) fn find_containers(
    pods: &[StatusPod],
    names: &[String],
    pod: Option<&str>,
    namespace: Option<&str>,
) -> Result<Vec<String>, CliError> {
    let (mut found, mut errors): (Vec<(&String, String)>, Vec<String>) = (Vec::new(), Vec::new());
    for name in names {
        match find_container(pods, name, pod, namespace) {
            Ok(id) => found.push((name, id)),
            Err(error) => errors.extend(Some(error.to_string()).filter(|error| !errors.contains(error))),
        }
    }
    for (index, (name, id)) in found.iter().enumerate() {
        if let Some((earlier, _)) = found[..index].iter().find(|(_, earlier)| earlier == id) {
            let [earlier, name] = [earlier, name].map(|name| shortened(name, MAX_NAME_WIDTH));
            errors.push(format!("--container {earlier:?} and {name:?} are the same container"));
        }
    }
    if errors.is_empty() {
        return Ok(found.into_iter().map(|(_, id)| id).collect());
    }
    Err(CliError::Usage(errors.join("\n")))
}

/// Returns the id of the container with this name or prefix of its id. A prefix of an id that is
/// unknown to probeshim is returned unchanged, since the runtime may know it.
fn find_container(
    pods: &[StatusPod],
    name: &str,
    pod: Option<&str>,
    namespace: Option<&str>,
) -> Result<String, CliError> {
    let pod = pod.map(|pod| find_pod(pods, pod, namespace)).transpose()?;
    let is_selected = |candidate: &&StatusPod| match pod {
        Some(pod) => candidate.id == pod.id,
        None => namespace.is_none() || candidate.namespace.as_deref() == namespace,
    };
    let containers: Vec<(&StatusPod, &StatusContainer)> = pods
        .iter()
        .filter(is_selected)
        .flat_map(|pod| pod.containers.iter().map(move |container| (pod, container)))
        .filter(|(_, container)| container.state == "running")
        .collect();
    let is_it = |container: &StatusContainer| {
        container.name.as_deref() == Some(name)
            || (name.len() >= MIN_ID_PREFIX && container.id.starts_with(name))
    };
    if let Some(namespace) = namespace.filter(|_| pod.is_none() && containers.is_empty()) {
        // Other tools for benchmarks take a number of calls with -n.
        let hint = match namespace.parse::<u32>() {
            Ok(calls) => format!("; --calls {calls} sets the number of calls"),
            Err(_) => String::new(),
        };
        let shown = harmless_name(namespace);
        return Err(CliError::Usage(format!("no container runs in namespace {shown:?}{hint}")));
    }
    let found: Vec<_> = containers.iter().filter(|(_, container)| is_it(container)).collect();
    let listed = |containers: &mut dyn Iterator<Item = &(&StatusPod, &StatusContainer)>| {
        let names: BTreeSet<String> = containers
            .map(|(pod, container)| format!("{} of {}", container.name.as_deref().unwrap_or("?"), owner(pod)))
            .map(|name| harmless_name(&name))
            .collect();
        names.into_iter().take(MAX_NAMES).collect::<Vec<_>>().join(", ")
    };
    let shown = shortened(name, MAX_NAME_WIDTH);
    match found[..] {
        [(_, container)] => Ok(container.id.clone()),
        [] if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_hexdigit()) => Ok(name.to_owned()),
        [] if containers.is_empty() => {
            Err(CliError::Usage(format!("--container {shown:?} not found: no containers are running")))
        }
        [] => {
            let names = containers.iter().filter_map(|(_, container)| container.name.as_deref());
            let hint = did_you_mean(name, names);
            let listed = listed(&mut containers.iter());
            Err(CliError::Usage(format!(
                "--container {shown:?} not found{hint}; the running containers are {listed}"
            )))
        }
        _ => {
            let listed = listed(&mut found.into_iter());
            Err(CliError::Usage(format!(
                "--container {shown:?} is ambiguous: it may be {listed}; --pod and --namespace select one"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, container: &str, id: &str) -> StatusPod {
        serde_json::from_value(serde_json::json!({
            "namespace": "shop", "name": name, "uid": name, "id": name, "sandbox": "ready", "ip": null,
            "source": "list", "containers": [{"name": container, "id": id, "attempt": 0,
            "state": "running", "exitCode": null, "reason": null, "source": "list"}],
        }))
        .unwrap()
    }

    #[test]
    fn a_benchmark_finds_its_container_by_name_or_id() {
        let pods = [pod("web", "main", "aaaa1"), pod("api", "main", "bbbb2"), pod("db", "store", "cccc3")];
        let find =
            |name: &str, pod| find_container(&pods, name, pod, None).map_err(|error| error.to_string());
        assert_eq!(find("store", None).unwrap(), "cccc3");
        assert_eq!(find("bbbb", None).unwrap(), "bbbb2");
        assert_eq!(find("main", Some("web")).unwrap(), "aaaa1");
        assert_eq!(find("0123", None).unwrap(), "0123", "the runtime may know it");
        let ambiguous = find("main", None).unwrap_err();
        assert!(ambiguous.contains("may be main of shop/api, main of shop/web; --pod"), "{ambiguous}");
        let in_namespace =
            |namespace| find_container(&pods, "main", None, Some(namespace)).unwrap_err().to_string();
        let expected = "no container runs in namespace \"100\"; --calls 100 sets the number of calls";
        assert_eq!(in_namespace("100"), expected);
        assert_eq!(in_namespace("e2e"), "no container runs in namespace \"e2e\"");
        let unknown = find("stor", None).unwrap_err();
        assert!(unknown.contains("did you mean \"store\"?; the running containers are"), "{unknown}");
    }
    #[test]
    fn all_containers_of_a_benchmark_are_found_or_all_errors_are_reported() {
        let pods = [pod("web", "main", "aaaa1"), pod("api", "main", "bbbb2"), pod("db", "store", "cccc3")];
        let find = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            find_containers(&pods, &names, None, None).map_err(|error| error.to_string())
        };
        assert_eq!(find(&["store", "aaaa", "0123"]).unwrap(), ["cccc3", "aaaa1", "0123"]);
        let error = find(&["stor", "main", "store", "cccc"]).unwrap_err();
        let lines: Vec<&str> = error.lines().collect();
        assert_eq!(lines.len(), 3, "{error}");
        assert!(lines[0].starts_with("--container \"stor\" not found"), "{error}");
        assert!(lines[1].starts_with("--container \"main\" is ambiguous"), "{error}");
        assert_eq!(lines[2], "--container \"store\" and \"cccc\" are the same container");
        assert_eq!(find(&["stor", "stor"]).unwrap_err().lines().count(), 1);
    }
}
