//! The arguments of `bench exec --storm`.

use std::str::FromStr;

use clap::Args;

use super::super::CliError;
use super::super::stderr::note;
use super::endpoint_arg::{ContainerArg, EndpointArg, containers_of, name_errors};
use crate::bench::{StormEndpoint, StormProgress, StormReport, StormSpec, run_storm};
use crate::config::{BoundedDuration, ValueError, whole_number};
use crate::socket::SocketPath;
use crate::terminal::{MAX_NAME_WIDTH, format, shortened};

/// Default of the maximum number of calls in flight: a kubelet makes so many if 200 probes with a
/// period of one second do not end in time.
const CONCURRENCY: usize = 200;

/// Default of the timeout in seconds, as of `timeoutSeconds` of a probe.
const TIMEOUT_SECONDS: u32 = 1;

/// Default of the number of calls to each container before the first step. probeshim executes the
/// commands of a container itself from the fourth call on, if it can.
const WARM_UP: usize = 5;

/// Maximum number of steps.
const MAX_STEPS: usize = 50;

/// Arguments of a storm.
#[derive(Debug, Args)]
pub(super) struct StormArgs {
    /// Offer calls to one or more endpoints at increasing rates, whether or not earlier calls have
    /// ended, and report where each saturates
    #[arg(long)]
    pub(super) storm: bool,

    /// Rates of the steps of a storm in calls per second: up to 50 ascending whole numbers from 1
    /// to 1000
    #[arg(long, value_name = "LIST", default_value = "1,2,5,10,20,50,100,200", requires = "storm")]
    rates: StormRates,

    /// Time for which each step of a storm offers calls to each endpoint, 1s to 24h
    #[arg(long, value_name = "DURATION", default_value = "10s", requires = "storm")]
    duration_per_step: BoundedDuration<1>,

    /// Socket to which a storm sends its calls, such as that of the runtime. Repeated with names,
    /// the endpoints take turns in each step, and are compared with the first [default: the socket
    /// of the probeshim]
    #[arg(long, value_name = "[NAME=]URI", requires = "storm")]
    endpoint: Vec<EndpointArg>,

    /// Number of calls to each container of each endpoint before the first step of a storm, 1 to
    /// 1000
    #[arg(long, value_name = "N", default_value_t = WARM_UP, requires = "storm", value_parser = whole_number::<usize, 1, 1_000>)]
    warm_up: usize,

    /// Offer no more calls to an endpoint after its first saturated step of a storm
    #[arg(long, requires = "storm")]
    until_saturated: bool,
}

/// Rates of the steps in calls per second, ascending, such as `1,5,20`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StormRates(Vec<u32>);

impl FromStr for StormRates {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let rates: Option<Vec<u32>> =
            text.split(',').map(|rate| whole_number::<u32, 1, 1_000>(rate.trim()).ok()).collect();
        let is_valid = |rates: &Vec<u32>| rates.len() <= MAX_STEPS && rates.is_sorted_by(|a, b| a < b);
        rates.filter(is_valid).map(Self).ok_or_else(|| {
            ValueError::expected(format_args!(
                "up to {MAX_STEPS} ascending whole numbers from 1 to 1000 with commas between them, such as 1,5,20"
            ))
        })
    }
}

