//! Captures of calls with their messages, without secrets: the format of their files, and the hub
//! through which the engine passes calls to the captures that are active.
//!
//! ```text
//! tap (messages) ──► engine ──► CaptureHub ──queue (drops and counts)──► capture_lines ──► client
//! ```

mod format;
mod hub;
mod lines;

pub use format::{
    CaptureEnd, CaptureEndReason, CaptureHeader, CaptureLine, CaptureRuntime, CapturedCall, FORMAT_VERSION,
    MessageJson,
};
pub use hub::{CaptureHub, CaptureItem, CaptureSession, TooManyCaptures};
pub use lines::{CaptureTerms, capture_lines};
