//! Exports spans over OTLP, in batches and in a separate task. A span is dropped and counted if the
//! queue is full.

use std::borrow::Cow;
use std::collections::HashMap;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status, TraceContextExt as _, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{Array, Context, InstrumentationScope, KeyValue, StringValue, Value as Attribute};
use opentelemetry_otlp::{ExporterBuildError, Protocol, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};

/// Maximum number of spans that wait to be sent, each with its children.
const QUEUE_CAPACITY: usize = 2_048;

/// Maximum number of spans that are sent together, each with its children.
const BATCH_SPANS: usize = 256;

/// Time for which spans gather.
const GATHER: Duration = Duration::from_secs(1);

/// Port of a collector for gRPC. Spans to other ports are sent over HTTP, unless the environment
/// selects a protocol.
const GRPC_PORT: u16 = 4317;

/// Environment variables for the endpoint. The first that is set is used.
const ENDPOINT_VARIABLES: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// Environment variables for the protocol. The first that is set is used.
const PROTOCOL_VARIABLES: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];

/// Configuration of the traces. OpenTelemetry's environment variables configure the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceConfig {
    /// `http://HOST:PORT`; `None` for the endpoint in the environment.
    pub endpoint: Option<Endpoint>,
}

/// The address of a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    url: String,
    port: u16,
    has_path: bool,
}

/// The text is not an endpoint.
#[derive(Debug, thiserror::Error)]
#[error("must be on, or http://HOST:PORT of a collector, such as http://127.0.0.1:4317")]
pub struct TraceConfigError;

/// The exporter cannot be created.
#[derive(Debug, thiserror::Error)]
#[error("cannot export traces: {0}")]
pub struct TracesError(#[from] ExporterBuildError);

/// Handle of the task that sends spans. Clones share the task.
#[derive(Clone, Debug)]
pub struct Traces {
    spans: mpsc::Sender<Span>,
    dropped: Counter,
}

/// An operation with a start and an end.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The name of the operation.
    pub name: String,
    /// The start.
    pub start: SystemTime,
    /// The end.
    pub end: SystemTime,
    /// The `traceparent` and `tracestate` of the caller.
    pub parent: Option<(String, Option<String>)>,
    /// The attributes.
    pub attributes: Vec<(&'static str, Value)>,
    /// The error, if the operation failed.
    pub error: Option<String>,
    /// The children: name, start and end.
    pub children: Vec<(&'static str, SystemTime, SystemTime)>,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text.
    Text(String),
    /// Several texts.
    Texts(Vec<String>),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Float(f64),
}

impl FromStr for TraceConfig {
    type Err = TraceConfigError;

    /// Parses `http://HOST:PORT`, optionally with a path, or `on`.
    fn from_str(text: &str) -> Result<Self, TraceConfigError> {
        if text == "on" {
            return Ok(Self { endpoint: None });
        }
        let url = text.parse::<http::Uri>().ok().filter(|url| url.scheme_str() == Some("http"));
        let url = url.ok_or(TraceConfigError)?;
        let port = url.port_u16().ok_or(TraceConfigError)?;
        let endpoint =
            Endpoint { url: text.trim_end_matches('/').to_owned(), port, has_path: url.path().len() > 1 };
        Ok(Self { endpoint: Some(endpoint) })
    }
}

impl Traces {
    /// Starts the task. When all clones are dropped, the task sends the remaining spans and ends.
    ///
    /// Returns an error if the exporter cannot be created.
    pub fn start(settings: &TraceConfig) -> Result<(Self, JoinHandle<()>), TracesError> {
        let mut exporter = exporter(settings)?;
        exporter.set_resource(&resource());
        let (spans, waiting) = mpsc::channel(QUEUE_CAPACITY);
        let task = tokio::spawn(send(exporter, waiting));
        Ok((Self { spans, dropped: Counter::default() }, task))
    }

    /// Adds the metrics to a registry.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "spans_dropped",
            "Spans that were not exported, because the queue was full",
            self.dropped.clone(),
        );
    }

    /// Queues a span to be sent; drops and counts it if the queue is full. A span of a trace that
    /// is not sampled is not sent.
    pub fn export(&self, span: Span) {
        if self.spans.try_send(span).is_err() {
            self.dropped.inc();
        }
    }
}

