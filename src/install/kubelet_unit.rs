//! The unit that starts the kubelet: its command line, and the environment of that command line.

use std::path::PathBuf;

use super::environment_file::value_in_directive;

/// Variable with flags that kubeadm's unit appends to the kubelet's command line.
pub(super) const EXTRA_ARGS: &str = "KUBELET_EXTRA_ARGS";

/// Directives of a unit and its drop-ins that determine the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KubeletUnit {
    /// Value of `ExecStart=`. Empty if there is none.
    pub(super) exec_start: String,
    /// Files of `EnvironmentFile=`, in their order. A missing file is ignored.
    pub(super) environment_files: Vec<PathBuf>,
    /// Value of [`EXTRA_ARGS`] in `Environment=`.
    pub(super) extra_args: Option<String>,
}

impl KubeletUnit {
    /// Parses the output of `systemctl cat`: the unit and its drop-ins, each after a comment with
    /// its path. Drop-ins whose path `is_own` are left out.
    pub(super) fn parse(text: &str, is_own: impl Fn(&str) -> bool) -> Self {
        let (mut unit, mut section, mut skipped) = (Self::default(), String::new(), false);
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let line = line.trim();
            if let Some(path) = line.strip_prefix("# ").filter(|path| is_unit_file(path)) {
                skipped = is_own(path);
                section.clear();
            } else if line.is_empty() || line.starts_with(['#', ';']) {
            } else if line.starts_with('[') {
                line.clone_into(&mut section);
            } else {
                let mut line = line.to_owned();
                while let Some(start) = line.strip_suffix('\\') {
                    let next = lines.by_ref().find(|next| !next.trim_start().starts_with(['#', ';']));
                    line = format!("{} {}", start.trim_end(), next.unwrap_or_default().trim());
                }
                if section == "[Service]" && !skipped {
                    unit.apply(&line);
                }
            }
        }
        unit
    }

    /// Applies a directive. An empty value resets a list.
    fn apply(&mut self, line: &str) {
        let Some((name, value)) = line.split_once('=') else { return };
        let value = value.trim();
        match name.trim() {
            "ExecStart" => value.clone_into(&mut self.exec_start),
            "EnvironmentFile" if value.is_empty() => self.environment_files.clear(),
            "EnvironmentFile" => {
                self.environment_files.push(PathBuf::from(value.strip_prefix('-').unwrap_or(value)));
            }
            "Environment" if value.is_empty() => self.extra_args = None,
            "Environment" => {
                self.extra_args = value_in_directive(value, EXTRA_ARGS).or(self.extra_args.take());
            }
            _ => {}
        }
    }

    /// Returns whether the command line ends with flags of [`EXTRA_ARGS`], as kubeadm's does: no
    /// other flag follows, which could have precedence.
    pub(super) fn ends_with_extra_args(&self) -> bool {
        let last = self.exec_start.split_whitespace().last();
        last.is_some_and(|last| last == format!("${EXTRA_ARGS}"))
    }
}

fn is_unit_file(path: &str) -> bool {
    path.starts_with('/') && [".service", ".conf"].iter().any(|end| path.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KUBEADM: &str = r#"# /lib/systemd/system/kubelet.service
[Unit]
Description=kubelet: The Kubernetes Node Agent

[Service]
ExecStart=/usr/bin/kubelet
Restart=always

# /usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf
# Note: This dropin only works with kubeadm and kubelet v1.11+
[Service]
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_CONFIG_ARGS \
  $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS

# /etc/systemd/system/kubelet.service.d/zz-probeshim.conf
[Service]
EnvironmentFile=/etc/systemd/system/kubelet.service.d/zz-probeshim.env
"#;

    #[test]
    fn the_command_line_of_a_kubelet_comes_from_its_unit_and_the_drop_ins_of_others() {
        let unit = KubeletUnit::parse(KUBEADM, |path| path.ends_with("zz-probeshim.conf"));
        assert_eq!(
            unit.exec_start,
            "/usr/bin/kubelet $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS"
        );
        let files = ["/var/lib/kubelet/kubeadm-flags.env", "/etc/default/kubelet"];
        assert_eq!(unit.environment_files, files.map(PathBuf::from));
        assert!(unit.ends_with_extra_args());
        let all = KubeletUnit::parse(KUBEADM, |_| false);
        assert_eq!(all.environment_files.len(), 3);
    }

    #[test]
    fn a_flag_after_the_extra_arguments_could_have_precedence_over_them() {
        for (exec_start, ends) in [
            ("/usr/bin/kubelet $KUBELET_EXTRA_ARGS", true),
            ("/usr/bin/kubelet $KUBELET_EXTRA_ARGS --v=2", false),
            ("/usr/bin/kubelet --config=/etc/kubelet.yaml", false),
            ("", false),
        ] {
            let unit = KubeletUnit { exec_start: exec_start.to_owned(), ..KubeletUnit::default() };
            assert_eq!(unit.ends_with_extra_args(), ends, "{exec_start}");
        }
    }

    #[test]
    fn extra_arguments_may_come_from_an_environment_directive() {
        let text =
            "# /etc/systemd/system/kubelet.service\n[Service]\nEnvironment='KUBELET_EXTRA_ARGS=-v=4' A=b\n";
        let unit = KubeletUnit::parse(text, |_| false);
        assert_eq!(unit.extra_args.as_deref(), Some("-v=4"));
    }
}
