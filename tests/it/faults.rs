//! Faults that rules inject into calls, at the relay between a client and a runtime of the tests.

mod actions;
mod program;
mod selection;
mod streams;
mod upstream;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fixtures::http2::client::{Client, head};
use fixtures::http2::runtime::{Connection, Runtime};
use fixtures::http2::{Shim, framed, read_all, shim_with_policy};
use fixtures::wait::soon;
use h2::client::ResponseFuture;
use http::HeaderMap;
use probeshim::cri::v1;
use probeshim::policy::{FaultRule, FaultRules, Policies, RuleSource};
use probeshim::tap::Call;
use prost::Message;

/// A relay with fault rules, a client and the runtime's side of its connection.
struct Faulty {
    rules: FaultRules,
    client: Client,
    connection: Connection,
    runtime: Runtime,
    shim: Shim,
}

impl Faulty {
    /// Starts a relay with rules. A rule has the name `rule-` with its number from 1. The client is
    /// this process, whose calls only rules for the client probeshim select.
    async fn with(rules: &[&str]) -> Self {
        Self::for_a_while(rules, None).await
    }

    /// Starts a relay with rules that have a lifetime.
    async fn for_a_while(texts: &[&str], lifetime: Option<Duration>) -> Self {
        let policies = Policies::default();
        let rules = policies.faults.clone();
        tokio::spawn(rules.clone().expire());
        let numbered = (1..).zip(texts);
        let parsed = numbered.map(|(number, text)| {
            FaultRule::parse(&format!("rule-{number}"), text, lifetime, false).unwrap()
        });
        rules.add(parsed.collect(), RuleSource::Flag, "the test").unwrap();
        let shim = shim_with_policy(Arc::new(policies));
        let (client, connection, runtime) = shim.joined().await;
        Self { rules, client, connection, runtime, shim }
    }

    /// Starts an ExecSync.
    fn exec(&mut self) -> ResponseFuture {
        self.client.call(EXEC_SYNC, exec_request())
    }

    /// Answers the next call, which must have this request.
    async fn answer(&mut self, request: &Bytes, response: Bytes) {
        let mut call = self.connection.call().await;
        assert_eq!(call.body().await, request);
        call.answer(response);
    }

    /// Waits until the first rule has hit a call.
    async fn has_hit(&self) {
        soon(async {
            while self.rules.list()[0].hits == 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    /// Returns the marks of the first `count` calls: rules and actions.
    async fn marks(&self, count: usize) -> Vec<String> {
        self.shim.seen(count).await.iter().map(|call| marks(call)).collect()
    }
}

const EXEC_SYNC: &str = "/runtime.v1.RuntimeService/ExecSync";
const STATUS: &str = "/runtime.v1.RuntimeService/Status";
const EVENTS: &str = "/runtime.v1.RuntimeService/GetContainerEvents";

fn message(message: &impl Message) -> Bytes {
    framed(false, &message.encode_to_vec())
}

fn exec_request() -> Bytes {
    message(&v1::ExecSyncRequest { container_id: "c0ffee".into(), cmd: vec!["true".into()], timeout: 1 })
}

fn exec_response(exit_code: i32) -> Bytes {
    message(&v1::ExecSyncResponse { exit_code, stdout: b"out".into(), stderr: Vec::new() })
}

/// Returns the data of a response, and its status, message and details.
async fn outcome(response: ResponseFuture) -> (Bytes, [Option<String>; 3]) {
    let (head, mut body) = head(response).await;
    let (data, trailers) = read_all(&mut body).await.unwrap();
    (data, status(&trailers.unwrap_or_else(|| head.headers().clone())))
}

fn status(headers: &HeaderMap) -> [Option<String>; 3] {
    ["grpc-status", "grpc-message", "grpc-status-details-bin"]
        .map(|name| headers.get(name).map(|value| value.to_str().unwrap().to_owned()))
}

/// Returns the status OK.
fn fine() -> [Option<String>; 3] {
    [Some("0".to_owned()), None, None]
}

fn marks(call: &Call) -> String {
    let marks = call.marks.iter().flat_map(|marks| &marks.faults);
    let marks: Vec<String> = marks.map(|mark| format!("{} {}", mark.name, mark.action)).collect();
    marks.join(", ")
}
