//! Interprets arbitrary bytes as messages of the helper's protocol, for a fuzz target and tests.

use exec_helper::differences;
use exec_helper::protocol::{Capabilities, ChildStatus, HelperReply, HelperRequest, Recorded, Snapshot};
use prost::Message as _;

use super::attributes::attributes_for_container;
use super::spec::ContainerSpec;

/// Decodes bytes as each kind of message, and derives the attributes of a record and the
/// differences from it.
pub(crate) fn interpret(bytes: &[u8]) {
    let _ = HelperRequest::decode(bytes);
    let _ = HelperReply::decode(bytes);
    let _ = ChildStatus::decode(bytes);
    let _ = ContainerSpec::read(&String::from_utf8_lossy(bytes));
    let Ok(recorded) = Recorded::decode(bytes) else { return };
    let spec = ContainerSpec {
        init: 1,
        joins_keyring: true,
        cwd: "/".to_owned(),
        capabilities: Capabilities::default(),
        no_new_privs: false,
        apparmor_profile: None,
        has_home: false,
        filter_flags: 0,
    };
    let _ = attributes_for_container("container", &spec, &recorded);
    let snapshot = recorded.snapshot.unwrap_or_default();
    let _ = differences(&snapshot, &Snapshot::default());
    let _ = differences(&Snapshot::default(), &snapshot);
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use exec_helper::protocol::{SeccompFilter, SnapshotField};

    proptest! {
        #[test]
        fn arbitrary_bytes_are_refused_without_a_panic(bytes in vec(any::<u8>(), 0..4096)) {
            interpret(&bytes);
        }

        #[test]
        fn a_record_with_arbitrary_fields_is_refused_without_a_panic(
            fields in vec(("[A-Za-z_/ ]{1,16}|Uid|Umask|SigIgn|environ", vec(any::<u8>(), 0..64)), 0..32),
            program in vec(any::<u8>(), 0..256),
        ) {
            let fields = fields.into_iter().map(|(name, value)| SnapshotField { name, value }).collect();
            let recorded = Recorded {
                runtime: "runc".to_owned(),
                snapshot: Some(Snapshot { fields }),
                filters: vec![SeccompFilter { program, flags: 0 }],
                ..Recorded::default()
            };
            interpret(&recorded.encode_to_vec());
        }
    }
}
