//! `probeshim play`: pods that live as they would with a kubelet.

use crate::real::machine::tool;
use crate::real::play::tell;
use crate::real::story::cases;
use crate::support::skip::need;

/// Stories that are told at once: their probes take processor time, and none may fail for want of it.
const AT_ONCE: usize = 16;

/// Every manifest of the folder lives as its story tells.
#[test]
fn pods_live_as_their_stories_tell() {
    let probes = need!(tool("probes-1.36"));
    let cases = cases(&probes);
    assert!(cases.len() >= 25, "{} manifests", cases.len());
    let mut wrong = Vec::new();
    for cases in cases.chunks(AT_ONCE) {
        wrong.extend(need!(tell(cases)));
    }
    assert_eq!(wrong, [""; 0]);
}
