//! The arguments of `bench exec --storm`.

use std::str::FromStr;

use clap::Args;

use super::super::CliError;
use super::super::stderr::note;
use crate::bench::{StormReport, StormSpec, run_storm};
use crate::config::{BoundedDuration, ValueError, whole_number};
use crate::socket::SocketPath;
use crate::terminal::format;

/// Default of the maximum number of calls in flight: a kubelet makes so many if 200 probes with a
/// period of one second do not end in time.
const CONCURRENCY: usize = 200;

/// Default of the timeout in seconds, as of `timeoutSeconds` of a probe.
const TIMEOUT_SECONDS: u32 = 1;

/// Maximum number of steps.
const MAX_STEPS: usize = 50;

/// Arguments of a storm.
#[derive(Debug, Args)]
pub(super) struct StormArgs {
    /// Offer calls to one endpoint at increasing rates, whether or not earlier calls have ended,
    /// and report where it saturates
    #[arg(long)]
    pub(super) storm: bool,

    /// Rates of the steps of a storm in calls per second: up to 50 ascending whole numbers from 1
    /// to 1000
    #[arg(long, value_name = "LIST", default_value = "1,2,5,10,20,50,100,200", requires = "storm")]
    rates: StormRates,

    /// Time for which each step of a storm offers calls, 1s to 24h
    #[arg(long, value_name = "DURATION", default_value = "10s", requires = "storm")]
    duration_per_step: BoundedDuration<1>,

    /// Socket to which a storm sends its calls, such as that of the runtime [default: the socket
    /// of the probeshim]
    #[arg(long, value_name = "URI", requires = "storm")]
    endpoint: Option<SocketPath>,
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
    pub(super) fn validate(&self, containers: &[String], timeout: Option<u32>) -> Result<(), CliError> {
        let error = match (self.storm, containers.len(), timeout) {
            (false, 2.., _) => format!(
                "invalid number {} of '--container <CONTAINER>': must be 1, or any with --storm",
                containers.len()
            ),
            (true, _, Some(0)) => format!(
                "invalid value '0' for '--timeout <SECONDS>': must be a whole number from 1 to {} with --storm",
                u32::MAX
            ),
            _ => return Ok(()),
        };
        Err(CliError::Usage(error))
    }

    /// Runs the storm. `relayed` is the default of the endpoint.
    pub(super) async fn run(
        self,
        relayed: SocketPath,
        containers: Vec<String>,
        command: Vec<String>,
        timeout: Option<u32>,
        concurrency: Option<usize>,
    ) -> Result<StormReport, CliError> {
        let spec = StormSpec {
            endpoint: self.endpoint.unwrap_or(relayed),
            containers,
            command,
            timeout_seconds: timeout.unwrap_or(TIMEOUT_SECONDS),
            concurrency: concurrency.unwrap_or(CONCURRENCY),
            rates: self.rates.0,
            step_duration: self.duration_per_step.into(),
        };
        let (steps, duration) = (spec.rates.len(), format::duration(spec.step_duration));
        let on_step = |number, rate| {
            note(&format!("step {number} of {steps}: a rate of {rate} per second for {duration}"));
        };
        run_storm(&spec, on_step).await.map_err(CliError::from_display)
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
            &["--storm", "--rates", "1,7", "--duration-per-step", "1m"],
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
            (&["--storm", "--endpoint", "tcp://a"], "invalid value 'tcp://a' for '--endpoint <URI>'"),
        ] {
            let error = error(arguments).unwrap_or_default();
            assert!(error.contains(expected), "{arguments:?}: {error}");
        }
    }
}
