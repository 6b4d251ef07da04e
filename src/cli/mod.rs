//! The command line, with one file per subcommand. The flags of `run`, `play` and `runtime` are in
//! `config`, which validates them.

mod admin_args;
mod bar;
mod bench;
mod call_arg;
mod calls;
mod capture;
mod check;
mod completion;
mod delete;
mod demo;
mod describe;
mod doctor;
mod error;
mod events;
mod exec;
mod explain;
mod fault;
mod findings;
mod follow;
mod get;
mod help;
mod install;
mod instances;
mod known_objects;
mod label_selector;
mod labelled_pods;
mod line;
mod lint;
mod logs;
mod missing_names;
mod mode;
mod overview;
mod parse;
mod pause;
mod period_args;
mod pod_arg;
mod pod_list;
mod pod_summary;
mod pods;
mod probe_result;
mod probes;
mod query;
mod replay;
mod report;
mod status;
mod stderr;
mod table;
mod target;
mod tips;
mod top;
mod uninstall;
mod version;
mod wait;
mod watch;
mod workload_arg;
mod yaml;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Parser, Subcommand, ValueEnum};

use crate::build_info;
use crate::config::{Flags, PlayFlags, RuntimeFlags};
use crate::prober::EnforcementMode;
use crate::procrun::monitor;

pub use bench::BenchArgs;
pub use calls::CallsCommand;
pub use capture::CaptureCommand;
pub(crate) use check::probe_table;
pub use check::{CheckCommand, schema};
pub use completion::{CompletionCommand, ManCommand};
pub use delete::DeleteCommand;
pub use demo::{Demo, demo_results};
pub use describe::DescribeCommand;
pub use doctor::DoctorCommand;
pub use error::CliError;
pub use events::EventsCommand;
pub use exec::ExecCommand;
pub use explain::ExplainCommand;
pub use fault::FaultCommand;
pub use get::GetCommand;
pub use install::{ConfirmCommand, InstallCommand};
pub use lint::LintCommand;
pub(crate) use lint::finding_text;
pub use logs::LogsCommand;
pub use mode::ModeCommand;
pub use overview::OverviewCommand;
pub use pause::{PauseCommand, ResumeCommand};
pub use pods::PodsCommand;
pub use probes::ProbesCommand;
pub use replay::ReplayCommand;
pub(crate) use replay::replay_text;
pub use report::ReportCommand;
pub use status::StatusCommand;
pub use top::TopCommand;
pub use uninstall::UninstallCommand;
pub use version::VersionCommand;
pub use wait::WaitCommand;

/// Why was my exec probe slow, and what killed my container?
///
/// probeshim sits between the kubelet (or crictl) and containerd, forwards every CRI call
/// unchanged, and explains each ExecSync. It also runs pods and their probes without a cluster.
#[derive(Debug, Parser)]
#[command(version = build_info::full_version(), disable_version_flag = true, max_term_width = help::MAX_WIDTH)]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: CliCommand,

    /// Print the version
    #[arg(short = 'V', short_alias = 'v', long, action = ArgAction::Version)]
    version: Option<bool>,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
#[expect(clippy::doc_markdown, reason = "these comments are what --help prints")]
pub enum CliCommand {
    /// Forward all calls on a unix socket to the runtime, until SIGTERM or SIGINT
    ///
    /// If LISTEN_FDS is set (systemd socket activation), the socket from systemd is used instead of
    /// --listen.
    Run(Flags),

