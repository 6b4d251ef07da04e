//! Advice against the cause of a slow or failed ExecSync.

use super::{CallRecord, ExecAnalysis, ProbeMatch};
use crate::cri::{Code, KILLED, signal_name};
use crate::execsync::analysis::TimeoutMargin;
use crate::execsync::cause::limits::has_waited;
use crate::execsync::cause::remedy::{self, ExecNames};
use crate::execsync::cause::{Cause, ExecFailure, FailedProgram};
use crate::execsync::evidence::Evidence;
use crate::manifest::ExecPurpose;
use crate::tap::{Call, ExecCall};
use crate::terminal::format;

/// Number of characters of an id that crictl shows.
const SHORT_ID: usize = 13;

/// Maximum length of a command in the advice.
const MAX_COMMAND_BYTES: usize = 200;

/// Advice if the runtime waits for the end of the output of a command that has exited.
pub(crate) const DRAIN_ADVICE: &str = "close stdout and stderr of each process that the command leaves running, for example with `>/dev/null 2>&1`";

/// Advice if a limit delays or refuses calls.
const LIMIT_ADVICE: &str = "raise periodSeconds of exec probes, replace them by httpGet, tcpSocket or grpc probes, or raise --max-exec-syncs or --max-exec-syncs-per-container";

/// Returns advice against the causes, in one sentence; `None` without a cause.
pub(super) fn advice(
    record: &CallRecord,
    exec: &ExecCall,
    insight: &ExecAnalysis,
    causes: &[Cause],
) -> Option<String> {
    let subject = Subject { call: &record.call, exec, insight };
    if let Some(fault) = subject.call.marks.iter().flat_map(|marks| &marks.faults).next() {
        return Some(format!("What to do: `probeshim fault clear {}` ends the fault.", fault.name));
    }
    let parts: Vec<String> = causes.iter().map(|cause| subject.advice(*cause)).collect();
    (!parts.is_empty()).then(|| format!("What to do: {}.", parts.join("; also, ")))
}

/// The call that the advice is about.
struct Subject<'a> {
    call: &'a Call,
    exec: &'a ExecCall,
    insight: &'a ExecAnalysis,
}

