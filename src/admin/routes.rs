//! Routes of the API and their handlers.

mod calls;
mod capture;
mod events;
mod faults;
mod pauses;
mod timeline;

use std::convert::Infallible;
use std::mem;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use axum::{Extension, Json, Router};
use serde::Serialize;
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;
use tokio_stream::{Stream, StreamExt as _};

use super::access;
use super::api;
use super::caller::Caller;
use super::readiness;
use super::refusal::refusal;
use super::slots::ConnectionSlot;
use super::state::{Admin, MAX_FOLLOWERS, MAX_TIMELINE_READERS};
use crate::build_info;
use crate::capture::TooManyCaptures;
use crate::history::Counts;
use crate::history::json::time;
use crate::kubelet::Kubelet;
use crate::metrics::{self, MetricsFormat};
use crate::object_ref::PodRef;
use crate::prober::EnforcementMode;
use crate::suggest::did_you_mean;

type ApiContext = State<Arc<Admin>>;

/// Error of a refused request.
enum RequestError {
    /// The request is invalid, with a description.
    BadRequest(String),
    /// The caller may not make the request, for this reason.
    Forbidden(String),
    /// The limit of clients that follow calls or events is reached.
    TooManyFollowers,
    /// The limit of requests for results over time is reached.
    TooManyTimelineReaders,
    /// The limit of captures is reached.
    TooManyCaptures(TooManyCaptures),
}

/// Returns the routes that every user of this machine may read.
pub(super) fn public() -> Router<Arc<Admin>> {
    metrics_and_health().route("/", get(index))
}

/// Returns the routes for Prometheus.
pub(super) fn metrics_and_health() -> Router<Arc<Admin>> {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics_text))
        .route("/metrics/probes", get(probe_metrics))
        .fallback(not_found)
}

/// Returns the route of managed pods, which shows their commands, annotations and query strings.
pub(super) fn pods_list() -> Router<Arc<Admin>> {
    Router::new().route("/pods", get(pods))
}

/// Returns the route that refers to the admin socket, for a listener that does not serve pods.
pub(super) fn no_pods() -> Router<Arc<Admin>> {
    let reason = "/pods is served on the admin socket. --http-pods serves it at this address too; every user of this machine can then read commands, annotations and query strings";
    Router::new().route("/pods", get(async || refusal(StatusCode::NOT_FOUND, reason.to_owned())))
}

/// Returns the routes that only the admin socket serves, to each of its callers.
pub(super) fn private() -> Router<Arc<Admin>> {
    Router::new()
        .route("/v1/status", get(status))
        .route("/v1/mode", get(mode))
        .route("/v1/calls", get(calls::calls))
        .route("/v1/calls/follow", get(calls::follow))
        .route("/v1/calls/{id}/explain", get(calls::explain))
        .route("/v1/events", get(events::events))
        .route("/v1/events/follow", get(events::follow))
        .route("/v1/timeline", get(timeline::timeline))
        .route("/v1/faults", get(faults::list))
        .route("/v1/pauses", get(pauses::list))
}

/// Returns the routes for callers who may change something.
pub(super) fn control() -> Router<Arc<Admin>> {
    Router::new()
        .route("/v1/mode", put(switch_mode))
        .route("/v1/pods/{namespace}/{name}", delete(delete_pod))
        .route("/v1/faults", post(faults::add))
        .route("/v1/faults/clear", post(faults::clear))
        .route("/v1/faults/plan", post(faults::plan))
        .route("/v1/pauses", post(pauses::begin))
        .route("/v1/pauses/resume", post(pauses::resume))
}

/// Returns the routes for root and the user of probeshim.
pub(super) fn owned() -> Router<Arc<Admin>> {
    Router::new().route("/v1/capture", get(capture::capture))
}

/// The paths that every listener serves.
pub(crate) const INDEX: &str = "probeshim\n/healthz         whether probeshim runs\n/readyz          whether the runtime answers\n/metrics         metrics\n/metrics/probes  metrics of single probes\n/pods            managed pods, on the admin socket and with --http-pods\n/v1/status       and the rest of the API, on the admin socket\n/                the page, for a browser at the address of --http\n";

async fn index() -> &'static str {
    INDEX
}

async fn not_found() -> Response {
    refusal(StatusCode::NOT_FOUND, "no such path".to_owned())
}

async fn readyz(State(admin): ApiContext) -> Response {
    let upstream = readiness::check_upstream(&admin.state.runtime).await;
    match upstream.error {
        None => "ok\n".into_response(),
        Some(error) => {
            (StatusCode::SERVICE_UNAVAILABLE, format!("{}: {error}\n", upstream.socket)).into_response()
        }
    }
}

async fn metrics_text(State(admin): ApiContext, headers: HeaderMap) -> impl IntoResponse {
    let format = metrics_format(&headers);
    ([(header::CONTENT_TYPE, format.content_type())], metrics::encode(&admin.metrics, format))
}

