//! The call to which `explain` refers.

use clap::Args;

use super::CliError;
use super::known_objects::check_call_names;
use super::pod_arg::NamespaceArg;
use super::query::query_calls;
use crate::admin::Client;
use crate::admin::api::CallsQuery;
use crate::history::ProbeLabel;

/// Hint of the error for a command line that selects no call.
const HINT: &str = "hint: `probeshim explain --last` explains the last ExecSync, --slowest the slowest and --failed the last that \
                    failed; `probeshim calls` shows the ids";

/// The call to explain: its id, or the properties of an ExecSync.
#[derive(Debug, Args)]
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
    /// Returns the id of the call; of the oldest that is in flight, if none has ended.
    pub(super) async fn find(&self, client: &Client) -> Result<u64, CliError> {
        if let Some(id) = self.call {
            return Ok(id);
        }
        if !self.is_chosen() {
            return Err(CliError::Usage(format!(
                "explain needs the id of a call, or a flag that selects one\n{HINT}"
            )));
        }
        let query = self.query();
        if let [call] = &query_calls(client, &query).await?[..] {
            return Ok(call.id());
        }
        // A call that has not been answered is in no record, and is the one that users ask about.
        let unanswered =
            CallsQuery { in_flight: true, settled: false, last: Some(0), slowest: None, ..query.clone() };
        if let Some(call) = query_calls(client, &unanswered).await?.first().filter(|_| !self.failed) {
            return Ok(call.id());
        }
        check_call_names(client, &query).await?;
        let flags = self.flags();
        let that = if flags.is_empty() { String::new() } else { format!(" that matches {flags}") };
        Err(CliError::Usage(format!(
            "no ExecSync of this run is recorded{that}; `probeshim calls --method ExecSync` shows the recorded ones"
        )))
    }

    /// Returns whether the arguments select a call.
    fn is_chosen(&self) -> bool {
        self.call.is_some() || self.last || self.slowest || !self.flags().is_empty()
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
            settled: true,
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

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| {
        let flag = ["last", "slowest", "failed"].into_iter().find(|flag| *flag == text);
        let hint = flag.map(|flag| format!("; write `probeshim explain --{flag}` for that call"));
        let by_pod = || {
            let is_name =
                !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-./".contains(c));
            let pod = text.strip_prefix("pod/").unwrap_or(text);
            is_name
                .then(|| format!("; write `probeshim explain --pod {pod}` for the last ExecSync in that pod"))
        };
        let hint = hint.or_else(by_pod).unwrap_or_else(|| "; `probeshim calls` shows the ids".to_owned());
        format!("must be the id of a call, such as 17{hint}")
    })
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
            (&["17", "--last"][..], "cannot be used with"),
            (&["17", "--pod", "web"], "cannot be used with"),
            (&["--last", "--slowest"], "cannot be used with"),
            (&["last"], "such as 17; write `probeshim explain --last` for that call"),
            (
                &["pod/web"],
                "such as 17; write `probeshim explain --pod web` for the last ExecSync in that pod",
            ),
            (&["#17"], "such as 17; `probeshim calls` shows the ids"),
        ] {
            let error = parsed(line).unwrap_err();
            assert!(error.contains(expected), "{line:?}: {error}");
        }
        assert!(!parsed(&[]).unwrap().is_chosen() && parsed(&["--pod", "web"]).unwrap().is_chosen());
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
