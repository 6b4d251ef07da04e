//! State that changes results: the enforcement mode, faults, pauses and recent kills.

use serde::Serialize;

use crate::admin::Admin;
use crate::admin::api::{ActiveFault, ExecPolicies, KillTotals, Pause};
use crate::build_info;
use crate::kubelet::Kubelet;
use crate::prober::ProbeManager;

/// State that changes results, as the page shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PageState {
    /// Version of probeshim, with which the files of the page change.
    version: &'static str,
    /// Enforcement mode: `off`, `dry-run`, `kill` or `restart`.
    mode: &'static str,
    faults: Vec<ActiveFault>,
    pauses: Vec<Pause>,
    exec_policies: ExecPolicies,
    /// Recent kills and their limit; null if the enforcement mode is `off`.
    kills: Option<KillTotals>,
    /// Whether the built-in kubelet is paused because a kubelet uses the runtime.
    paused: bool,
}

impl PageState {
    pub(super) fn of(admin: &Admin) -> Self {
        let policies = &admin.state.policies;
        let mut faults: Vec<ActiveFault> =
            policies.faults.list().into_iter().map(ActiveFault::from).collect();
        let mut pauses: Vec<Pause> = policies.pauses.list().into_iter().map(Pause::from).collect();
        let mut exec_policies = ExecPolicies::new(policies);
        if !admin.shows_commands() {
            // A rule can have the pattern of a command, and a selector the labels of pods.
            for fault in &mut faults {
                fault.rule.clear();
            }
            for pause in &mut pauses {
                pause.selector.clear();
            }
            exec_policies.exec_match = None;
        }
        Self {
            version: build_info::full_version(),
            mode: admin.mode().name(),
            faults,
            pauses,
            exec_policies,
            kills: admin.state.prober.as_ref().map(ProbeManager::kills).map(KillTotals::from),
            paused: admin.state.kubelet.get().is_some_and(Kubelet::is_paused),
        }
    }
}
