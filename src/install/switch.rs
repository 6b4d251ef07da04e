//! The change that points a kubelet at probeshim: additional files, which take precedence over the
//! kubelet's configuration without changing it.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::environment_file::{assignment, value_in_file};
use super::finding::Finding;
use super::kubelet_unit::{EXTRA_ARGS, KubeletUnit};
use super::paths::Paths;
use crate::regular_file::{MAX_SMALL_FILE_BYTES, read_to_string};
use crate::socket::SocketPath;

/// Start of the flag that the kubelet gets for each socket of probeshim.
const OUR_FLAG: &str = "--container-runtime-endpoint=unix:///run/probeshim/";

/// The change for one layout of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "layout", rename_all = "camelCase")]
pub(super) enum KubeletSwitch {
    /// The unit appends `$KUBELET_EXTRA_ARGS`, as that of kubeadm does. A drop-in adds an
    /// environment file with the previous value and the endpoint.
    ExtraArgs {
        /// Unit of the kubelet.
        unit: String,
        /// Previous value of the variable.
        previous: String,
    },
    /// The unit has its flags in `ExecStart=`. A drop-in repeats it with the endpoint.
    ExecStart {
        /// Unit of the kubelet.
        unit: String,
        /// Previous value of `ExecStart=`.
        previous: String,
    },
    /// k3s or RKE2 runs the kubelet. A configuration file passes the endpoint on.
    K3s {
        /// Unit of k3s or RKE2.
        unit: String,
    },
}

/// A file of an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InstalledFile {
    /// Path on the node.
    pub(super) path: PathBuf,
    /// Content of the file.
    pub(super) text: String,
}

/// Reason why a kubelet cannot be switched.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// The unit starts something else than a kubelet, which would not understand the flag.
    #[error(
        "{unit} starts {program}, to which no flag of a kubelet can be added; add $KUBELET_EXTRA_ARGS to the end of the \
         kubelet's command line"
    )]
    NotKubelet {
        /// Unit of the kubelet.
        unit: String,
        /// Program of the unit.
        program: String,
    },
    /// The variable's value has a line break, which an environment file cannot express.
    #[error("KUBELET_EXTRA_ARGS of {unit} has a line break; write its value on one line")]
    LineBreak {
        /// Unit of the kubelet.
        unit: String,
    },
}

impl KubeletSwitch {
    /// Determines the change for a kubelet with a unit of its own.
    pub(super) fn of_unit(name: &str, unit: &KubeletUnit, paths: &Paths) -> Result<Self, SwitchError> {
        if unit.ends_with_extra_args() {
            let previous = previous_extra_args(unit, paths);
            if previous.contains('\n') {
                return Err(SwitchError::LineBreak { unit: name.to_owned() });
            }
            return Ok(Self::ExtraArgs { unit: name.to_owned(), previous });
        }
        let program = unit.exec_start.split_whitespace().next().unwrap_or("nothing");
        let program = program.trim_start_matches(['@', '-', ':', '+', '!']);
        if Path::new(program).file_name().is_none_or(|file| file != "kubelet") {
            return Err(SwitchError::NotKubelet { unit: name.to_owned(), program: program.to_owned() });
        }
        Ok(Self::ExecStart { unit: name.to_owned(), previous: unit.exec_start.clone() })
    }

    /// Returns the unit that runs the kubelet.
    pub(super) fn unit(&self) -> &str {
        match self {
            Self::ExtraArgs { unit, .. } | Self::ExecStart { unit, .. } | Self::K3s { unit } => unit,
        }
    }

