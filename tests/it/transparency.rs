//! What the client sends arrives unchanged, and what the runtime answers comes back unchanged.

mod bytes;
mod endings;
mod flow;
mod goaway;
mod last_words;
mod limits;
mod old_clients;
mod strangers;