    /// Run pods from manifests on a runtime as a kubelet does, without a cluster
    ///
    /// Runs sandboxes, init containers, sidecars, probes and kills, and restarts containers with
    /// back-off. Ctrl-C terminates and removes all pods in order; a second Ctrl-C removes them
    /// immediately. Ends by itself once all pods have ended. Exit code 0: all pods have succeeded,
    /// or the condition of --until is met. Exit code 1: a pod has failed, a container was killed
    /// and is not restarted, or --timeout has expired. Exit code 130: SIGINT (Ctrl-C). Exit code
    /// 143: SIGTERM.
    #[command(mut_arg("manifests", |arg| arg.hide(true)),
        mut_arg("instance", |arg| arg.help("Name of the instance, for several on one machine: probeshim-NAME takes the place of \
               probeshim in all default paths; auto chooses a free name")),
        mut_arg("enforce", |arg| arg.value_parser(play_mode())
        .help("Enforcement mode: the action when a liveness or startup probe fails [default: restart]")),
        mut_arg("max_kills", |arg| arg.help("Maximum number of kills because of probes within a period, such as 5/1h, or off for no \
               limit [default: off]")))]
    Play(PlayFlags),

    /// Show recorded calls
    ///
    /// A CODE in capitals is the runtime's gRPC code. A CODE in lower case is the reason why there
    /// is none: client-reset (the client cancelled the call, or its deadline expired),
    /// upstream-reset, refused (the runtime did not accept the call), connection-lost (the
    /// runtime's connection broke), client-gone (the client's connection closed before the call
    /// ended, or was aborted at the end of a drain), no-status.
    Calls(CallsCommand),

    /// Record calls with their messages in a file, without secrets
    ///
    /// Values of environment variables, credentials, output of commands, values of annotations,
    /// verbose information and fields that the CRI does not define are removed before anything
    /// leaves the running probeshim. Commands stay, unless it redacts them or --redact-commands is
    /// given. Calls are captured as they end, and the file has one line of JSON for each.
    /// `probeshim replay` sends them again. The guide docs/guides/capture.md has the details.
    Capture(CaptureCommand),

    /// Send the calls of a capture again, and compare codes, latencies and phases
    ///
    /// Calls that read the state are sent, and ExecSyncs, which execute their commands again, in
    /// the recorded order and with the recorded distances. Other calls are not sent. Containers
    /// are found by id, or by the names of their pod and container. Exit code 0: calls were sent.
    /// Exit code 1: the runtime does not answer, or no call could be sent. Exit code 2: the file
    /// is not a capture.
    Replay(ReplayCommand),

    /// Explain an ExecSync: its probe or hook, its phases, and the causes on the node
    #[command(override_usage = "probeshim explain [OPTIONS] \
        <CALL|--last|--slowest|--failed|--probe <PROBE>|--pod <POD>|--namespace <NAMESPACE>>")]
    Explain(ExplainCommand),

    /// Show what is wrong with the probes of a period, the worst first, with evidence and a remedy
    ///
    /// Each finding names its calls: `probeshim explain CALL` shows where the time of a call went.
    /// The guide docs/guides/lint.md has the thresholds. Exit code 1: there is a finding with the
    /// severity of --fail-on, or a worse one.
    Lint(LintCommand),

    /// Show recorded events of pods, containers, ExecSyncs and the runtime
    Events(EventsCommand),

    /// Write a report about the probes of a period: a page to read and send, or JSON
    ///
    /// The page is one file without scripts and without requests: what is wrong, results of each
    /// probe over time, kills and restarts, the slowest of the slow and failed calls that were kept
    /// with their explanation, latencies, and the node. The guide docs/guides/report.md describes
    /// it.
    Report(ReportCommand),

    /// Show pods, as `kubectl get pods` does
    ///
    /// Pods of all namespaces are shown unless --namespace names one. READY of a pod of a client is
    /// ?/N, and its AGE is unknown, if probeshim does not know them: only a prober knows whether a
    /// container is ready. RESTARTS of such a pod is the sum of its containers' attempts.
    #[command(visible_alias = "ps")]
    Pods(PodsCommand),

    /// Show probes with their results
    ///
    /// RESULT states how many attempts in a row had the last result, and the number at which it has
    /// an effect, such as `failed 2 in a row, kills at 3`. KILLED counts kills of the container by
    /// probeshim for this probe.
    Probes(ProbesCommand),

    /// Show probes in the terminal as they change, the worst first
    ///
    /// Plain letters are the keys, and ? shows them: / filters, s and column letters sort, Enter
    /// opens a probe with its results over time, the phases of its slowest call and its last calls,
    /// l shows the findings of the lints, p pauses and r resumes after a confirmation. Needs a
    /// terminal; `probeshim probes` prints a table. The guide docs/guides/top.md has the details.
    Top(TopCommand),

    /// Show pods, probes, events or calls, with the commands of kubectl
    Get(GetCommand),

    /// Describe a pod, in the format of `kubectl describe`
    ///
    /// A pod that probeshim manages is described with its specification. For a pod of another
    /// client, what is known from the runtime, and its last calls.
    Describe(DescribeCommand),

    /// Show the status of a running probeshim and its runtime, and what needs attention
    Status(StatusCommand),

    /// Wait until pods are ready, have succeeded, are deleted, or have been restarted
    ///
    /// A pod, and a probeshim, that does not exist yet is awaited. Exit code 1: --timeout has
    /// expired, or the condition can no longer be met.
    Wait(WaitCommand),

    /// Print the log of a container
    ///
    /// The container may belong to a pod that probeshim runs or to any other pod of the node.
    /// Control characters are escaped if standard output is a terminal.
    Logs(LogsCommand),

    /// Execute a command in a container with ExecSync, through the relay
    ///
    /// Prints the standard output and standard error of the command when it has ended, and exits
    /// with its code. The call is recorded as those of other clients: `probeshim explain` shows
    /// where its time went.
    #[command(override_usage = "probeshim exec [OPTIONS] POD -- CMD...")]
    Exec(ExecCommand),

    /// Delete a pod that play runs from a manifest
    ///
    /// The pod is terminated as by its kubelet, and stays deleted until its manifest changes or
    /// play starts again.
    Delete(DeleteCommand),

    /// Show or change the enforcement mode of a running probeshim
    ///
    /// Only a probeshim that was started with --enforce runs probes and can change its mode. off
    /// stops all probes and kills at once; another mode resumes them. kill is for run, and restart
    /// for play and run --enforce restart. Each change is recorded as an event, with the process
    /// that requested it.
    Mode(ModeCommand),

    /// Make calls slow, fail, hang or return something else
    ///
    /// A rule selects calls and says what happens to them, in the form METHOD KEY=VALUE…: TERM ->
    /// TERM…, such as "ExecSync pod=default/web-*: 2*off -> 1*hang -> delay(500ms)". Keys that
    /// select calls: namespace, pod, container, image, label.NAME, command (a regular expression),
    /// client, probe. Keys that select occasions, counted for each container: from, to (times since
    /// the activation), after, first, every, percentage, seed. at=after applies the actions after
    /// the runtime has executed the call. Actions: delay(DURATION[, JITTER]), abort(CODE[,
    /// MESSAGE]), hang, drop, refuse, goaway, exit(CODE[, STDOUT[, STDERR]]),
    /// set(request|response.PATH=VALUE), remove(PATH); for streams truncate(N[, CODE]), repeat(N),
    /// delayEach(DURATION), reverse(N). Each rule ends by itself. The guide docs/guides/faults.md
    /// has examples.
    Fault(FaultCommand),

    /// Pause the exec probes of containers for a limited time, and hold kills by probeshim
    ///
    /// SELECTOR is a pod such as shop/web-*, or KEY=PATTERN,… such as
    /// namespace=shop,label.app=web,container=main. Exec probes of a kubelet that pass through
    /// probeshim are not executed: a liveness probe is answered with success; a startup probe with
    /// UNAVAILABLE, which the kubelet discards. Readiness probes are paused only with --readiness,
    /// and the pod stays as ready as it is. HTTP, TCP and gRPC probes of a kubelet do not pass
    /// through probeshim: they are not paused, and the kubelet still kills containers because of
    /// them. The output shows each probe. Without SELECTOR and --for, shows the active pauses. The
    /// guide docs/guides/pauses.md has the details.
    #[command(override_usage = "probeshim pause [OPTIONS] SELECTOR --for DURATION\n       \
        probeshim pause [OPTIONS] --all --for DURATION\n       probeshim pause [OPTIONS]")]
    Pause(PauseCommand),

    /// End pauses: probes are executed again, and kills are no longer held
    ///
    /// Without a name and --all, ends the only pause. If several are active, they are listed and
    /// none ends.
    Resume(ResumeCommand),

    /// Validate manifests and the configuration by the rules of Kubernetes, and show their probes
    ///
    /// Reports all errors together, each with its file, line and path, as play does. The exit code
    /// is 2 if there are any. Warns about what is valid, but probably a mistake.
    Check(CheckCommand),

    /// Print the JSON schema of the configuration file
    Schema,

    /// Install this program as a service of systemd, and point the kubelet at it with --kubelet
    ///
    /// Writes /usr/local/bin/probeshim, probeshim.socket and probeshim.service, and starts them.
    /// With --kubelet, a drop-in of the kubelet's unit adds the endpoint, and the kubelet is
    /// restarted; containers keep running. Checks follow: the kubelet is healthy, lists are equal
    /// directly and through probeshim, a call and a probe of the kubelet are seen. Unless the
    /// change is then confirmed, by Enter, `probeshim confirm` or --yes, systemd reverts it. Exit
    /// code 1: a check failed and nothing was changed, or the change was reverted.
    Install(InstallCommand),

    /// Keep the change of `probeshim install --kubelet`, so that it is not reverted
    Confirm(ConfirmCommand),

    /// Point the kubelet back at the runtime, and remove what `install` wrote
    Uninstall(UninstallCommand),

    /// Check the node and the installation, and name what helps where something is wrong
    Doctor(DoctorCommand),

    /// Measure calls through a running probeshim
    Bench(BenchArgs),

    /// Serve the CRI with containers that are plain processes of this host, until SIGTERM or SIGINT
    ///
    /// For demos, tests and laptops. Nothing is isolated: a container is a session of processes
    /// with its own working directory. Images are only names, and have no default commands.
    Runtime(RuntimeFlags),

    /// Run a demo: four pods on a runtime of plain processes, with their calls and probes through
    /// probeshim
    ///
    /// Needs neither root nor a container runtime, and leaves nothing behind. Ctrl-C ends it early,
    /// with exit code 130.
    Demo(Demo),

    /// Show the versions of this program, of a running probeshim and of its runtime
    Version(VersionCommand),

    /// Print the script that completes commands and flags in a shell
    ///
    /// For bash: source <(probeshim completion bash). `make install` installs the scripts.
    Completion(CompletionCommand),

    /// Show whether a probeshim is running, and what to try. Takes the place of a missing
    /// subcommand
    #[command(hide = true)]
    Overview(OverviewCommand),

    /// Write the man pages to a directory
    #[command(hide = true)]
    Man(ManCommand),

    /// Monitor the processes of one container. Started by `runtime`
    #[command(name = monitor::SUBCOMMAND, hide = true)]
    Monitor {
        /// Name of the container. It is only for readers of a process list.
        name: String,
        /// Directory of the container. It is only for readers of a process list.
        dir: String,
    },
}

/// Returns the parser of `play --enforce`. It refuses `kill`, since `play` always restarts the
/// containers that it kills.
fn play_mode() -> impl TypedValueParser<Value = EnforcementMode> {
    let modes = EnforcementMode::value_variants().iter().filter(|mode| **mode != EnforcementMode::Kill);
    let names = PossibleValuesParser::new(modes.filter_map(ValueEnum::to_possible_value));
    names.try_map(|name| EnforcementMode::from_str(&name, false))
}

#[cfg(test)]
pub(crate) mod snapshots;
#[cfg(test)]
mod tests;
