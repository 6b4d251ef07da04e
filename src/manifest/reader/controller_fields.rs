//! Checks the fields of workloads that only the controllers of a cluster use, as the API server
//! does (`pkg/apis/apps/validation/validation.go`, `pkg/apis/batch/validation/validation.go`).

use crate::manifest::cursor::{Cursor, Violation};
use crate::manifest::reader::cron_schedule;
use crate::manifest::reader::fields::{FieldSet, check_choice, required, text};
use crate::manifest::workload::WorkloadKind;

/// Fields with a number of 32 bits that is not negative.
const COUNTS: [&str; 6] = [
    "minReadySeconds",
    "revisionHistoryLimit",
    "progressDeadlineSeconds",
    "ttlSecondsAfterFinished",
    "successfulJobsHistoryLimit",
    "failedJobsHistoryLimit",
];

/// Default of `progressDeadlineSeconds`.
const PROGRESS_DEADLINE: i64 = 600;

const REPLACEMENT_POLICIES: [(&str, ()); 2] = [("TerminatingOrFailed", ()), ("Failed", ())];

const STRATEGY: FieldSet = FieldSet::only(&["type", "rollingUpdate"]);

const ROLLING_UPDATE: FieldSet = FieldSet::only(&["maxSurge", "maxUnavailable"]);

const ROLLING_UPDATE_OF_STATEFUL_SET: FieldSet = FieldSet::only(&["partition", "maxUnavailable"]);

/// Reports invalid fields of the spec of a workload.
pub(super) fn check(kind: WorkloadKind, spec: &Cursor<'_>, problems: &mut Vec<Violation>) {
    // The API server takes any limit of a StatefulSet.
    let is_checked = |field: &&&str| kind != WorkloadKind::StatefulSet || **field != "revisionHistoryLimit";
    for at in COUNTS.iter().filter(is_checked).filter_map(|field| spec.field(field)) {
        at.non_negative::<u32>(problems);
    }
    let deadline = spec.field("startingDeadlineSeconds");
    deadline
        .and_then(|at| at.number::<i64>(0..=i64::MAX, "must be an integer that is not negative", problems));
    spec.field("podReplacementPolicy").and_then(|at| at.one_of(&REPLACEMENT_POLICIES, problems));
    let retention = spec.field("persistentVolumeClaimRetentionPolicy");
    for at in ["whenDeleted", "whenScaled"].iter().filter_map(|field| retention.as_ref()?.field(field)) {
        at.one_of(&[("Retain", ()), ("Delete", ())], problems);
    }
    match kind {
        WorkloadKind::Deployment => {
            check_strategy(kind, spec, "strategy", &["Recreate", "RollingUpdate"], problems);
            check_progress_deadline(spec, problems);
        }
        WorkloadKind::DaemonSet | WorkloadKind::StatefulSet => {
            check_strategy(kind, spec, "updateStrategy", &["RollingUpdate", "OnDelete"], problems);
        }
        WorkloadKind::CronJob => {
            check_choice(spec.field("concurrencyPolicy"), &["Allow", "Forbid", "Replace"], problems);
            check_schedule(spec, problems);
        }
        WorkloadKind::Pod
        | WorkloadKind::ReplicaSet
        | WorkloadKind::ReplicationController
        | WorkloadKind::Job => {}
    }
    check_template(kind, spec, problems);
}

/// Reports a deadline of the pods of a workload whose pods do not end.
fn check_template(kind: WorkloadKind, spec: &Cursor<'_>, problems: &mut Vec<Violation>) {
    let ends = matches!(kind, WorkloadKind::Job | WorkloadKind::CronJob | WorkloadKind::Pod);
    if let Some(at) = spec.at(&["template", "spec", "activeDeadlineSeconds"]).filter(|_| !ends) {
        at.forbidden(&format!("activeDeadlineSeconds in {} is not Supported", kind.name()), problems);
    }
}

fn check_progress_deadline(spec: &Cursor<'_>, problems: &mut Vec<Violation>) {
    let number = |field: &str| spec.field(field).and_then(|at| at.value().as_i64());
    let min_ready = number("minReadySeconds").unwrap_or(0);
    if number("progressDeadlineSeconds").unwrap_or(PROGRESS_DEADLINE) <= min_ready {
        let at = spec.field("progressDeadlineSeconds").or_else(|| spec.field("minReadySeconds"));
        at.inspect(|at| at.error("progressDeadlineSeconds must be greater than minReadySeconds", problems));
    }
}

