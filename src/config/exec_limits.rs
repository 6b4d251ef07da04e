//! Flags of the policies for ExecSync, and the settings computed from them.

use std::num::NonZeroU32;

use clap::Args;

use super::validator::Validator;
use super::values::whole_number;
use crate::policy::{DirectSettings, ExecLimits, ExecMode, ExecSettings, Overflow};
use crate::probe::Selector;

/// Highest limit.
const MAX_LIMIT: u64 = 1_000_000;

/// Flags of the policies for ExecSync. An absent flag has its default.
#[derive(Clone, Debug, Default, Args)]
pub struct ExecLimitFlags {
    /// Maximum number of ExecSyncs that run at the same time on this node, from 1: those of clients
    /// and of probeshim. Others wait, containers with fewer running ones first [default: no limit]
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = limit)]
    pub max_exec_syncs: Option<NonZeroU32>,

    /// Maximum number of ExecSyncs that run at the same time in a container, from 1 [default: no
    /// limit]
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = limit)]
    pub max_exec_syncs_per_container: Option<NonZeroU32>,

    /// Treatment of an ExecSync beyond these limits [default: wait]
    #[arg(long, value_name = "ACTION", allow_hyphen_values = true, value_enum)]
    pub exec_sync_overflow: Option<Overflow>,

    /// Let exec probes with the same container, command and timeout that arrive while one of them
    /// runs share its result
    #[arg(long)]
    pub coalesce_probes: bool,

    /// Way in which ExecSyncs are executed [default: runtime]
    #[arg(long, value_name = "MODE", allow_hyphen_values = true, value_enum)]
    pub exec: Option<ExecMode>,

    /// Containers in which --exec direct or direct-all applies, as KEY=PATTERN,… with the keys
    /// namespace, pod, container, image and label.NAME [default: all]
    #[arg(long, value_name = "SELECTOR", allow_hyphen_values = true)]
    pub exec_match: Option<Selector>,
}

/// Parses a limit.
pub(super) fn limit(text: &str) -> Result<NonZeroU32, super::ValueError> {
    whole_number::<NonZero, 1, MAX_LIMIT>(text).map(|NonZero(limit)| limit)
}

/// A limit, as [`whole_number`] creates it.
struct NonZero(NonZeroU32);

impl TryFrom<u64> for NonZero {
    type Error = std::num::TryFromIntError;

    fn try_from(number: u64) -> Result<Self, Self::Error> {
        NonZeroU32::try_from(u32::try_from(number)?).map(Self)
    }
}

impl ExecLimitFlags {
    /// Returns the settings.
    pub(super) fn settings(&self, validator: &mut Validator) -> ExecSettings {
        let limits = ExecLimits {
            node: self.max_exec_syncs,
            container: self.max_exec_syncs_per_container,
            overflow: self.exec_sync_overflow.unwrap_or_default(),
        };
        if self.exec_sync_overflow.is_some() && !limits.is_limited() {
            let reason = "needs --max-exec-syncs or --max-exec-syncs-per-container: without a limit, no call exceeds it";
            validator.error("--exec-sync-overflow", None, reason.to_owned());
        }
        let mode = self.exec.unwrap_or_default();
        if self.exec_match.is_some() && self.exec.is_none() {
            let reason =
                "needs --exec direct or --exec direct-all: otherwise the runtime executes every command";
            validator.error("--exec-match", None, reason.to_owned());
        }
        let direct = DirectSettings { mode, selector: self.exec_match.clone().unwrap_or_default() };
        ExecSettings { limits, coalesce_probes: self.coalesce_probes, direct }
    }
}
