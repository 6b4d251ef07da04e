//! Reads the number and the order of a workload's pods.

use crate::manifest::cursor::{Cursor, Violation};
use crate::manifest::reader::claim::{self, CLAIM};
use crate::manifest::reader::controller_fields;
use crate::manifest::reader::fields::{FieldSet, flag, text};
use crate::manifest::reader::selector::check_selector;
use crate::manifest::scale::{JobSpec, Scale};
use crate::manifest::validation::{DNS_LABEL, is_dns_label};
use crate::manifest::workload::WorkloadKind;

/// Maximum number of pods of one workload. A kubelet runs 110 pods by default.
const MAX_PODS: u32 = 1000;

/// Maximum length of the name of a `CronJob` (`pkg/apis/batch/validation/validation.go`:
/// `ValidateCronJobCreate`).
const MAX_CRON_JOB_NAME: usize = 52;

/// Default of a job's `backoffLimit` (`pkg/apis/batch/v1/defaults.go`: `SetDefaults_Job`).
const BACKOFF_LIMIT: u32 = 6;

/// Reason why probeshim does not support a rule for ending a job.
const JOB_RULES: &str = "probeshim ends a job by its completions and its backoffLimit";

const REPLICAS: FieldSet = FieldSet {
    known: &["replicas", "selector", "template"],
    ignored: &["strategy", "minReadySeconds", "revisionHistoryLimit", "paused", "progressDeadlineSeconds"],
    unsupported: &[],
};

const REPLICAS_ALONE: FieldSet = FieldSet {
    known: &["replicas", "selector", "template"],
    ignored: &["minReadySeconds"],
    unsupported: &[],
};

const DAEMON_SET: FieldSet = FieldSet {
    known: &["selector", "template"],
    ignored: &["updateStrategy", "minReadySeconds", "revisionHistoryLimit"],
    unsupported: &[],
};

const STATEFUL_SET: FieldSet = FieldSet {
    known: &["replicas", "selector", "template", "serviceName", "podManagementPolicy", "ordinals"],
    ignored: &[
        "updateStrategy",
        "minReadySeconds",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
    ],
    unsupported: &[("volumeClaimTemplates", CLAIM)],
};

const ORDINALS: FieldSet = FieldSet::only(&["start"]);

const JOB: FieldSet = FieldSet {
    known: &[
        "completions",
        "parallelism",
        "completionMode",
        "backoffLimit",
        "activeDeadlineSeconds",
        "suspend",
        "template",
    ],
    ignored: &[
        "selector",
        "manualSelector",
        "ttlSecondsAfterFinished",
        "podReplacementPolicy",
        "managedBy",
        "scheduling",
    ],
    unsupported: &[
        ("backoffLimitPerIndex", JOB_RULES),
        ("maxFailedIndexes", JOB_RULES),
        ("podFailurePolicy", JOB_RULES),
        ("successPolicy", JOB_RULES),
    ],
};

const CRON_JOB: FieldSet = FieldSet {
    known: &["jobTemplate", "suspend"],
    ignored: &[
        "schedule",
        "timeZone",
        "startingDeadlineSeconds",
        "concurrencyPolicy",
        "successfulJobsHistoryLimit",
        "failedJobsHistoryLimit",
    ],
    unsupported: &[],
};

const JOB_TEMPLATE: FieldSet = FieldSet::only(&["metadata", "spec"]);

/// Reads the number and the order of a workload's pods.
pub(in crate::manifest) fn scale(
    kind: WorkloadKind,
    workload: &Cursor<'_>,
    problems: &mut Vec<Violation>,
) -> Scale {
    check_name(kind, workload, problems);
    let Some(spec) = workload.field("spec") else { return Scale::ONE };
    controller_fields::check(kind, &spec, problems);
    match kind {
        WorkloadKind::Pod => Scale::ONE,
        WorkloadKind::Deployment | WorkloadKind::ReplicaSet | WorkloadKind::ReplicationController => {
            let fields = if kind == WorkloadKind::Deployment { REPLICAS } else { REPLICAS_ALONE };
            fields.check(&spec, problems);
            flag(&spec, "paused", problems);
            check_selector(kind, &spec, problems);
            Scale::Replicas { first: 0, count: replicas(&spec, problems), is_ordered: false }
        }
        WorkloadKind::DaemonSet => {
            DAEMON_SET.check(&spec, problems);
            check_selector(kind, &spec, problems);
            Scale::ONE
        }
        WorkloadKind::StatefulSet => stateful_set(&spec, problems),
        WorkloadKind::Job => Scale::Job(job(&spec, problems)),
        WorkloadKind::CronJob => {
            CRON_JOB.check(&spec, problems);
            let is_suspended = flag(&spec, "suspend", problems);
            spec.field("jobTemplate").inspect(|template| JOB_TEMPLATE.check(template, problems));
            let Some(spec) = spec.at(&["jobTemplate", "spec"]) else { return Scale::ONE };
            Scale::Job(JobSpec { may_start: !is_suspended, ..job(&spec, problems) })
        }
    }
}