/// Returns the format of metrics that a client prefers.
fn metrics_format(headers: &HeaderMap) -> MetricsFormat {
    // A client may send the header several times.
    let ranges: Vec<&str> =
        headers.get_all(header::ACCEPT).iter().filter_map(|it| it.to_str().ok()).collect();
    MetricsFormat::negotiated(Some(&ranges.join(",")))
}

/// Deletes a pod of a manifest.
async fn delete_pod(
    State(admin): ApiContext,
    Path((namespace, name)): Path<(String, String)>,
    query: Result<Query<api::DeleteQuery>, QueryRejection>,
) -> Result<Response, RequestError> {
    let Query(api::DeleteQuery { uid, grace_period_seconds }) = query?;
    let full_name = format!("{namespace}/{name}");
    let pod = PodRef { id: None, namespace: Some(namespace), name: Some(name), uid };
    let is_deleted =
        admin.state.kubelet.get().is_some_and(|kubelet| kubelet.delete(&pod, grace_period_seconds));
    if is_deleted {
        return Ok(Json(json!({})).into_response());
    }
    Err(RequestError::BadRequest(format!(
        "pod {full_name:?} cannot be deleted: probeshim deletes only pods that `probeshim play` runs from manifests; use crictl rmp -f for others"
    )))
}

/// Serves the managed pods in the format of a kubelet's `/pods`.
async fn pods(State(admin): ApiContext) -> Response {
    let Some(kubelet) = admin.state.kubelet.get() else {
        let reason =
            "this probeshim runs no pods: /pods needs `probeshim play`. A kubelet serves its pods itself";
        return refusal(StatusCode::NOT_FOUND, reason.to_owned());
    };
    let items = kubelet.to_json();
    Json(json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})).into_response()
}

/// Serves the metrics of single probes, at the same path as a kubelet.
async fn probe_metrics(State(admin): ApiContext, headers: HeaderMap) -> impl IntoResponse {
    let format = metrics_format(&headers);
    // Families are encoded one at a time: the text of all of them could be as large as all other
    // data in memory.
    let families = (0..admin.probe_metrics.len())
        .flat_map(move |index| metrics::encode_chunks(&admin.probe_metrics[index], format));
    let texts = families.chain([format.end().to_owned()]).map(Ok::<_, Infallible>);
    ([(header::CONTENT_TYPE, format.content_type())], Body::from_stream(tokio_stream::iter(texts)))
}

async fn status(State(admin): ApiContext) -> Json<api::Status> {
    let Counts { seen, retained } = admin.state.calls.counts();
    Json(api::Status {
        version: build_info::VERSION.to_owned(),
        commit: build_info::COMMIT.map(str::to_owned),
        date: build_info::DATE.map(str::to_owned),
        mode: admin.mode().name().to_owned(),
        pid: std::process::id(),
        started: time(admin.info.started),
        listen: admin.info.listen.clone(),
        http: admin.info.http.map(|address| format!("http://{address}")),
        metrics: admin.info.metrics.clone(),
        api_failures: admin.failures(),
        upstream: readiness::check_upstream(&admin.state.runtime).await,
        connections: api::Connections {
            open: admin.state.metrics.relay.connections_open(),
            total: admin.state.metrics.relay.connections(),
        },
        calls: api::CallCounts {
            in_flight: admin.state.metrics.relay.streams_open(),
            observed: seen,
            kept: retained,
            dropped: admin.state.metrics.tap.observations_dropped(),
        },
        record: admin.state.journal.as_ref().map(|journal| api::DirStatus {
            dir: journal.dir().display().to_string(),
            failure: journal.failure(),
        }),
        state: admin.state.state.as_ref().map(|state| api::DirStatus {
            dir: state.dir().display().to_string(),
            failure: state.write_error().borrow().clone(),
        }),
        pods: admin.pods(admin.state.redact),
        kills: admin.state.prober.as_ref().map(|prober| prober.kills().into()),
        agreement: admin.state.prober.as_ref().map(|prober| prober.agreement().into()),
        stuck: admin.state.stuck.borrow().values().map(api::Stuck::from).collect(),
        faults: admin.state.policies.faults.list().into_iter().map(api::ActiveFault::from).collect(),
        pauses: admin.state.policies.pauses.list().into_iter().map(api::Pause::from).collect(),
        exec_policies: api::ExecPolicies::new(&admin.state.policies),
        paused: admin.state.kubelet.get().is_some_and(Kubelet::is_paused),
        probe_names: admin.probe_names(),
        panics: admin.state.metrics.panics.get(),
    })
}

async fn mode(State(admin): ApiContext) -> Json<api::ModeBody> {
    Json(api::ModeBody { mode: admin.mode().name().to_owned() })
}

