//! A real kubelet on the runtime itself and through the relay: the same pods, the same restarts, the same logs.

use crate::real::node::{Node, Part};
use crate::support::skip::need;
