//! Flags of `play`, and the settings computed from them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::check::no_pod;
use super::file::File;
use super::filename_arg::FilenameArg;
use super::validator::Validator;
use super::values::{BoundedDuration, DirPath, LogSizeLimit, ValueError, whole_number};
use super::{Environment, Flags, FreeInstance, PrivateDir, Problems, Purpose, ServerConfig, Settings};
use crate::kubelet::{LogRotatePolicy, ManifestLimits, ManifestSource};
use crate::manifest::shown_path;
use crate::probe::SpecSources;
use crate::procrun::has_program;
use crate::telemetry;

/// Directory of the kubelet's pod logs.
const LOGS: &str = "/var/log/pods";

/// Default of `--max-pods`.
const MAX_PODS: usize = 1000;

/// Directories in which a program is looked up without PATH, as by execvp of glibc.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Name of the socket of the runtime that `play` starts.
const UPSTREAM: &str = "procrun.sock";

/// Default log filter if the events of pods are printed as text.
const DEFAULT_LOG_BESIDE_TEXT: &str = "warn";

/// Largest number of log files of a container that the kubelet accepts.
const MAX_LOG_FILES: u64 = i32::MAX as u64;

/// Flags of `play`. An absent flag has its default.
#[derive(Clone, Debug, Default, Args)]
#[expect(clippy::doc_markdown, reason = "these comments are what --help prints")]
pub struct PlayFlags {
    /// Files and directories of manifests, in YAML or JSON: Pod, or a workload with a pod template,
    /// whose pods are run as by its controller, and the ConfigMaps, Secrets and RuntimeClasses to
    /// which they refer. A directory is watched: a new manifest starts a pod, a removed one
    /// terminates it. - reads manifests from standard input
    #[arg(value_name = "PATH", required_unless_present = "filenames")]
    pub paths: Vec<PathBuf>,

    #[command(flatten)]
    pub(super) filename: FilenameArg,

    /// Ignore fields that a node without a cluster cannot honour, such as volumes of a cluster's
    /// storage, with a warning for each. Without this flag they are errors
    #[arg(long)]
    pub ignore_unsupported: bool,

    /// Condition that ends play with exit code 0, or starts the COMMAND: all pods are ready, all
    /// pods have succeeded, or one container has been restarted N times
    #[arg(long, value_name = "ready|succeeded|restarts=N", allow_hyphen_values = true)]
    pub until: Option<Until>,

    /// Time after which play ends with exit code 1, 1s to 24h; with a COMMAND the time until it
    /// starts [default: never]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub timeout: Option<BoundedDuration<1>>,

    /// Directory for logs of pods, which are then kept [default: /var/log/pods, without root
    /// pod-logs below --state-dir; removed with each pod]
    #[arg(long, value_name = "DIR", allow_hyphen_values = true)]
    pub pod_logs: Option<DirPath>,

    /// Size from which a container's log is rotated, such as 10Mi, or -1 for never, as in the
    /// kubelet's flag [default: 10Mi]
    #[arg(long, value_name = "QUANTITY", allow_hyphen_values = true)]
    pub container_log_max_size: Option<LogSizeLimit>,

    /// Maximum number of log files per container, at least 2, as in the kubelet's flag [default: 5]
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = whole_number::<usize, 2, MAX_LOG_FILES>)]
    pub container_log_max_files: Option<usize>,

    /// Interval between checks of the sizes of logs, 3s to 24h, as in the kubelet's
    /// containerLogMonitorInterval [default: 10s]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub container_log_monitor_interval: Option<BoundedDuration<3>>,

    /// Maximum number of pods of all manifests together, 1 to 10000, with all completions of jobs;
    /// manifests with more are refused [default: 1000]
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = whole_number::<usize, 1, 10_000>)]
    pub max_pods: Option<usize>,

    /// Remove pods of earlier runs with this --state-dir that no manifest names, which remain after
    /// a forced end. Without this flag they are only reported
    #[arg(long)]
    pub prune: bool,

    /// Runtime to start for the pods, in a private directory that is removed at the end: procrun,
    /// whose containers are plain processes of this host. Needs neither root nor a container
    /// runtime. The state is in the private directory too, unless --state-dir names another
    #[arg(long, value_name = "procrun", value_enum, conflicts_with = "upstream")]
    pub runtime: Option<EmbeddedRuntimeName>,

    /// Do not print the events and the final table of the pods, nor warnings about probable
    /// mistakes in the manifests
    #[arg(short, long)]
    pub quiet: bool,

    /// Command to run once the condition of --until is met, by default once all pods are ready. Its
    /// end terminates the pods, and play exits with its exit code. Its environment has
    /// PROBESHIM_ADMIN and CONTAINER_RUNTIME_ENDPOINT, so that probeshim's other commands and
    /// crictl find the pods. The events of the pods are then printed on standard error. The default
    /// of --instance is then auto
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,

    #[command(flatten)]
    pub(super) common: Flags,
}

