//! Routes of fault rules: they are listed, activated, ended and planned.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::{Extension, Json};
use tokio::sync::Semaphore;

use super::{ApiContext, RequestError};
use crate::admin::access;
use crate::admin::api::{ActiveFault, ClearBody, FaultBody, FaultPlan, FaultsBody, PlannedHit};
use crate::admin::caller::Caller;
use crate::admin::state::Admin;
use crate::execsync::{CallRecord, ProbeMatch};
use crate::history::{Filter, Selection};
use crate::policy::{FaultRule, Plan, PlannedCall, RuleError, RuleSource, is_lifetime};

/// Permits the rules of one request at a time to be parsed.
static PARSER: Semaphore = Semaphore::const_new(1);

/// Name of a rule until it receives another.
const NAMELESS: &str = "fault";

type Body<T> = Result<Json<T>, JsonRejection>;

pub(super) async fn list(State(admin): ApiContext) -> Json<Vec<ActiveFault>> {
    Json(active(&admin, |_| true))
}

/// Activates rules, all or none, and returns them.
pub(super) async fn add(
    State(admin): ApiContext,
    Extension(caller): Extension<Caller>,
    body: Body<FaultsBody>,
) -> Result<Json<Vec<ActiveFault>>, RequestError> {
    let Json(FaultsBody { rules }) = body.map_err(|error| RequestError::BadRequest(error.body_text()))?;
    let rules = ParsedRules::new(rules).await?.named(&admin);
    if let Some(rule) = rules.iter().find(|rule| !rule.lifetime.is_some_and(is_lifetime)) {
        let reason = "needs a lifetime above 0s and up to 24h, such as --for 10m: each rule ends by itself";
        return Err(RequestError::BadRequest(format!("rule {:?} {reason}", rule.name)));
    }
    rules.iter().try_for_each(|rule| access::check_rule(&caller, rule)).map_err(RequestError::Forbidden)?;
    let names: HashSet<Arc<str>> = rules.iter().map(|rule| rule.name.clone()).collect();
    admin
        .state
        .policies
        .faults
        .add(rules, RuleSource::Command, &requester(&caller))
        .map_err(|error| invalid(&error))?;
    Ok(Json(active(&admin, |name| names.contains(name))))
}

/// Ends rules, and returns them as they were.
pub(super) async fn clear(
    State(admin): ApiContext,
    Extension(caller): Extension<Caller>,
    body: Body<ClearBody>,
) -> Result<Json<Vec<ActiveFault>>, RequestError> {
    let Json(ClearBody { names }) = body.map_err(|error| RequestError::BadRequest(error.body_text()))?;
    let ended =
        admin.state.policies.faults.clear(&names, &requester(&caller)).map_err(|error| invalid(&error))?;
    Ok(Json(ended.into_iter().map(ActiveFault::from).collect()))
}

/// Returns the recorded calls that rules would have hit.
pub(super) async fn plan(
    State(admin): ApiContext,
    body: Body<FaultsBody>,
) -> Result<Json<FaultPlan>, RequestError> {
    let Json(FaultsBody { rules }) = body.map_err(|error| RequestError::BadRequest(error.body_text()))?;
    let rules = ParsedRules::new(rules).await?.named(&admin);
    if let Some(rule) = rules.iter().find(|rule| rule.refuses_connections()) {
        let reason = "refuses connections, which are not recorded: it has no plan";
        return Err(RequestError::BadRequest(format!("rule {:?} {reason}", rule.name)));
    }
    let mut records = admin.state.calls.select(&Filter::default(), Selection::All);
    records.sort_unstable_by_key(|record| record.call.id);
    let inventory = admin.state.inventory.borrow().clone();
    // The comparison of thousands of calls takes milliseconds.
    let planned = tokio::task::spawn_blocking(move || {
        let probes: Vec<Vec<&'static str>> = records.iter().map(|record| probes(record)).collect();
        let mut plan = FaultPlan { considered: records.len(), unknown: 0, hits: Vec::new() };
        for rule in &rules {
            let calls = records.iter().zip(&probes);
            let calls = calls.map(|(record, probes)| PlannedCall { call: &record.call, probes });
            let Plan { hits, unknown } = Plan::new(rule, fastrand::u64(..), calls, &inventory);
            plan.unknown += unknown;
            plan.hits.extend(hits.into_iter().filter_map(|(id, actions)| {
                let at = records.binary_search_by_key(&id, |record| record.call.id).ok()?;
                Some(PlannedHit { rule: rule.name.to_string(), actions, call: (&*records[at]).into() })
            }));
        }
        plan
    });
    let plan = planned.await;
    plan.map(Json).map_err(|error| RequestError::BadRequest(format!("the plan failed: {error}")))
}

/// Rules that were parsed.
struct ParsedRules {
    rules: Vec<FaultRule>,
    /// Places of the rules that the user has not named.
    nameless: Vec<usize>,
}

impl ParsedRules {
    /// Parses rules on another thread: the patterns of commands take milliseconds each. Requests
    /// take turns, so that they have at most one core.
    async fn new(bodies: Vec<FaultBody>) -> Result<Self, RequestError> {
        let turn = PARSER.acquire().await;
        let parsed = tokio::task::spawn_blocking(move || {
            // The turn ends with the work, also if the client does not wait for it.
            let _turn = turn;
            let parse = |body: &FaultBody| {
                let name = body.name.as_deref().unwrap_or(NAMELESS);
                FaultRule::parse(name, &body.rule, body.for_ms.map(Duration::from_millis), body.all)
            };
            let rules = bodies.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
            let nameless = (0..).zip(&bodies).filter(|(_, body)| body.name.is_none());
            Ok(Self { rules, nameless: nameless.map(|(place, _)| place).collect() })
        });
        match parsed.await {
            Ok(parsed) => parsed.map_err(|error: RuleError| invalid(&error)),
            Err(error) => Err(RequestError::BadRequest(format!("the rules cannot be parsed: {error}"))),
        }
    }

    /// Returns the rules. A rule without a name receives one that no active rule has now.
    fn named(mut self, admin: &Admin) -> Vec<FaultRule> {
        let mut taken: HashSet<String> =
            admin.state.policies.faults.list().into_iter().map(|known| known.name).collect();
        taken.extend(self.rules.iter().map(|rule| rule.name.to_string()));
        let mut names = (1..).map(|number| format!("fault-{number}")).filter(|name| !taken.contains(name));
        for place in self.nameless {
            self.rules[place].name = names.next().unwrap_or_default().into();
        }
        self.rules
    }
}

fn active(admin: &Admin, is_wanted: impl Fn(&str) -> bool) -> Vec<ActiveFault> {
    let active = admin.state.policies.faults.list().into_iter();
    active.filter(|rule| is_wanted(&rule.name)).map(ActiveFault::from).collect()
}

/// Returns the types of the probes and hooks to which a call is attributed.
fn probes(record: &CallRecord) -> Vec<&'static str> {
    match record.analysis.as_deref().map(|analysis| &analysis.identity) {
        Some(ProbeMatch::Matched { uses, .. }) => uses.iter().map(|used| used.name()).collect(),
        _ => Vec::new(),
    }
}

pub(super) fn requester(caller: &Caller) -> String {
    caller.peer.as_ref().map_or_else(|| "an unknown client".to_owned(), ToString::to_string)
}

pub(super) fn invalid(error: &RuleError) -> RequestError {
    RequestError::BadRequest(error.to_string())
}