/// Reports a type of a strategy that the kind does not have, and numbers that it cannot have.
fn check_strategy(
    kind: WorkloadKind,
    spec: &Cursor<'_>,
    field: &str,
    known: &[&str],
    problems: &mut Vec<Violation>,
) {
    let Some(strategy) = spec.field(field) else { return };
    STRATEGY.check(&strategy, problems);
    let named = strategy.field("type").filter(|at| at.value() != "");
    check_choice(named.clone(), known, problems);
    let Some(rolling) = strategy.field("rollingUpdate") else { return };
    let is_rolling = named.is_none_or(|at| at.value() == "RollingUpdate");
    if !is_rolling && kind != WorkloadKind::DaemonSet {
        rolling.forbidden("may not be specified unless the strategy `type` is RollingUpdate", problems);
        return;
    }
    if kind == WorkloadKind::StatefulSet {
        ROLLING_UPDATE_OF_STATEFUL_SET.check(&rolling, problems);
        rolling.field("partition").and_then(|at| at.non_negative::<u32>(problems));
        if let Some(at) = rolling.field("maxUnavailable")
            && int_or_percent(&at, true, problems) == Some(0)
        {
            at.error("cannot be 0", problems);
        }
        return;
    }
    ROLLING_UPDATE.check(&rolling, problems);
    // The API server ignores it in a DaemonSet of another type.
    if !is_rolling {
        return;
    }
    let is_daemon_set = kind == WorkloadKind::DaemonSet;
    let [surge, unavailable] = ["maxSurge", "maxUnavailable"].map(|field| rolling.field(field));
    let surge_count = surge.as_ref().map(|at| int_or_percent(at, is_daemon_set, problems));
    let unavailable_count = unavailable.as_ref().map(|at| int_or_percent(at, true, problems));
    // By default, a Deployment surges by 25 %, and a DaemonSet does not.
    let has_no_surge = surge_count.map_or(is_daemon_set, |count| count == Some(0));
    if let Some(at) = unavailable.filter(|_| has_no_surge && unavailable_count == Some(Some(0))) {
        at.error("may not be 0 when `maxSurge` is 0", problems);
    }
    let is_both = matches!(surge_count, Some(Some(1..))) && unavailable_count != Some(Some(0));
    if let Some(at) = surge.filter(|_| is_daemon_set && is_both) {
        at.error("may not be set when maxUnavailable is non-zero", problems);
    }
}

/// Reads a number of pods, or a percentage, which is at most 100 if it is limited.
fn int_or_percent(at: &Cursor<'_>, is_limited: bool, problems: &mut Vec<Violation>) -> Option<u32> {
    let Some(text) = at.value().as_str() else { return at.non_negative(problems) };
    let digits = text.strip_suffix('%').filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    let number = digits.and_then(|digits| digits.parse().ok());
    match number {
        Some(number) if number <= 100 || !is_limited => Some(number),
        Some(_) => {
            at.error("must not be greater than 100%", problems);
            None
        }
        None => {
            let reason =
                "a valid percent string must be a numeric string followed by an ending '%', such as '25%'";
            at.error(reason, problems);
            None
        }
    }
}

fn check_schedule(spec: &Cursor<'_>, problems: &mut Vec<Violation>) {
    let schedule = required(spec, "schedule", "", problems);
    if let Some(fault) = schedule.and_then(|schedule| cron_schedule::fault(&schedule)) {
        spec.field("schedule").inspect(|at| at.error(fault, problems));
    }
    let zone = text(spec, "timeZone", problems);
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"_+-/".contains(&byte);
    let is_zone = zone.is_some_and(|zone| {
        zone.bytes().all(is_known) && !zone.starts_with('/') && !zone.eq_ignore_ascii_case("local")
    });
    if let Some(at) = spec.field("timeZone").filter(|_| !is_zone) {
        at.error("must be the name of a time zone, such as Europe/Berlin", problems);
    }
    if let Some(job) = spec.at(&["jobTemplate", "spec"]) {
        check(WorkloadKind::Job, &job, problems);
    }
}