/// Name of a runtime that `play` can start. `--help` prints the comments of the variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EmbeddedRuntimeName {
    /// Containers are plain processes of this host, with no isolation
    Procrun,
}

/// Validated settings of `play`.
#[derive(Clone, Debug)]
pub struct PlaySettings {
    /// Settings of the relay and of everything that observes it.
    pub shim: ServerConfig,
    /// Settings of the log.
    pub log: telemetry::LogConfig,
    /// The pods to run, and the objects to which they refer.
    pub documents: ManifestSource,
    /// Condition that ends `play` with success before all pods have ended.
    pub until: Option<Until>,
    /// Time after which `play` fails; `None` for never.
    pub timeout: Option<Duration>,
    /// Directory of the logs of pods.
    pub logs: PathBuf,
    /// Whether the logs of a pod are kept when the pod is removed.
    pub keep_logs: bool,
    /// Limits of the logs of containers.
    pub log_rotation: LogRotatePolicy,
    /// Directory of the files of pods.
    pub pods: PathBuf,
    /// Whether pods of an earlier run that no manifest names are removed.
    pub prune: bool,
    /// Directory of the runtime that `play` starts; `None` if it uses another runtime.
    pub private_dir: Option<PrivateDir>,
    /// Whether the events and the final table of the pods are omitted.
    pub quiet: bool,
    /// Command to run once the condition is met; empty for none.
    pub command: Vec<OsString>,
    /// The instance, if its name was chosen.
    pub instance: Option<FreeInstance>,
}

/// Condition that ends `play` with success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// All pods are ready.
    Ready,
    /// All pods have succeeded.
    Succeeded,
    /// One container has been restarted this number of times.
    Restarts(u32),
}

impl PlaySettings {
    /// Checks the flags, the configuration file and the manifests. The error has all problems, not
    /// only the first.
    pub fn new(flags: PlayFlags, around: &Environment) -> Result<Self, Problems> {
        let log_rotation = flags.log_rotation();
        let PlayFlags { paths, ignore_unsupported, until, timeout, pod_logs, prune, mut common, .. } = flags;
        let PlayFlags { quiet, command, runtime, max_pods, .. } = flags;
        let paths = flags.filename.with(paths);
        let mut validator = Validator::default();
        let instance = chosen_instance(&common, !command.is_empty(), around, &mut validator);
        let name = instance.as_ref().map(|chosen| &chosen.name).or(common.instance.instance.as_ref());
        let around = &around.of_instance(name);
        if !common.manifests.is_empty() {
            validator.error(
                "--manifests",
                None,
                "is a flag of run; play takes manifests as arguments".to_owned(),
            );
        }
        check_command(&command, &mut validator);
        let private_dir = runtime.and_then(|_| {
            let dir = PrivateDir::create("probeshim-play.").and_then(|dir| Ok((dir.socket(UPSTREAM)?, dir)));
            dir.map_err(|error| validator.error("--runtime", None, error.to_string())).ok()
        });
        let private_dir = private_dir.map(|(upstream, dir)| {
            common.upstream = Some(upstream);
            common.state_dir.get_or_insert_with(|| DirPath(dir.path().join("state")));
            dir
        });
        let (enforce, most) = (common.enforce, common.max_kills);
        let file = File::read(&mut common, around, &mut validator);
        // In the file, these fields are for `run`, where a kubelet restarts the containers that
        // were killed.
        (common.enforce, common.max_kills, common.manifests) = (enforce, most, Vec::new());
        let limits = ManifestLimits {
            ignore_unsupported,
            needs_commands: runtime == Some(EmbeddedRuntimeName::Procrun),
            redact: common.redact_commands,
            max_pods: max_pods.unwrap_or(MAX_PODS),
        };
        let documents = match ManifestSource::read(&paths, limits, file.specs()) {
            Ok(documents) if documents.is_empty() && !paths.iter().any(|path| path.is_dir()) => {
                for path in &paths {
                    validator.error("", None, no_pod(path));
                }
                None
            }
            Ok(documents) => Some(documents),
            Err(problems) => {
                for problem in problems {
                    validator.error("", None, problem);
                }
                if let Some(hint) = hint_at_command(&paths) {
                    validator.error("", None, hint);
                }
                None
            }
        };
        // Text about the pods takes the place of log lines below a warning.
        if common.log.is_none() && (around.has_terminal || !command.is_empty()) {
            common.log = DEFAULT_LOG_BESIDE_TEXT.parse().ok();
        }
        let settings = Settings::from_flags(common, file, validator, around, Purpose::Play);
        let Settings { mut shim, log } = settings?;
        // If one of them is missing, the problem has already been reported.
        let (Some(documents), Some(state)) = (documents, shim.state.clone()) else {
            return Err(Problems(Vec::new()));
        };
        shim.specs = documents.specs();
        shim.sources = SpecSources { redacts: shim.sources.redacts, ..SpecSources::default() };
        let is_on_host = around.is_root() && private_dir.is_none();
        let default = if is_on_host { PathBuf::from(LOGS) } else { state.join("pod-logs") };
        Ok(Self {
            shim,
            log,
            documents,
            until: until.or_else(|| (!command.is_empty()).then_some(Until::Ready)),
            timeout: timeout.map(Duration::from),
            keep_logs: pod_logs.is_some(),
            logs: pod_logs.map_or(default, |DirPath(logs)| logs),
            log_rotation,
            pods: state.join("pods"),
            prune,
            private_dir,
            quiet,
            command,
            instance,
        })
    }
}