impl Subject<'_> {
    /// Returns whether a limit of probeshim delayed or refused the call.
    fn is_limited(&self) -> bool {
        self.is_affected_by("limit")
    }

    /// Returns whether a policy affected the call.
    fn is_affected_by(&self, name: &str) -> bool {
        self.call.marks.iter().flat_map(|marks| &marks.policies).any(|policy| **policy == *name)
    }

    fn advice(&self, cause: Cause) -> String {
        let (container, command) = (self.container(), self.command_name());
        match cause {
            Cause::Rejected(code) => self.advice_on_rejection(code),
            Cause::RuntimeLost => {
                "look in the container runtime's log for the reason; the runtime may have been restarted"
                    .to_owned()
            }
            Cause::NoAnswer => format!(
                "look in the container runtime's log, and for a shim of {container} that is stopped or whose \
                 processes are in state D"
            ),
            Cause::ContainerExited => self.advice_on_container_exit(),
            Cause::ExecFailed(_) => self.advice_on_exec_failure(),
            Cause::MissingDirectory => remedy::missing_directory(&container),
            Cause::LargeOutput => format!(
                "have {command} write less: its output made the runtime's response larger than a message may be \
                 (16 MiB), and a kubelet uses only the first 10 KiB of the output"
            ),
            Cause::ExitCode(code) => self.advice_on_exit(code),
            Cause::Frozen => remedy::frozen(&container),
            Cause::OutOfMemory => remedy::out_of_memory(&container),
            Cause::PidsLimit => {
                let pids = self.evidence().and_then(Evidence::pids_at_limit);
                remedy::pids_limit(&container, pids.map(|pids| pids.scope))
            }
            Cause::Throttled => {
                let limit = self.evidence().and_then(|evidence| evidence.cpu?.quota);
                remedy::throttled(&container, limit) + &self.or_raise_timeout()
            }
            Cause::Queue | Cause::Storm | Cause::Start | Cause::Run | Cause::Drain | Cause::UnknownPhase => {
                self.advice_on_phase(cause)
            }
        }
    }

    /// Returns advice about a phase that took long.
    fn advice_on_phase(&self, cause: Cause) -> String {
        match cause {
            Cause::Queue if self.is_limited() => LIMIT_ADVICE.to_owned(),
            Cause::Queue => "see whether the node has CPU time left for probeshim".to_owned(),
            Cause::Storm => {
                "raise periodSeconds of exec probes, or replace them by httpGet, tcpSocket or grpc probes, \
                 which start no process"
                    .to_owned()
            }
            // The timeout does not cover the start of the command.
            Cause::Start if self.is_node_loaded() => {
                "reduce the load of the node; httpGet, tcpSocket and grpc probes start no process".to_owned()
            }
            Cause::Start => {
                "look in the container runtime's log for the reason why it was slow; httpGet, tcpSocket \
                 and grpc probes start no process"
                    .to_owned()
            }
            Cause::Run if self.evidence().is_some_and(has_waited) => format!(
                "find out what the command waits for, such as a server, a name, a lock or its input{}",
                self.or_raise_timeout()
            ),
            Cause::Run => format!("make the command faster{}", self.or_raise_timeout()),
            Cause::Drain => DRAIN_ADVICE.to_owned(),
            _ if self.is_late_success() => {
                "see whether the command leaves a process running that keeps stdout or stderr open; the \
                 timeout covers the command, and not the end of its output"
                    .to_owned()
            }
            _ => {
                format!(
                    "measure how long the command takes in {}{}",
                    self.container(),
                    self.or_raise_timeout()
                )
            }
        }
    }

    fn advice_on_rejection(&self, code: Code) -> String {
        let message = self.call.message.as_deref().unwrap_or_default().to_ascii_lowercase();
        match code {
            _ if self.is_affected_by("pause") => "`probeshim resume` ends the pause".to_owned(),
            Code::RESOURCE_EXHAUSTED if self.is_limited() && !self.insight.is_sent() => {
                LIMIT_ADVICE.to_owned()
            }
            Code::NOT_FOUND => self.look_at_events(),
            Code::UNIMPLEMENTED => "use a container runtime that implements ExecSync".to_owned(),
            _ if message.contains("chdir") && message.contains("permission denied") => {
                format!("let the user of {} enter its workingDir", self.container())
            }
            _ => "look in the container runtime's log for details".to_owned(),
        }
    }

    /// Returns advice about a container that had exited, or exited while the command ran. A preStop
    /// hook runs until the grace period of its container is over.
    fn advice_on_container_exit(&self) -> String {
        let container = self.container();
        match &self.insight.identity {
            ProbeMatch::Matched { uses, .. } if uses[..] == [ExecPurpose::PreStop] => format!(
                "see whether the grace period of {container} was over; if so, shorten the hook, or raise \
                 terminationGracePeriodSeconds of the pod"
            ),
            _ => format!(
                "nothing, if {container} was being stopped or restarted at that time; `probeshim events` shows why \
                 it exited"
            ),
        }
    }

    /// Returns advice about a program that could not be executed.
    fn advice_on_exec_failure(&self) -> String {
        let (container, command) = (self.container(), self.command_name());
        let has_output = self.exec.output.as_deref().is_some_and(|output| !output.trim().is_empty());
        let (failure, failed) =
            ExecFailure::with_program(self.call).unwrap_or((ExecFailure::Unknown, FailedProgram::Unknown));
        if failure == ExecFailure::Unknown && !has_output {
            let code = self.exec.result.map(|result| format!(" (exit code {})", result.exit_code));
            let why = format!("why a program could not be executed{}", code.unwrap_or_default());
            return self.run_to_see(&why);
        }
        let is_probe = matches!(
            &self.insight.identity,
            ProbeMatch::Matched { uses, .. } if uses.iter().all(|used| used.is_probe())
        );
        let program = self.exec.command.first().map(String::as_str).filter(|program| !program.is_empty());
        let (container, command) = (container.as_str(), command.as_str());
        failure.remedy(failed, ExecNames { container, command, program, is_probe, has_output })
    }

    fn advice_on_exit(&self, code: i32) -> String {
        let command = self.command_name();
        if let Some(signal) = signal_name(code) {
            return match code {
                KILLED => {
                    format!("find out what sent SIGKILL to {command}; the kernel does if memory is short")
                }
                _ => format!("find out whether {command} crashed, or what sent {signal} to it"),
            };
        }
        match self.exec.output.as_deref().map(str::trim) {
            Some(_) if self.exec.is_output_cut() => self.run_to_see("its whole output"),
            Some(output) if !output.is_empty() => remedy::named_in_output(&command),
            Some(_) => {
                format!("have {command} write the reason of a failure; then its output is shown here")
            }
            None => self.run_to_see("its output"),
        }
    }

    fn run_to_see(&self, what: &str) -> String {
        match self.shell_command() {
            Some(shell) => format!("run the command to see {what}: {shell}"),
            None => format!("run {} in {} to see {what}", self.command_name(), self.container()),
        }
    }

    fn look_at_events(&self) -> String {
        format!("see `probeshim events` for the reason why {} did not run", self.container())
    }

    /// Returns whether processes of the node were stalled for most of the time.
    fn is_node_loaded(&self) -> bool {
        self.evidence().is_some_and(|evidence| evidence.mostly_of_node().contains(&true))
    }

    /// Returns whether the command exited with 0, and the call ended after its timeout.
    fn is_late_success(&self) -> bool {
        self.exec.result.is_some_and(|result| result.exit_code == 0)
            && matches!(self.insight.margin, Some(TimeoutMargin::Over(_)))
    }

    /// Returns the command line that executes the same in the container, if the whole command is
    /// known and can be copied from a line. crictl takes the place of probeshim if the pod's name
    /// is unknown.
    fn shell_command(&self) -> Option<String> {
        let (pod, container) = (self.call.pod.as_deref(), self.call.container.as_deref()?);
        let names = pod.and_then(|pod| Some((pod.namespace.as_deref()?, pod.name.as_deref()?)));
        let exec = if let (Some((namespace, pod)), Some(container)) = (names, container.name.as_deref()) {
            let options = ["exec", "-n", namespace, "-c", container, pod].map(str::to_owned);
            format!("probeshim {} --", format::command(&options))
        } else {
            let id = container.id.as_deref()?;
            format!("crictl exec --sync {}", id.get(..SHORT_ID).unwrap_or(id))
        };
        let command = format::command(&self.exec.command);
        let is_short = command.len() <= MAX_COMMAND_BYTES && !command.contains(char::is_control);
        (is_short && !self.exec.truncated).then(|| format!("`{exec} {command}`"))
    }

    fn evidence(&self) -> Option<&Evidence> {
        self.insight.evidence.as_deref()
    }

    fn container(&self) -> String {
        let name = self.call.container.as_deref().and_then(|container| container.name.as_deref());
        name.map_or_else(|| "the container".to_owned(), |name| format!("container {name}"))
    }

    /// Returns a name of the command: that of its probe or hook, if it is certain.
    fn command_name(&self) -> String {
        match self.owner() {
            Some(owner) => format!("the command of {owner}"),
            None => "the command".to_owned(),
        }
    }

    fn owner(&self) -> Option<String> {
        let ProbeMatch::Matched { uses, .. } = &self.insight.identity else { return None };
        let [only] = uses[..] else { return None };
        Some(format!("the {} {}", only.name(), if only.is_probe() { "probe" } else { "hook" }))
    }

    /// Returns the advice to raise the timeout, if the call has one and took at least half of it.
    fn or_raise_timeout(&self) -> String {
        let seconds = self.exec.timeout_seconds;
        if self.exec.timeout().is_some_and(|timeout| self.call.duration < timeout / 2) {
            return String::new();
        }
        match (self.exec.timeout(), self.owner()) {
            (None, _) => String::new(),
            (Some(_), Some(owner)) => format!(", or raise timeoutSeconds of {owner} (now {seconds})"),
            (Some(_), None) => format!(", or raise the timeout (now {seconds}s)"),
        }
    }
}