/// Returns the mode with a name, if it can be set at run time. `is_kubelet`: the built-in kubelet
/// runs, which restarts the containers that it kills.
fn permitted_mode(name: &str, is_kubelet: bool) -> Result<EnforcementMode, String> {
    let kill = if is_kubelet { EnforcementMode::Restart } else { EnforcementMode::Kill };
    let modes = [EnforcementMode::Off, EnforcementMode::DryRun, kill];
    if let Some(mode) = modes.into_iter().find(|mode| mode.name() == name) {
        return Ok(mode);
    }
    let names = modes.map(EnforcementMode::name);
    let reason = match name {
        "restart" => " needs --enforce restart at start".to_owned(),
        "kill" => " is not available, since this probeshim restarts the containers that it kills".to_owned(),
        _ => did_you_mean(name, names),
    };
    Err(format!("mode {name:?}{reason}; the modes are {}", names.join(", ")))
}

/// Changes the enforcement mode. Without a prober, every mode except `off` is an error.
async fn switch_mode(
    State(admin): ApiContext,
    Extension(caller): Extension<Caller>,
    wanted: Result<Json<api::ModeBody>, JsonRejection>,
) -> Result<Json<api::ModeBody>, RequestError> {
    let Json(api::ModeBody { mode: wanted }) =
        wanted.map_err(|error| RequestError::BadRequest(error.body_text()))?;
    let to =
        permitted_mode(&wanted, admin.state.kubelet.get().is_some()).map_err(RequestError::BadRequest)?;
    access::check_mode(&caller, to, admin.info.mode).map_err(RequestError::Forbidden)?;
    let Some(prober) = admin.state.prober.as_ref() else {
        return match to {
            EnforcementMode::Off => Ok(Json(api::ModeBody { mode: wanted })),
            _ => Err(RequestError::BadRequest(format!(
                "no probes are run, since probeshim was started with --enforce off: restart it with --enforce {}",
                to.name()
            ))),
        };
    };
    if prober.mode() != to {
        prober.set_mode(to, &faults::requester(&caller));
    }
    Ok(Json(api::ModeBody { mode: to.name().to_owned() }))
}

/// Streams a JSON array item by item. The text of the whole array could take many times the memory
/// of the records, which share their names.
fn array_of<R: Send + Sync + 'static, T: Serialize>(
    kept: Vec<Arc<R>>,
    item: impl Fn(&R) -> T + Send + 'static,
) -> Response {
    let mut separator = "";
    let items = tokio_stream::iter(kept).map(move |record| {
        let item = serde_json::to_string(&item(&record))?;
        Ok::<_, serde_json::Error>(mem::replace(&mut separator, ",\n").to_owned() + &item)
    });
    let [start, end] = ["[", "]"].map(|bracket| tokio_stream::once(Ok(bracket.to_owned())));
    let body = Body::from_stream(start.chain(items).chain(end));
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// Takes a permit to follow. A connection with a permit cannot be evicted from its slot.
fn follow_permit(admin: &Admin, slot: &ConnectionSlot) -> Result<OwnedSemaphorePermit, RequestError> {
    let permit = admin.followers.clone().try_acquire_owned();
    let permit = permit.map_err(|_| RequestError::TooManyFollowers)?;
    slot.following();
    Ok(permit)
}

/// Streams lines of JSON. The permit is released when the client disconnects.
fn lines_of<T: Serialize + 'static>(
    lines: impl Stream<Item = T> + Send + 'static,
    permit: OwnedSemaphorePermit,
) -> Response {
    let lines = lines.map(move |line| {
        let _ = &permit;
        serde_json::to_string(&line).map(|line| line + "\n")
    });
    ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response()
}

impl From<QueryRejection> for RequestError {
    fn from(rejection: QueryRejection) -> Self {
        Self::BadRequest(rejection.body_text())
    }
}

impl From<TooManyCaptures> for RequestError {
    fn from(error: TooManyCaptures) -> Self {
        Self::TooManyCaptures(error)
    }
}

impl IntoResponse for RequestError {
    fn into_response(self) -> Response {
        match self {
            Self::BadRequest(reason) => refusal(StatusCode::BAD_REQUEST, reason),
            Self::Forbidden(reason) => refusal(StatusCode::FORBIDDEN, reason),
            Self::TooManyCaptures(error) => refusal(StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
            Self::TooManyTimelineReaders => {
                let reason = format!(
                    "{MAX_TIMELINE_READERS} requests for results over time are being answered, which is the limit; \
                     try again once one has ended"
                );
                refusal(StatusCode::SERVICE_UNAVAILABLE, reason)
            }
            Self::TooManyFollowers => {
                let reason =
                    format!("{MAX_FOLLOWERS} clients already follow calls or events, which is the limit");
                refusal(StatusCode::SERVICE_UNAVAILABLE, reason)
            }
        }
    }
}
