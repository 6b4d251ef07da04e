//! Messages of the CRI that pass the relay: those of clients and of the runtime.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::block_on;
use super::steps::Steps;
use crate::capture::{CaptureItem, CapturedCall};
use crate::cri::{
    Code, FieldMessage, MessageSide, Method, MethodName, Redaction, framed_message, unary_message,
};
use crate::execsync::CallRecord;
use crate::history::json;
use crate::inventory::{Inventory, Source};
use crate::policy::read_request_names;
use crate::relay::{
    BodyStats, CallInfo, CallMarks, CallOutcome, Capture, CaptureMode, CompletedCall, Observer, RequestSent,
};
use crate::tap::{CallBodies, DecodedCall, Tap, TapConfig, TapEvent, TapMetrics};

/// Maximum number of calls of an input. The decoder takes as many from its queue at once.
const MAX_CALLS: usize = 16;

/// Maximum number of bytes of the observed command, and of each name, of a call.
const MAX_COMMAND_BYTES: usize = 4096;
const MAX_NAME_BYTES: usize = 253;

/// Time of all calls.
static NOW: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Reads an input as calls: pairs of a request and a response. The kind of the request is the
/// method. Passes the calls to the tap, its decoder and the inventory, and the messages to the
/// policies and to a capture. Memory is bounded, and the JSON of a message is read as the same
/// message.
pub(super) fn run(input: &[u8]) {
    let methods: Vec<Method> = Method::all().collect();
    let (mut inventory, mut calls) = (Arc::<Inventory>::default(), Steps::new(input));
    let config = TapConfig { hands_on_requests: true, ..TapConfig::default() };
    let (tap, mut decoder) = Tap::new(config, TapMetrics::default());
    let _capture = tap.body_capture().start();
    for id in 1..=MAX_CALLS as u64 {
        let Some((number, request)) = calls.next() else { break };
        let (flags, response) = calls.next().unwrap_or_default();
        let method = methods[usize::from(number) % methods.len()];
        let (request, response) = (framed_message(request), framed_message(response));
        observe(&tap, id, method, [&request, &response], flags);
        read_message(method, MessageSide::Request, &request);
        read_message(method, MessageSide::Response, &response);
        read_request_names(method, &request);
    }
    drop(tap);
    let mut events = Vec::new();
    block_on(decoder.next(|event| events.push(event)));
    for event in events {
        match event {
            TapEvent::Streamed(observations) => {
                inventory.fold(Source::Event, observations.observed_since, *NOW, observations.items);
            }
            TapEvent::CallEnded(call) => on_end(&mut inventory, *call),
            _ => {}
        }
    }
    for container in inventory.containers() {
        let _ = (inventory.sandbox_of(container), inventory.live_sandbox_of(container));
    }
}

/// Passes a call to the tap as the relay does.
fn observe(tap: &Tap, id: u64, method: Method, [request, response]: [&[u8]; 2], flags: u8) {
    let method = MethodName::Known(method);
    let plan = tap.capture_plan(&method);
    let info = Arc::new(CallInfo {
        id,
        peer: None,
        method,
        start: SystemTime::UNIX_EPOCH,
        since: *NOW,
        trace: None,
        timeout: None,
    });
    tap.on_start(&info);
    let request = stats(plan.request, request);
    if plan.notify_on_request
        && let Some(request) = &request.capture
    {
        tap.on_request_held(&info, request, CallMarks::default());
        let (info, request) = (info.clone(), request.clone());
        tap.on_request_sent(RequestSent { info, request, received: *NOW, sent: *NOW });
    }
    if let CaptureMode::Messages { longest, budget } = &plan.response {
        let mut message = Capture::new(*longest, budget);
        message.add(response);
        tap.on_message(&info, message);
    }
    let code = if flags & 1 == 0 { Code::OK } else { Code::UNIMPLEMENTED };
    tap.on_end(CompletedCall {
        info,
        duration: Duration::from_millis(flags.into()),
        ending: CallOutcome::Completed(Some(code)),
        message: None,
        request,
        response: stats(plan.response, response),
        marks: CallMarks::default(),
    });
}

fn stats(mode: CaptureMode, bytes: &[u8]) -> BodyStats {
    let capture = match mode {
        CaptureMode::Prefix(mut capture) => {
            capture.add(bytes);
            Some(Arc::new(capture))
        }
        _ => None,
    };
    BodyStats { bytes: bytes.len() as u64, capture, received: Some(*NOW), sent: Some(*NOW) }
}

/// Examines a call that was decoded, and applies its observations.
fn on_end(inventory: &mut Arc<Inventory>, decoded: DecodedCall) {
    let DecodedCall { call, observations, bodies, .. } = decoded;
    inventory.fold(Source::Call, observations.observed_since, *NOW, observations.items);
    let command = call.exec.iter().flat_map(|exec| &exec.command).map(String::len).sum::<usize>();
    assert!(command <= MAX_COMMAND_BYTES, "{command} bytes");
    let pod = call.pod.iter().flat_map(|pod| [&pod.id, &pod.namespace, &pod.name, &pod.uid]);
    let container = call.container.iter().flat_map(|container| [&container.id, &container.name]);
    for name in pod.chain(container).flatten().map(String::as_str).chain(call.image.as_deref()) {
        assert!(name.len() <= MAX_NAME_BYTES, "{} bytes", name.len());
    }
    let record = Arc::new(CallRecord::unanalyzed(call, None, None));
    let json = json::Call::from(&*record);
    let again = CallRecord::try_from(json.clone()).expect("the JSON of a record is a record");
    assert_eq!(json::Call::from(&again), json);
    let bodies: Arc<CallBodies> = bodies.map_or_else(Arc::default, |bodies| Arc::new(*bodies));
    let item = CaptureItem { record, bodies, timeout: None, missed: 0 };
    for redaction in [Redaction::Secrets, Redaction::SecretsAndCommands] {
        let captured = CapturedCall::new(&item, redaction);
        let text = serde_json::to_string(&captured).expect("a captured call is JSON");
        let again: CapturedCall = serde_json::from_str(&text).expect("a captured call is read again");
        assert_eq!(again, captured);
    }
}

/// Reads a message by the names of its fields. Its JSON is read as the same message.
fn read_message(method: Method, side: MessageSide, frame: &[u8]) {
    let message = unary_message(frame).expect("the frame is complete");
    let Some(message) = FieldMessage::decode(method, side, message) else { return };
    let json = message.to_json();
    let again = FieldMessage::from_json(method, side, &json);
    let again = again.unwrap_or_else(|error| panic!("{method:?} {side:?}: {error}: {json}"));
    assert_eq!(again.to_json(), json);
}