    /// Returns the layout of the node in words.
    pub(super) fn layout(&self) -> &'static str {
        match self {
            Self::ExtraArgs { .. } => "kubelet with $KUBELET_EXTRA_ARGS, as of kubeadm",
            Self::ExecStart { .. } => "kubelet with its flags in ExecStart=",
            Self::K3s { unit } if unit.starts_with("rke2") => "RKE2",
            Self::K3s { .. } => "k3s",
        }
    }

    /// Compares the previous value of the variable with that of the running kubelet. They differ if
    /// systemd finds the value where it was not looked for, and flags would be lost. Returns `None`
    /// if nothing is wrong, or if the kubelet runs with a value of probeshim.
    pub(super) fn extra_args_finding(&self, running: &str) -> Option<Finding> {
        let Self::ExtraArgs { unit, previous } = self else { return None };
        let has_flag = running.split_whitespace().last().is_some_and(|last| last.starts_with(OUR_FLAG));
        if has_flag || running.split_whitespace().eq(previous.split_whitespace()) {
            return None;
        }
        Some(Finding::failed(
            "extra arguments",
            format!(
                "{EXTRA_ARGS} of the running kubelet is {running:?}, and {previous:?} by the files of {unit}"
            ),
            format!(
                "if a file was changed, restart the kubelet first: systemctl restart {unit}; otherwise give the \
                 variable in an EnvironmentFile= without wildcards and specifiers"
            ),
        ))
    }

    /// Returns the files of the change. A drop-in comes after the file to which it refers.
    pub(super) fn files(&self, listen: &SocketPath) -> Vec<InstalledFile> {
        let flag = format!("--container-runtime-endpoint={listen}");
        let drop_in = |unit: &str, service: String| InstalledFile {
            path: Paths::kubelet_drop_in(unit),
            text: format!(
                "# Written by `probeshim install --kubelet`; `probeshim uninstall` removes it.\n[Unit]\n\
                 Wants=probeshim.socket\nAfter=probeshim.socket\n\n[Service]\n{service}"
            ),
        };
        match self {
            Self::ExtraArgs { unit, previous } => {
                let arguments = if previous.is_empty() { flag } else { format!("{previous} {flag}") };
                let environment = Paths::kubelet_environment(unit);
                let service = format!("EnvironmentFile={}\n", environment.display());
                let text = format!(
                    "# The previous value, and the endpoint. The last flag has precedence.\n{}\n",
                    assignment(EXTRA_ARGS, &arguments)
                );
                vec![InstalledFile { path: environment, text }, drop_in(unit, service)]
            }
            Self::ExecStart { unit, previous } => {
                vec![drop_in(unit, format!("ExecStart=\nExecStart={previous} {flag}\n"))]
            }
            Self::K3s { unit } => vec![InstalledFile {
                path: Paths::rancher_config(unit).to_owned(),
                text: format!(
                    "# Written by `probeshim install --kubelet`; `probeshim uninstall` removes it.\nkubelet-arg+:\n\
                     - container-runtime-endpoint={listen}\n"
                ),
            }],
        }
    }

    /// Returns the file that takes effect, without which the kubelet uses the runtime's own socket.
    pub(super) fn effective_file(&self) -> PathBuf {
        match self {
            Self::ExtraArgs { unit, .. } | Self::ExecStart { unit, .. } => Paths::kubelet_drop_in(unit),
            Self::K3s { unit } => Paths::rancher_config(unit).to_owned(),
        }
    }
}

