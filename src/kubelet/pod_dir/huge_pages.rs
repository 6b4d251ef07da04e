//! Page sizes of emptyDir volumes of huge pages (kubelet: `pkg/volume/emptydir/empty_dir.go`:
//! `getPageSizeMountOption`).

use std::collections::BTreeSet;

use crate::manifest::pod::{Pod, huge_page_size};
use crate::manifest::quantity::Quantity;

/// Reason why the page size of a volume is not known. The messages are the kubelet's.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::kubelet) enum PageSizeError {
    /// The volume names no size, and the pod has several.
    #[error("medium: HugePages can't be used if container requests multiple huge page sizes")]
    Several,
    /// The pod requests no huge pages of the size.
    #[error("medium {0}: hugePages storage requested, but there is no resource request for huge pages")]
    NotRequested(String),
}

/// Returns the page size of a volume in bytes. `medium` is its medium in the manifest, and `size`
/// the size in it.
pub(super) fn page_size(medium: &str, size: Option<Quantity>, pod: &Pod) -> Result<u64, PageSizeError> {
    let of_pod = pod.resources.iter();
    let all = of_pod.chain(pod.containers.iter().map(|container| &container.resources));
    let names = all.flat_map(|resources| resources.requests.keys());
    let requested: BTreeSet<Quantity> = names.filter_map(|name| huge_page_size(name)).collect();
    let found = match size {
        None if requested.len() > 1 => return Err(PageSizeError::Several),
        None => requested.first().copied(),
        Some(size) => Some(size).filter(|size| requested.contains(size)),
    };
    let found = found.ok_or_else(|| PageSizeError::NotRequested(medium.to_owned()))?;
    Ok(found.units().unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::reader::tests::pod;

    #[test]
    fn the_page_size_is_the_one_that_the_pod_requests() {
        let containers = |sizes: &[&str]| {
            let container = |(index, size): (usize, &&str)| {
                format!("{{name: c{index}, image: i, resources: {{limits: {{cpu: 1, {size}: 1Gi}}}}}}")
            };
            let all: Vec<String> = sizes.iter().enumerate().map(container).collect();
            pod(&format!("{{containers: [{{name: main, image: i}}, {}]}}", all.join(", ")))
        };
        let (two, both) = (containers(&["hugepages-2Mi"]), containers(&["hugepages-2Mi", "hugepages-1Gi"]));
        let none = containers(&[]);
        let own =
            pod("{resources: {limits: {cpu: 1, hugepages-1Gi: 1Gi}}, containers: [{name: main, image: i}]}");
        for (medium, pod, expected) in [
            ("HugePages", &two, Ok(2 << 20)),
            ("HugePages-2Mi", &two, Ok(2 << 20)),
            ("HugePages-1Gi", &both, Ok(1 << 30)),
            ("HugePages", &own, Ok(1 << 30)),
            ("HugePages", &both, Err(PageSizeError::Several)),
            ("HugePages-1Gi", &two, Err(PageSizeError::NotRequested("HugePages-1Gi".to_owned()))),
            ("HugePages", &none, Err(PageSizeError::NotRequested("HugePages".to_owned()))),
        ] {
            let size = medium.strip_prefix("HugePages-").and_then(Quantity::parse);
            assert_eq!(page_size(medium, size, pod), expected, "{medium}");
        }
    }
}