fn exporter(settings: &TraceConfig) -> Result<SpanExporter, ExporterBuildError> {
    let Some(endpoint) = &settings.endpoint else { return SpanExporter::builder().build() };
    let protocol = PROTOCOL_VARIABLES.iter().find_map(|name| variable(name));
    let is_grpc = protocol.map_or(endpoint.port == GRPC_PORT, |protocol| protocol == "grpc");
    if is_grpc {
        return SpanExporter::builder().with_tonic().with_endpoint(&endpoint.url).build();
    }
    let path = if endpoint.has_path { "" } else { "/v1/traces" };
    let builder = SpanExporter::builder().with_http().with_protocol(Protocol::HttpBinary);
    builder.with_endpoint(format!("{}{path}", endpoint.url)).build()
}

/// Returns the attributes of this service from the environment. The service name is `probeshim` if
/// the environment has none.
fn resource() -> Resource {
    let attributes = variable("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
    let is_named = variable("OTEL_SERVICE_NAME").is_some() || attributes.contains("service.name=");
    let builder = Resource::builder();
    if is_named { builder.build() } else { builder.with_service_name(env!("CARGO_PKG_NAME")).build() }
}

/// Returns an environment variable. An empty variable counts as not set.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns whether the environment has an endpoint.
#[must_use]
pub fn has_endpoint() -> bool {
    ENDPOINT_VARIABLES.iter().any(|name| variable(name).is_some())
}

async fn send(exporter: SpanExporter, mut waiting: mpsc::Receiver<Span>) {
    let scope =
        InstrumentationScope::builder(env!("CARGO_PKG_NAME")).with_version(env!("CARGO_PKG_VERSION")).build();
    let (mut batch, mut is_failing) = (Vec::with_capacity(BATCH_SPANS), false);
    while waiting.recv_many(&mut batch, BATCH_SPANS).await > 0 {
        gather(&mut waiting, &mut batch).await;
        let data: Vec<SpanData> = batch.drain(..).flat_map(|span| span.into_data(&scope)).collect();
        if !data.is_empty() {
            let sent = exporter.export(data).await;
            match &sent {
                Ok(()) if is_failing => info!("traces are exported again"),
                Err(error) if !is_failing => warn!(%error, "traces cannot be exported"),
                _ => {}
            }
            is_failing = sent.is_err();
        }
    }
}

/// Adds spans that arrive within a second to the batch, up to its maximum; fewer if no more can
/// arrive.
async fn gather(waiting: &mut mpsc::Receiver<Span>, batch: &mut Vec<Span>) {
    let until = Instant::now() + GATHER;
    while batch.len() < BATCH_SPANS {
        let more = waiting.recv_many(batch, BATCH_SPANS - batch.len());
        match timeout_at(until, more).await {
            Err(_) | Ok(0) => return,
            Ok(_) => {}
        }
    }
}

impl Span {
    /// Returns the span and its children in the form in which they are sent; nothing if the trace
    /// is not sampled.
    fn into_data(self, scope: &InstrumentationScope) -> Vec<SpanData> {
        let parent = self.parent.as_ref().map(|(parent, state)| span_context(parent, state.as_deref()));
        let parent = parent.filter(SpanContext::is_valid);
        if parent.as_ref().is_some_and(|parent| !parent.is_sampled()) {
            return Vec::new();
        }
        let trace = parent.as_ref().map_or_else(|| TraceId::from(fastrand::u128(1..)), SpanContext::trace_id);
        let state = parent.as_ref().map_or_else(TraceState::default, |parent| parent.trace_state().clone());
        let context = || {
            SpanContext::new(
                trace,
                SpanId::from(fastrand::u64(1..)),
                TraceFlags::SAMPLED,
                false,
                state.clone(),
            )
        };
        let data = |context: SpanContext, parent_span_id, name, start_time, end_time| SpanData {
            span_context: context,
            parent_span_id,
            parent_span_is_remote: false,
            span_kind: SpanKind::Server,
            name,
            start_time,
            end_time,
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: scope.clone(),
        };
        let own = context();
        let id = own.span_id();
        let parent_id = parent.as_ref().map_or(SpanId::INVALID, SpanContext::span_id);
        let mut all = vec![SpanData {
            parent_span_is_remote: parent.is_some(),
            attributes: self.attributes.into_iter().map(|(key, value)| KeyValue::new(key, value)).collect(),
            status: self.error.map_or(Status::Unset, Status::error),
            ..data(own, parent_id, Cow::Owned(self.name), self.start, self.end)
        }];
        let parts = self.children.into_iter();
        all.extend(parts.map(|(name, start, end)| data(context(), id, Cow::Borrowed(name), start, end)));
        all
    }
}

/// Returns the trace context in headers, which is invalid if the headers are.
fn span_context(parent: &str, state: Option<&str>) -> SpanContext {
    let mut headers = HashMap::from([("traceparent".to_owned(), parent.to_owned())]);
    headers.extend(state.map(|state| ("tracestate".to_owned(), state.to_owned())));
    let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &headers);
    context.span().span_context().clone()
}