/// Returns the value that the unit gives to the variable without our drop-in. Files have precedence
/// over directives, and later files over earlier ones.
fn previous_extra_args(unit: &KubeletUnit, paths: &Paths) -> String {
    let in_files = unit.environment_files.iter().rev().find_map(|file| {
        let text = read_to_string(&paths.at(file), MAX_SMALL_FILE_BYTES).ok()?;
        value_in_file(&text, EXTRA_ARGS)
    });
    in_files.or_else(|| unit.extra_args.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::install::FindingState;

    fn listen() -> SocketPath {
        SocketPath::parse("/run/probeshim/probeshim.sock").unwrap()
    }

    fn texts(switch: &KubeletSwitch) -> Vec<(String, String)> {
        let files = switch.files(&listen());
        files.into_iter().map(|file| (file.path.display().to_string(), file.text)).collect()
    }

    #[test]
    fn a_unit_with_extra_arguments_keeps_its_previous_value_before_the_endpoint() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("etc/default")).unwrap();
        fs::write(root.path().join("etc/default/kubelet"), "KUBELET_EXTRA_ARGS=\"--node-ip=10.0.0.1\"\n")
            .unwrap();
        let unit = KubeletUnit {
            exec_start: "/usr/bin/kubelet $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS".to_owned(),
            environment_files: ["/etc/default/kubelet", "/none"].map(PathBuf::from).into(),
            extra_args: Some("--ignored".to_owned()),
        };
        let switch = KubeletSwitch::of_unit("kubelet.service", &unit, &Paths::below(root.path())).unwrap();
        let [(environment, value), (drop_in, directives)] = &texts(&switch)[..] else {
            panic!("{switch:?} has other files")
        };
        assert_eq!(environment, "/etc/systemd/system/kubelet.service.d/zz-probeshim.env");
        assert_eq!(
            value_in_file(value, EXTRA_ARGS).unwrap(),
            "--node-ip=10.0.0.1 --container-runtime-endpoint=unix:///run/probeshim/probeshim.sock"
        );
        assert_eq!(drop_in, "/etc/systemd/system/kubelet.service.d/zz-probeshim.conf");
        assert!(directives.ends_with(&format!("[Service]\nEnvironmentFile={environment}\n")), "{directives}");
        assert_eq!(switch.effective_file(), Path::new(drop_in));
    }

    #[test]
    fn extra_arguments_that_were_not_found_where_systemd_finds_them_refuse_the_change() {
        let unit = KubeletUnit {
            exec_start: "/usr/bin/kubelet $KUBELET_EXTRA_ARGS".to_owned(),
            // systemd expands both.
            environment_files: ["/etc/default/kubelet*", "/etc/default/%p"].map(PathBuf::from).into(),
            extra_args: None,
        };
        let switch = KubeletSwitch::of_unit("kubelet.service", &unit, &Paths::of_node()).unwrap();
        let finding = switch.extra_args_finding("--node-ip=10.0.0.1").unwrap();
        assert_eq!(finding.state, FindingState::Failed);
        assert_eq!(
            finding.detail,
            "KUBELET_EXTRA_ARGS of the running kubelet is \"--node-ip=10.0.0.1\", and \"\" by the files of \
             kubelet.service"
        );
        assert_eq!(switch.extra_args_finding(""), None);
        // The value of probeshim does not show what the files had then.
        let ours = format!("-v=2 --container-runtime-endpoint={}", listen());
        assert_eq!(switch.extra_args_finding(&ours), None);
    }

    #[test]
    fn a_unit_without_extra_arguments_gets_its_command_line_with_the_endpoint_at_the_end() {
        let unit = KubeletUnit {
            exec_start: "-/opt/kubelet --config=/k.yaml --container-runtime-endpoint=unix:///a.sock"
                .to_owned(),
            ..KubeletUnit::default()
        };
        let switch = KubeletSwitch::of_unit("kubelet.service", &unit, &Paths::of_node()).unwrap();
        let [(_, directives)] = &texts(&switch)[..] else { panic!("{switch:?} has other files") };
        let expected = "[Service]\nExecStart=\nExecStart=-/opt/kubelet --config=/k.yaml \
                        --container-runtime-endpoint=unix:///a.sock \
                        --container-runtime-endpoint=unix:///run/probeshim/probeshim.sock\n";
        assert!(directives.ends_with(expected), "{directives}");
    }

    #[test]
    fn a_unit_that_starts_a_shell_is_refused() {
        let exec_start = "/bin/sh -c \"exec kubelet\"".to_owned();
        let unit = KubeletUnit { exec_start, ..KubeletUnit::default() };
        let error = KubeletSwitch::of_unit("kubelet.service", &unit, &Paths::of_node()).unwrap_err();
        assert!(error.to_string().starts_with("kubelet.service starts /bin/sh, to which no flag"), "{error}");
    }

    #[test]
    fn k3s_passes_the_endpoint_to_its_kubelet_and_keeps_its_own_containerd() {
        let switch = KubeletSwitch::K3s { unit: "k3s.service".to_owned() };
        let [(path, text)] = &texts(&switch)[..] else { panic!("{switch:?} has other files") };
        assert_eq!(path, "/etc/rancher/k3s/config.yaml.d/zz-probeshim.yaml");
        // `container-runtime-endpoint` at the top level would make k3s start no containerd.
        let value: serde_json::Value = serde_saphyr::from_str(text).unwrap();
        let arguments = ["container-runtime-endpoint=unix:///run/probeshim/probeshim.sock"];
        assert_eq!(value, serde_json::json!({"kubelet-arg+": arguments}));
        let rke2 = KubeletSwitch::K3s { unit: "rke2-agent.service".to_owned() };
        let [(path, of_rke2)] = &texts(&rke2)[..] else { panic!("{rke2:?} has other files") };
        assert_eq!(path, "/etc/rancher/rke2/config.yaml.d/zz-probeshim.yaml");
        assert_eq!((of_rke2, rke2.layout()), (text, "RKE2"));
    }
}