/// Returns the instance whose name is chosen: for `--instance auto`, and by default for a COMMAND,
/// whose environment has the sockets. Several tests can then run at the same time.
fn chosen_instance(
    flags: &Flags,
    has_command: bool,
    around: &Environment,
    validator: &mut Validator,
) -> Option<FreeInstance> {
    let is_chosen = match &flags.instance.instance {
        Some(name) => name.is_auto(),
        None => has_command && (flags.listen.is_none() || flags.admin.is_none()),
    };
    is_chosen.then(|| validator.free_instance(around)).flatten()
}

/// Reports a COMMAND that is no program.
fn check_command(command: &[OsString], validator: &mut Validator) {
    let program = command.first().and_then(|program| program.to_str());
    if let Some(program) = program.filter(|program| !is_program(program)) {
        validator.error("COMMAND", Some(program), "must be a program in PATH, or the path of one".to_owned());
    }
}

/// Returns whether a shell would find a program of this name.
fn is_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    has_program(name, Path::new("."), &path.to_string_lossy())
}

/// Returns a hint at the form of a COMMAND, if a path after the first one does not exist, but is
/// the name of a program.
fn hint_at_command(paths: &[PathBuf]) -> Option<String> {
    let is_command = |path: &PathBuf| !path.exists() && path.to_str().is_some_and(is_program);
    let place = paths.iter().skip(1).position(is_command)? + 1;
    let shown = |paths: &[PathBuf]| {
        let shown: Vec<String> = paths.iter().map(|path| shown_path(path).to_string()).collect();
        shown.join(" ")
    };
    let (manifests, command) = paths.split_at(place);
    let line = format!("probeshim play {} -- {}", shown(manifests), shown(command));
    Some(format!("hint: a COMMAND follows --, as in `{line}`"))
}

impl PlayFlags {
    /// Returns the limits of container logs. A limit without a flag has the kubelet's default.
    fn log_rotation(&self) -> LogRotatePolicy {
        let default = LogRotatePolicy::default();
        LogRotatePolicy {
            max_size: self.container_log_max_size.map_or(default.max_size, |LogSizeLimit(bytes)| bytes),
            max_files: self.container_log_max_files.unwrap_or(default.max_files),
            monitor_interval: self
                .container_log_monitor_interval
                .map_or(default.monitor_interval, Duration::from),
        }
    }
}

impl FromStr for Until {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let restarts = || text.strip_prefix("restarts=")?.parse().ok().filter(|count| *count > 0);
        match text {
            "ready" => Ok(Self::Ready),
            "succeeded" => Ok(Self::Succeeded),
            _ => restarts()
                .map(Self::Restarts)
                .ok_or_else(|| ValueError::expected("ready, succeeded, or restarts=N with N from 1")),
        }
    }
}
