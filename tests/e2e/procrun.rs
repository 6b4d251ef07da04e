//! procrun beside containerd.

use crate::real::containerd::{Containerd, Version};
use crate::real::life::Runtime as _;
use crate::real::mistakes;
use crate::real::procrun::Procrun;
use crate::support::skip::need;

#[tokio::test]
async fn tells_mistakes_as_containerd_does() {
    let procrun = Procrun::start();
    let told = mistakes::all(&procrun.socket(), procrun.folder()).await;
    let containerd = need!(Containerd::start(Version::V2_2));
    let by_containerd = mistakes::all(&containerd.socket(), containerd.folder()).await;
    let differing: Vec<_> = told.iter().zip(&by_containerd).filter(|(ours, theirs)| ours != theirs).collect();
    assert!(differing.is_empty(), "procrun's and containerd's:\n{differing:#?}");
    assert_eq!(told.len(), by_containerd.len());
}
