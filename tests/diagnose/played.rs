//! Incidents whose probes probeshim runs, as the kubelet of its own pods.

use fixtures::containerd::{Containerd, Version};
use fixtures::machine::tool;
use fixtures::runtime::Runtime as _;
use fixtures::scenarios::play::Player;
use fixtures::scenarios::probing::dress;

use super::answer::Diagnosis;
use super::condition::reached;
use super::incident::Incident;
use super::side_by_side;

/// Runs the incidents, and returns their diagnoses. Fails if a program is missing.
pub(crate) fn diagnose(incidents: &[&Incident]) -> Result<Vec<Diagnosis>, String> {
    let probes = tool("probes-1.36")?;
    let containerd = Containerd::start(Version::V2_2)?;
    let player = Player::start(containerd.folder(), &containerd.socket(), &[]);
    let diagnoses = side_by_side(incidents, |incident| {
        let (name, ask) = (&incident.pod_name, |arguments: &[&str]| player.try_ask(arguments));
        let mut manifest = incident.manifest(containerd.unused_address());
        dress(&mut manifest["spec"], &probes);
        player.run(name, &manifest.to_string());
        let missed = reached(&incident.until, name, 0, &ask, || player.pod(name)).err();
        let diagnosis = Diagnosis::read(incident, name, missed, &ask);
        player.forget(name);
        diagnosis
    });
    Ok(diagnoses)
}
