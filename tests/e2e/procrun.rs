//! procrun beside containerd.

use crate::real::containerd::{Containerd, Version};
use crate::real::life::Runtime as _;
use crate::real::mistakes;
use crate::support::skip::need;

#[tokio::test]
async fn tells_mistakes_as_containerd_does() {
    let containerd = need!(Containerd::start(Version::V2_2));
    mistakes::all(&containerd.socket(), containerd.folder()).await;
}