impl StormArgs {
    /// Returns all errors in arguments whose allowed values depend on `--storm`.
    pub(super) fn validate(&self, containers: &[ContainerArg], timeout: Option<u32>) -> Result<(), CliError> {
        let mut errors = Vec::new();
        if self.storm {
            if timeout == Some(0) {
                errors.push(format!(
                    "invalid value '0' for '--timeout <SECONDS>': must be a whole number from 1 to {} with --storm",
                    u32::MAX
                ));
            }
            errors.extend(name_errors(&self.endpoint, containers));
        } else {
            if containers.len() > 1 {
                errors.push(format!(
                    "invalid number {} of '--container <CONTAINER>': must be 1, or any with --storm",
                    containers.len()
                ));
            }
            if let Some(named) = containers.iter().find(|container| container.endpoint.is_some()) {
                let named = named.to_string();
                let shown = shortened(&named, MAX_NAME_WIDTH);
                errors.push(format!(
                    "invalid value '{shown}' for '--container <CONTAINER>': must be CONTAINER, or ENDPOINT=CONTAINER with --storm"
                ));
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(CliError::Usage(errors.join("\n"))) }
    }

    /// Returns the endpoints with their containers. `relayed` is the default endpoint, and `find`
    /// returns the ids of containers. The error names everything that is wrong.
    pub(super) fn endpoints(
        &self,
        relayed: SocketPath,
        containers: &[ContainerArg],
        find: impl Fn(&[String]) -> Result<Vec<String>, CliError>,
    ) -> Result<Vec<StormEndpoint>, CliError> {
        let default = [EndpointArg { name: None, socket: relayed }];
        let given = if self.endpoint.is_empty() { &default[..] } else { &self.endpoint };
        let (mut endpoints, mut errors) = (Vec::new(), Vec::new());
        for EndpointArg { name, socket } in given {
            match find(&containers_of(name.as_deref(), containers)) {
                Ok(containers) => endpoints.push(StormEndpoint {
                    name: name.clone().unwrap_or_else(|| socket.to_string()),
                    socket: socket.clone(),
                    containers,
                }),
                Err(error) => {
                    let error = error.to_string();
                    let lines = error.lines().map(str::to_owned).filter(|line| !errors.contains(line));
                    let lines: Vec<String> = lines.collect();
                    errors.extend(lines);
                }
            }
        }
        if errors.is_empty() { Ok(endpoints) } else { Err(CliError::Usage(errors.join("\n"))) }
    }

    /// Runs the storm.
    pub(super) async fn run(
        self,
        endpoints: Vec<StormEndpoint>,
        command: Vec<String>,
        timeout: Option<u32>,
        concurrency: Option<usize>,
    ) -> Result<StormReport, CliError> {
        let spec = StormSpec {
            endpoints,
            command,
            timeout_seconds: timeout.unwrap_or(TIMEOUT_SECONDS),
            concurrency: concurrency.unwrap_or(CONCURRENCY),
            warm_up: self.warm_up,
            rates: self.rates.0,
            step_duration: self.duration_per_step.into(),
            until_saturated: self.until_saturated,
        };
        let (steps, duration) = (spec.rates.len(), format::duration(spec.step_duration));
        let is_comparison = spec.endpoints.len() > 1;
        let on_progress = |progress: StormProgress| match progress {
            StormProgress::IdleNode { duration } => {
                note(&format!("the idle node: no calls for {}", format::duration(duration)));
            }
            StormProgress::Step { step, rate, endpoint } => {
                let endpoint = if is_comparison { format!(", {endpoint}") } else { String::new() };
                note(&format!(
                    "step {step} of {steps}{endpoint}: a rate of {rate} per second for {duration}"
                ));
            }
        };
        run_storm(&spec, on_progress).await.map_err(CliError::from_display)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::super::{Cli, CliCommand};
    use super::super::{BenchArgs, BenchCommand};
    use super::*;

    /// Parses and validates the arguments of `bench exec`. Returns the error.
    fn error(arguments: &[&str]) -> Option<String> {
        let line = [&["probeshim", "bench", "exec", "--container", "main"], arguments, &["--", "true"]];
        let CliCommand::Bench(BenchArgs { what: BenchCommand::Exec(exec) }) =
            (match Cli::try_parse_from(line.concat()) {
                Ok(cli) => cli.command,
                Err(error) => return Some(error.to_string()),
            })
        else {
            panic!("another command");
        };
        exec.storm.validate(&exec.container, exec.timeout).err().map(|error| error.to_string())
    }

    #[test]
    fn rates_of_a_storm_are_ascending_whole_numbers() {
        let rates = |text: &str| text.parse::<StormRates>().map(|rates| rates.0);
        assert_eq!(rates("1,2,5").unwrap(), [1, 2, 5]);
        assert_eq!(rates("7, 1000").unwrap(), [7, 1000]);
        let many: Vec<String> = (1..=51).map(|rate| rate.to_string()).collect();
        assert_eq!(rates(&many[1..].join(",")).unwrap().len(), 50);
        for text in ["", "0", "1001", "1,", ",1", "2,1", "2,2", "1.5", "-1", "1;2", &many.join(",")] {
            let message = rates(text).unwrap_err().to_string();
            let expected = "must be up to 50 ascending whole numbers from 1 to 1000 with commas";
            assert!(message.starts_with(expected), "{text}: {message}");
        }
    }

    #[test]
    fn arguments_of_a_benchmark_that_contradict_storm_are_refused() {
        for arguments in [
            &[][..],
            &["--calls", "7", "--timeout", "0"],
            &["--storm"],
            &["--storm", "--container", "side", "--timeout", "1", "-c", "50", "--endpoint", "/run/a.sock"],
            &[
                "--storm",
                "--rates",
                "1,7",
                "--duration-per-step",
                "1m",
                "--warm-up",
                "7",
                "--until-saturated",
            ],
            &[
                "--storm",
                "--endpoint",
                "a=/run/a.sock",
                "--endpoint",
                "b=/run/b.sock",
                "--container",
                "b=side",
            ],
        ] {
            assert_eq!(error(arguments), None, "{arguments:?}");
        }
        for (arguments, expected) in [
            (
                &["--container", "side"][..],
                "invalid number 2 of '--container <CONTAINER>': must be 1, or any with --storm",
            ),
            (
                &["--storm", "--timeout", "0"],
                "invalid value '0' for '--timeout <SECONDS>': must be a whole number from 1 to 4294967295",
            ),
            (&["--storm", "--calls", "7"], "the argument '--storm' cannot be used with '--calls <N>'"),
            (&["--rates", "1,2"], "required arguments were not provided:\n  --storm"),
            (&["--duration-per-step", "5s"], "required arguments were not provided:\n  --storm"),
            (&["--endpoint", "/run/a.sock"], "required arguments were not provided:\n  --storm"),
            (&["--storm", "--rates", "5,2"], "invalid value '5,2' for '--rates <LIST>': must be up to 50"),
            (
                &["--storm", "--duration-per-step", "999ms"],
                "invalid value '999ms' for '--duration-per-step <DURATION>': must be a duration from 1s to 24h",
            ),
            (&["--storm", "--endpoint", "tcp://a"], "invalid value 'tcp://a' for '--endpoint <[NAME=]URI>'"),
            (
                &["--storm", "--endpoint", "=/a"],
                "'--endpoint <[NAME=]URI>': must be URI or NAME=URI, with a name",
            ),
            (
                &["--storm", "--endpoint", "/a", "--endpoint", "b=/b"],
                "'--endpoint <[NAME=]URI>': must be NAME=URI if there are several, such as direct=unix:///a",
            ),
            (&["--storm", "--container", "a=side"], "no endpoint is named \"a\""),
            (
                &["--container", "a=side"],
                "invalid value 'a=side' for '--container <CONTAINER>': must be CONTAINER, or ENDPOINT=CONTAINER with --storm",
            ),
            (&["--storm", "--warm-up", "0"], "'--warm-up <N>': must be a whole number from 1 to 1000"),
            (&["--warm-up", "7"], "required arguments were not provided:\n  --storm"),
            (&["--until-saturated"], "required arguments were not provided:\n  --storm"),
        ] {
            let error = error(arguments).unwrap_or_default();
            assert!(error.contains(expected), "{arguments:?}: {error}");
        }
    }
}
