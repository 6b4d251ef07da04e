//! The record with which a process is compared, without the fields that the rest of its launch has:
//! a long environment must not be in a packet twice.

use crate::protocol::{Launch, Snapshot, SnapshotField};

/// Fields of a process that are lists of texts: its arguments and its environment.
const LISTS: [&str; 2] = ["cmdline", "environ"];

impl Launch {
    /// Sets the record with which the process is compared. The launch must have the attributes.
    pub fn expect(&mut self, record: &Snapshot) {
        let derived = self.derived();
        let fields = record.fields.iter().filter(|field| !derived.contains(field));
        self.expected = Some(Snapshot { fields: fields.cloned().collect() });
    }

    /// Returns the record that [`Self::expect`] was given, and leaves none.
    pub(crate) fn take_expected(&mut self) -> Option<Snapshot> {
        let mut expected = self.expected.take()?;
        for field in self.derived() {
            if expected.value(&field.name).is_none() {
                expected.fields.push(field);
            }
        }
        Some(expected)
    }

    /// Returns the fields of a process that has exactly the environment and arguments of the
    /// launch.
    fn derived(&self) -> [SnapshotField; 2] {
        let env = self.attributes.as_ref().map_or(&[][..], |attributes| &attributes.env);
        let [cmdline, environ] = [&self.argv[..], env].map(|texts| {
            let texts = texts.iter().flat_map(|text| text.iter().chain(&[0]));
            texts.copied().collect::<Vec<u8>>()
        });
        let [cmdline_name, environ_name] = LISTS.map(str::to_owned);
        [
            SnapshotField { name: cmdline_name, value: cmdline },
            SnapshotField { name: environ_name, value: environ },
        ]
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::protocol::Attributes;

    fn launch(argv: &[&str], env: &[&str]) -> Launch {
        let bytes = |texts: &[&str]| texts.iter().map(|text| text.as_bytes().to_vec()).collect();
        let mut attributes = Attributes::default();
        attributes.env = bytes(env);
        Launch { exec: 1, argv: bytes(argv), attributes: Some(attributes), expected: None }
    }

    fn record(fields: &[(&str, &str)]) -> Snapshot {
        let field = |(name, value): &(&str, &str)| SnapshotField {
            name: (*name).to_owned(),
            value: value.as_bytes().to_vec(),
        };
        Snapshot { fields: fields.iter().map(field).collect() }
    }

    #[test]
    fn a_record_is_sent_without_the_fields_that_the_launch_has() {
        let long = "A=".to_owned() + &"a".repeat(1000);
        let fields = [("Umask", "0022"), ("cmdline", "sh\0-c\0"), ("environ", &format!("{long}\0B=\0"))];
        let mut sent = launch(&["sh", "-c"], &[&long, "B="]);
        sent.expect(&record(&fields));
        assert_eq!(sent.expected, Some(record(&fields[..1])));
        assert!(sent.encoded_len() < 1100, "{}", sent.encoded_len());
        let mut received = Launch::decode(&sent.encode_to_vec()[..]).unwrap();
        assert_eq!(received.take_expected(), Some(record(&fields)));
        assert_eq!(received.take_expected(), None);
    }

    #[test]
    fn fields_that_differ_from_the_launch_are_sent() {
        let fields = [("cmdline", "/bin/sh\0/p.sh\0"), ("environ", "A=1\0\0")];
        let mut sent = launch(&["/p.sh"], &["A=1"]);
        sent.expect(&record(&fields));
        assert_eq!(sent.take_expected(), Some(record(&fields)));
    }
}