/// Returns the names of the claim templates of a `StatefulSet`. Other workloads have none.
pub(in crate::manifest) fn claim_templates(kind: Option<WorkloadKind>, workload: &Cursor<'_>) -> Vec<String> {
    if kind != Some(WorkloadKind::StatefulSet) {
        return Vec::new();
    }
    let claims = workload.items(&["spec", "volumeClaimTemplates"]);
    claims
        .iter()
        .filter_map(|claim| claim.at(&["metadata", "name"])?.value().as_str().map(str::to_owned))
        .collect()
}

/// Reports a name that its kind cannot have, and that other kinds can.
fn check_name(kind: WorkloadKind, workload: &Cursor<'_>, problems: &mut Vec<Violation>) {
    let at = ["name", "generateName"]
        .iter()
        .find_map(|field| workload.at(&["metadata", field]).filter(|at| at.value() != ""));
    let Some(at) = at else { return };
    let Some(name) = at.value().as_str().filter(|_| !at.has_error(problems)) else { return };
    // The dash at the end of generateName is not the end of the name.
    let name = name.trim_end_matches('-');
    match kind {
        WorkloadKind::StatefulSet if !is_dns_label(name) => at.error(DNS_LABEL, problems),
        WorkloadKind::CronJob if name.len() > MAX_CRON_JOB_NAME => {
            at.error(format!("must be no more than {MAX_CRON_JOB_NAME} characters"), problems);
        }
        _ => {}
    }
}

fn stateful_set(spec: &Cursor<'_>, problems: &mut Vec<Violation>) -> Scale {
    STATEFUL_SET.check(spec, problems);
    check_selector(WorkloadKind::StatefulSet, spec, problems);
    // The name becomes the subdomain of the pods, which `workload_spec` sets.
    let service = text(spec, "serviceName", problems).filter(|name| !name.is_empty());
    if let Some(at) = spec.field("serviceName").filter(|_| service.is_some_and(|name| !is_dns_label(&name))) {
        at.error(DNS_LABEL, problems);
    }
    for template in spec.items(&["volumeClaimTemplates"]) {
        claim::check_name(&template, problems);
        claim::check(&template, problems);
    }
    let policy = spec.field("podManagementPolicy").filter(|policy| policy.value() != "");
    let is_ordered =
        policy.and_then(|at| at.one_of(&[("OrderedReady", true), ("Parallel", false)], problems));
    let ordinals = spec.field("ordinals");
    if let Some(ordinals) = &ordinals {
        ORDINALS.check(ordinals, problems);
    }
    let first = ordinals.and_then(|ordinals| count(&ordinals, "start", problems)).unwrap_or(0);
    Scale::Replicas { first, count: replicas(spec, problems), is_ordered: is_ordered.unwrap_or(true) }
}

/// Reads the spec of a job. Without `completions` and `parallelism`, both are 1. Without
/// `completions` only, the job is complete once one pod has succeeded and all have ended.
fn job(spec: &Cursor<'_>, problems: &mut Vec<Violation>) -> JobSpec {
    JOB.check(spec, problems);
    let parallelism = pods(spec, "parallelism", problems);
    let completions = pods(spec, "completions", problems).or(parallelism.is_none().then_some(1));
    let mode = spec.field("completionMode");
    let is_indexed =
        mode.and_then(|at| at.one_of(&[("NonIndexed", false), ("Indexed", true)], problems)).unwrap_or(false);
    if is_indexed && completions.is_none() {
        spec.missing("completions", "when completion mode is Indexed", problems);
    }
    JobSpec {
        completions,
        parallelism: parallelism.unwrap_or(1),
        backoff_limit: count(spec, "backoffLimit", problems).unwrap_or(BACKOFF_LIMIT),
        is_indexed,
        active_deadline: active_deadline(spec, problems),
        is_suspended: flag(spec, "suspend", problems),
        may_start: true,
    }
}

/// Reads a deadline in seconds. Kubernetes has 64 bits; more than 32 bits are 136 years.
fn active_deadline(spec: &Cursor<'_>, problems: &mut Vec<Violation>) -> Option<u32> {
    let reason = "must be an integer that is not negative";
    let seconds: i64 = spec.field("activeDeadlineSeconds")?.number(0..=i64::MAX, reason, problems)?;
    Some(u32::try_from(seconds).unwrap_or(u32::MAX))
}

/// Reads `replicas`, whose default is 1.
fn replicas(spec: &Cursor<'_>, problems: &mut Vec<Violation>) -> u32 {
    pods(spec, "replicas", problems).unwrap_or(1)
}

/// Reads a number of pods.
fn pods(spec: &Cursor<'_>, field: &str, problems: &mut Vec<Violation>) -> Option<u32> {
    let count = count(spec, field, problems)?;
    if count > MAX_PODS {
        spec.field(field)?
            .unsupported(&format!("probeshim runs at most {MAX_PODS} pods of a workload"), problems);
        return Some(MAX_PODS);
    }
    Some(count)
}

fn count(node: &Cursor<'_>, field: &str, problems: &mut Vec<Violation>) -> Option<u32> {
    node.field(field)?.non_negative(problems)
}
