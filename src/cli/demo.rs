//! `probeshim demo`

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use clap::Args;

use super::query::query_calls;
use super::{CliError, explain, lint};
use crate::admin::Client;
use crate::admin::api::CallsQuery;
use crate::config::{
    BoundedDuration, DemoSettings, FaultFlag, LoopbackAddress, OrOff, PolicySettings, Problems,
};
use crate::socket::SocketPath;

/// Flags of `demo`.
#[derive(Debug, Args)]
pub struct Demo {
    /// Duration of the demo, 1s to 24h
    #[arg(long = "for", value_name = "DURATION", default_value = "25s", allow_hyphen_values = true)]
    lasts: BoundedDuration<1>,

    /// Print only the explanation and the findings at the end
    #[arg(short, long)]
    quiet: bool,

    /// Loopback address of the web page and the metrics, or off; port 0 selects a free port
    /// [default: 127.0.0.1:0]
    #[arg(long, value_name = "ADDRESS", allow_hyphen_values = true)]
    http: Option<OrOff<LoopbackAddress>>,

    /// Fault to inject into calls, in the form METHOD KEY=VALUE…: TERM -> TERM…, such as "ExecSync
    /// client=probeshim pod=demo/steady: 3*off -> exit(1)". All calls of the demo are those of the
    /// client probeshim. May be repeated
    #[arg(long, value_name = "RULE", allow_hyphen_values = true)]
    fault: Vec<FaultFlag>,
}

impl Demo {
    /// Returns the settings of the demo. The error has all problems.
    pub fn settings(self) -> Result<DemoSettings, Problems> {
        let free_port = OrOff(Some(LoopbackAddress((Ipv4Addr::LOCALHOST, 0).into())));
        Ok(DemoSettings {
            lasts: self.lasts.into(),
            is_quiet: self.quiet,
            http: self.http.unwrap_or(free_port).0.map(|LoopbackAddress(address)| address),
            faults: PolicySettings::of_flags(self.fault)?,
        })
    }
}

/// Returns the results of the demo: the explanation of the slowest call that failed, or else of the
/// slowest call, and the findings, each below the command that prints it.
pub async fn demo_results(admin: SocketPath) -> String {
    let client = Client::new(admin);
    let results = async {
        let mut text = String::new();
        if let Some(call) = slowest_call(&client).await? {
            let _ =
                writeln!(text, "$ probeshim explain {call}\n{}", explain::call_text(&client, call).await?);
        }
        let _ = writeln!(text, "$ probeshim lint\n{}", lint::last_hour_text(&client).await?);
        Ok::<_, CliError>(text)
    };
    results.await.unwrap_or_else(|error| format!("The results cannot be shown: {error}.\n\n"))
}

/// Returns the id of the slowest ExecSync that failed, or else of the slowest; `None` without
/// calls.
async fn slowest_call(client: &Client) -> Result<Option<u64>, CliError> {
    for failed in [true, false] {
        let method = Some("ExecSync".to_owned());
        let query = CallsQuery { method, failed, this_run: true, slowest: Some(1), ..CallsQuery::default() };
        if let [call] = &query_calls(client, &query).await?[..] {
            return Ok(Some(call.id()));
        }
    }
    Ok(None)
}
