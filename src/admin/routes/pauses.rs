//! Routes of pauses: they are listed, begun and ended.

use std::collections::HashSet;
use std::time::Duration;

use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::{Extension, Json};

use super::faults::{invalid, requester};
use super::{ApiContext, RequestError};
use crate::admin::api::{Pause, PauseBody, PauseReport, PausedContainer, ResumeBody};
use crate::admin::caller::Caller;
use crate::admin::state::Admin;
use crate::kubelet::Kubelet;
use crate::object_ref::PodRef;
use crate::policy::{self, PauseSelector, PauseStatus};

type Body<T> = Result<Json<T>, JsonRejection>;

pub(super) async fn list(State(admin): ApiContext) -> Json<Vec<PauseReport>> {
    let pauses = admin.state.policies.pauses.list();
    Json(reports(&admin, pauses))
}

/// Begins a pause, and returns it with the containers that it selects.
pub(super) async fn begin(
    State(admin): ApiContext,
    Extension(caller): Extension<Caller>,
    body: Body<PauseBody>,
) -> Result<Json<PauseReport>, RequestError> {
    let Json(body) = body.map_err(|error| RequestError::BadRequest(error.body_text()))?;
    let PauseBody { name, selector, for_ms, readiness, all } = body;
    let PauseSelector(selector) = selector
        .parse()
        .map_err(|error| RequestError::BadRequest(format!("selector {selector:?} {error}")))?;
    let lifetime = Duration::from_millis(for_ms);
    let pause = policy::Pause { name, selector, lifetime, readiness };
    let pause = pause.validated(all).map_err(|error| invalid(&error))?;
    let began = admin.state.policies.pauses.begin(pause, &requester(&caller));
    let began = began.map_err(|error| invalid(&error))?;
    Ok(Json(report(&admin, began, &managed(&admin))))
}

/// Ends pauses, and returns them as they were.
pub(super) async fn resume(
    State(admin): ApiContext,
    Extension(caller): Extension<Caller>,
    body: Body<ResumeBody>,
) -> Result<Json<Vec<Pause>>, RequestError> {
    let Json(ResumeBody { names }) = body.map_err(|error| RequestError::BadRequest(error.body_text()))?;
    let ended =
        admin.state.policies.pauses.resume(&names, &requester(&caller)).map_err(|error| invalid(&error))?;
    Ok(Json(ended.into_iter().map(Pause::from).collect()))
}

fn reports(admin: &Admin, pauses: Vec<PauseStatus>) -> Vec<PauseReport> {
    let managed = managed(admin);
    pauses.into_iter().map(|pause| report(admin, pause, &managed)).collect()
}

fn report(admin: &Admin, pause: PauseStatus, managed: &HashSet<String>) -> PauseReport {
    let is_managed = |pod: &PodRef| pod.uid.as_ref().is_some_and(|uid| managed.contains(uid));
    let containers = admin.state.policies.pauses.containers(&pause, is_managed);
    let containers = containers.into_iter().map(PausedContainer::from).collect();
    PauseReport { pause: pause.into(), containers }
}

/// Returns the uids of the pods that probeshim runs, and that no kubelet runs.
fn managed(admin: &Admin) -> HashSet<String> {
    let kubelet = admin.state.kubelet.get().filter(|kubelet| !kubelet.is_paused());
    let pods = kubelet.map(Kubelet::published_pods).unwrap_or_default();
    pods.iter().map(|pod| pod.uid().to_owned()).collect()
}