impl From<Value> for Attribute {
    fn from(value: Value) -> Self {
        match value {
            Value::Text(text) => text.into(),
            Value::Texts(texts) => {
                Self::Array(Array::String(texts.into_iter().map(StringValue::from).collect()))
            }
            Value::Int(number) => number.into(),
            Value::Float(number) => number.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(parent: Option<&str>) -> Vec<SpanData> {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let span = Span {
            name: "ExecSync".to_owned(),
            start: at(1),
            end: at(3),
            parent: parent.map(|parent| (parent.to_owned(), Some("vendor=1".to_owned()))),
            attributes: vec![("container.id", Value::Text("c0ffee".to_owned()))],
            error: None,
            children: vec![("start", at(1), at(2)), ("run", at(2), at(3))],
        };
        span.into_data(&InstrumentationScope::builder("test").build())
    }

    #[test]
    fn a_span_joins_the_trace_of_its_caller() {
        let all = span(Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"));
        let [call, start, run] = &all[..] else { panic!("{all:?}") };
        assert_eq!(call.span_context.trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(call.parent_span_id.to_string(), "b7ad6b7169203331");
        assert_eq!(call.span_context.trace_state().get("vendor"), Some("1"));
        for part in [start, run] {
            assert_eq!(part.parent_span_id, call.span_context.span_id());
            assert_eq!(part.span_context.trace_id(), call.span_context.trace_id());
        }
    }

    #[test]
    fn a_span_without_a_trace_starts_one_and_unsampled_spans_are_not_sent() {
        for parent in
            [None, Some("nonsense"), Some("00-00000000000000000000000000000000-b7ad6b7169203331-01")]
        {
            let all = span(parent);
            assert_eq!((all.len(), all[0].parent_span_id), (3, SpanId::INVALID), "{parent:?}");
            assert_ne!(all[0].span_context.trace_id(), TraceId::INVALID);
        }
        assert!(span(Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")).is_empty());
    }

    #[test]
    fn a_collector_address_must_be_an_http_url_with_a_port() {
        let endpoint = |text: &str| text.parse::<TraceConfig>().map(|config| config.endpoint);
        assert_eq!(endpoint("on").unwrap(), None);
        assert_eq!(endpoint("http://127.0.0.1:4317").unwrap().unwrap().port, 4317);
        assert!(endpoint("http://collector:4318/custom/v1/traces").unwrap().unwrap().has_path);
        for wrong in ["127.0.0.1:4317", "https://127.0.0.1:4317", "http://127.0.0.1", "grpc://a:1", ""] {
            assert!(endpoint(wrong).is_err(), "{wrong}");
        }
    }
}
