//! Fields that authors write at another level than the one to which they belong.

/// Names of fields, and where they belong.
const PLACES: [(&[&str], &str); 5] = [
    (
        &["livenessProbe", "readinessProbe", "startupProbe"],
        "a probe is a field of a container, such as spec.containers[0]",
    ),
    (
        &[
            "args",
            "command",
            "env",
            "envFrom",
            "image",
            "imagePullPolicy",
            "lifecycle",
            "ports",
            "volumeMounts",
            "workingDir",
        ],
        "it is a field of a container, such as spec.containers[0]",
    ),
    (
        &["failureThreshold", "initialDelaySeconds", "periodSeconds", "successThreshold", "timeoutSeconds"],
        "it is a field of a probe, beside its handler",
    ),
    (&["httpHeaders", "scheme"], "it is a field of httpGet"),
    (
        &[
            "affinity",
            "containers",
            "dnsPolicy",
            "hostNetwork",
            "imagePullSecrets",
            "initContainers",
            "nodeSelector",
            "restartPolicy",
            "serviceAccountName",
            "terminationGracePeriodSeconds",
            "tolerations",
            "volumes",
        ],
        "it is a field of the spec of a pod or of a pod template",
    ),
];

/// Ends of the paths of probes and hooks, whose fields are often those of their handler.
const HANDLED: [&str; 3] = ["Probe", "postStart", "preStop"];

/// Names of fields of handlers, and where they belong in a probe or hook.
const PLACES_IN_HANDLERS: [(&[&str], &str); 2] = [
    (&["command"], "it is a field of the handler exec"),
    (&["host", "path", "port", "service"], "it is a field of a handler, such as httpGet"),
];

/// Returns where a field belongs, if its name is one of a pod. `parent` is the path of the object
/// in which it is.
pub(super) fn place_of(field: &str, parent: &str) -> Option<&'static str> {
    let is_handled = HANDLED.iter().any(|end| parent.ends_with(end));
    let of_handlers: &[_] = if is_handled { &PLACES_IN_HANDLERS } else { &[] };
    of_handlers.iter().chain(&PLACES).find(|(names, _)| names.contains(&field)).map(|(_, place)| *place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_field_depends_on_where_it_is() {
        let place = |field, parent| place_of(field, parent).unwrap_or_default();
        assert!(place("command", "spec.containers[0].livenessProbe").ends_with("exec"));
        assert!(place("port", "spec.containers[0].lifecycle.preStop").ends_with("httpGet"));
        assert!(place("command", "spec").contains("a field of a container"));
        assert!(place("livenessProbe", "").starts_with("a probe is a field of a container"));
        assert_eq!(place_of("port", "spec"), None);
    }
}
