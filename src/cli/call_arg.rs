//! The call to which `explain` refers.

use clap::{ArgGroup, Args};

use super::CliError;
use super::calls::check_names;
use super::pod_arg::NamespaceArg;
use super::query::query_calls;
use crate::admin::Client;
use crate::admin::api::CallsQuery;
use crate::history::ProbeLabel;

/// The call to explain: its id, or the properties of an ExecSync.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("call_choice").required(true).multiple(true).args(["call", "last", "slowest", "failed", "probe", "pod", "namespace"]))]
pub(super) struct CallArg {
    /// Id of the call, as shown by `probeshim calls`
    #[arg(value_name = "CALL", value_parser = number, conflicts_with_all = ["last", "slowest", "failed", "probe", "pod", "namespace"])]
    call: Option<u64>,

    /// Explain the last ExecSync that matches the other flags (the default without CALL)
    #[arg(long)]
    last: bool,

    /// Explain the slowest ExecSync that matches the other flags
    #[arg(long, conflicts_with = "last")]
    slowest: bool,

    /// Explain an ExecSync that failed: with a code other than OK, an exit code other than 0, or an
    /// end after the timeout
    #[arg(long)]
    failed: bool,

    /// Explain an ExecSync of this probe or hook: liveness, readiness, startup, postStart, preStop,
    /// ambiguous, probe (inferred from a regular period), unknown
    #[arg(long, value_name = "PROBE")]
    probe: Option<ProbeLabel>,

    /// Explain an ExecSync in this pod: its name, NAMESPACE/NAME, its uid, or a prefix of its
    /// sandbox's id
    #[arg(long, value_name = "POD")]
    pod: Option<String>,

    #[command(flatten)]
    of: NamespaceArg,
}

impl CallArg {
    /// Returns the id of the call.
    pub(super) async fn find(&self, client: &Client) -> Result<u64, CliError> {
        if let Some(id) = self.call {
            return Ok(id);
        }
        let query = self.query();
        if let [call] = &query_calls(client, &query).await?[..] {
            return Ok(call.id());
        }
        check_names(client, &query).await?;
        let flags = self.flags();
        let that = if flags.is_empty() { String::new() } else { format!(" that matches {flags}") };
        Err(CliError::Usage(format!(
            "no ExecSync of this run is recorded{that}; `probeshim calls --method ExecSync` shows the recorded ones"
        )))
    }

    /// Returns the query for the call.
    fn query(&self) -> CallsQuery {
        CallsQuery {
            method: Some("ExecSync".to_owned()),
            namespace: self.of.namespace.clone(),
            pod: self.pod.clone(),
            probe: self.probe.map(|probe| probe.to_string()),
            failed: self.failed,
            this_run: true,
            last: (!self.slowest).then_some(1),
            slowest: self.slowest.then_some(1),
            ..CallsQuery::default()
        }
    }

    /// Returns the flags that limit the choice, as they were written.
    fn flags(&self) -> String {
        let flag = |name: &str, value: Option<&str>| value.map(|value| format!("{name} {value}"));
        let probe = self.probe.map(|probe| probe.to_string());
        let flags = [
            self.failed.then(|| "--failed".to_owned()),
            flag("--probe", probe.as_deref()),
            flag("--pod", self.pod.as_deref()),
            flag("--namespace", self.of.namespace.as_deref()),
        ];
        flags.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }
}

fn number(text: &str) -> Result<u64, &'static str> {
    text.parse().map_err(|_| "must be the id of a call, such as 17; `probeshim calls` shows the ids")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        call: CallArg,
    }

    fn parsed(line: &[&str]) -> Result<CallArg, String> {
        let arguments = [&["explain"], line].concat();
        Line::try_parse_from(arguments).map(|line| line.call).map_err(|error| error.to_string())
    }

    #[test]
    fn explain_takes_either_an_id_or_properties_of_a_call() {
        for line in [&["17"][..], &["--last"], &["--slowest", "--probe", "liveness", "-n", "shop"]] {
            assert!(parsed(line).is_ok(), "{line:?}");
        }
        for (line, expected) in [
            (&[][..], "the following required arguments were not provided"),
            (&["17", "--last"], "cannot be used with"),
            (&["17", "--pod", "web"], "cannot be used with"),
            (&["--last", "--slowest"], "cannot be used with"),
            (&["last"], "must be the id of a call"),
        ] {
            let error = parsed(line).unwrap_err();
            assert!(error.contains(expected), "{line:?}: {error}");
        }
    }

    #[test]
    fn explain_queries_the_last_or_the_slowest_matching_call() {
        for (line, last, slowest) in [
            (&["--last"][..], Some(1), None),
            (&["--failed"], Some(1), None),
            (&["--slowest"], None, Some(1)),
        ] {
            let query = parsed(line).unwrap().query();
            assert_eq!((query.last, query.slowest), (last, slowest), "{line:?}");
        }
        let query = parsed(&["--slowest", "--failed", "--pod", "web", "-n", "shop"]).unwrap();
        assert_eq!(query.flags(), "--failed --pod web --namespace shop");
    }
}
