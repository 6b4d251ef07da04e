//! The relay's transparency: requests of clients and answers of the runtime pass unchanged.

mod bytes;
mod endings;
mod flow;
mod goaway;
mod last_words;
mod limits;
mod old_clients;
mod strangers;
