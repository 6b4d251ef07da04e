//! The web page at `--http`: the probes of the node as they change, and recorded results.
//!
//! ```text
//! browser ──► /, /page/*.js, /page/*.css            assets, embedded in the program
//!         ──► /page/view      period, lints, report ──► overview, probes, latencies
//!         ──► /page/context   what all views need
//!         ──► /page/calls     history, or records of the period
//!         ──► /page/calls/ID  one call, explained
//!         ──► /page/events    events of the period
//!         ──► /page/updates   results, events and policies as they change (SSE, with resume)
//! ```
//!
//! The page only reads. Every user of this machine can open it, so it shows commands, output,
//! messages of the runtime and query strings only with `--http-pods`.

mod answer;
mod assets;
mod calls;
mod context;
mod empty_list;
mod events;
mod period;
mod query;
mod state;
mod strip_text;
mod updates;
mod view;

use std::sync::Arc;

use axum::Router;
use axum::routing::get;

use crate::admin::Admin;

/// Returns the routes of the page.
pub fn routes() -> Router<Arc<Admin>> {
    Router::new()
        .route("/", get(assets::index))
        .route("/page/{name}", get(assets::asset))
        .route("/page/context", get(context::context))
        .route("/page/view", get(view::view))
        .route("/page/calls", get(calls::calls))
        .route("/page/calls/{id}", get(calls::call))
        .route("/page/events", get(events::events))
        .route("/page/updates", get(updates::updates))
}
