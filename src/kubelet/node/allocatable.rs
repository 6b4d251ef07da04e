//! Amounts of resources that pods may use (kubelet: `nodestatus/setters.go`: `MachineInfo`).

use super::NodeInfo;
use crate::manifest::quantity::Quantity;

/// Memory that the kubelet reserves by default: its threshold `memory.available` of hard eviction
/// (`eviction/defaults_linux.go`).
const RESERVED_MEMORY: u64 = 100 << 20;

/// Part of the storage that the kubelet reserves by default: its threshold `nodefs.available` of
/// hard eviction, 10 %. The kubelet has the part as a 32-bit float, which is this fraction.
const RESERVED_STORAGE: (u128, u128) = (13_421_773, 1 << 27);

impl NodeInfo {
    /// Returns the allocatable amount of a resource: the capacity without the reservations of a
    /// kubelet with default settings. `None` for resources other than `cpu`, `memory` and
    /// `ephemeral-storage`.
    pub(in crate::kubelet) fn allocatable(&self, resource: &str) -> Option<Quantity> {
        match resource {
            "cpu" => Some(Quantity::from_units(self.cpus as u64)),
            "memory" => Some(Quantity::from_units(self.allocatable_memory())),
            "ephemeral-storage" => Some(Quantity::from_units(self.allocatable_storage())),
            _ => None,
        }
    }

    /// Returns the allocatable memory in bytes. Preallocated huge pages are not part of it.
    pub(in crate::kubelet) fn allocatable_memory(&self) -> u64 {
        let huge_pages = self.huge_pages.values().map(|pages| pages.units().unsigned_abs()).sum();
        self.memory.saturating_sub(RESERVED_MEMORY).saturating_sub(huge_pages)
    }

    fn allocatable_storage(&self) -> u64 {
        let (numerator, denominator) = RESERVED_STORAGE;
        let reserved = u128::from(self.storage) * numerator / denominator;
        self.storage.saturating_sub(u64::try_from(reserved).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn allocatable_amounts_are_the_capacities_without_the_default_reservations() {
        let node = NodeInfo {
            cpus: 2,
            memory: 25_381_373_952,
            huge_pages: [("hugepages-2Mi".to_owned(), Quantity::from_units(4 << 20))].into(),
            storage: 100_000_000_000,
            ..NodeInfo::detect(PathBuf::new(), false, PathBuf::new(), String::new())
        };
        for (resource, expected) in [
            ("cpu", 2),
            ("memory", 25_381_373_952 - (104 << 20)),
            // A kubelet computes 100000000000 - int64(100000000000 * float64(float32(0.1))).
            ("ephemeral-storage", 89_999_999_851),
        ] {
            assert_eq!(node.allocatable(resource), Some(Quantity::from_units(expected)), "{resource}");
        }
        assert_eq!(node.allocatable("hugepages-2Mi"), None);
        assert_eq!(NodeInfo { memory: 1, ..node }.allocatable_memory(), 0);
    }
}
