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

/// Returns where a field belongs, if its name is one of a pod.
pub(super) fn place_of(field: &str) -> Option<&'static str> {
    PLACES.iter().find(|(names, _)| names.contains(&field)).map(|(_, place)| *place)
}
