//! Writes the unit that points the kubelet at the runtime's own socket. It needs no probeshim.

use std::path::Path;

use super::paths::Paths;
use super::switch::KubeletSwitch;

/// Returns the text of the unit. Each step may fail: systemd starts the unit again until all have
/// succeeded, because the renamed file is removed last. Without both files the kubelet is not
/// switched, and the unit does nothing. A kubelet that an administrator has stopped stays stopped.
/// The timer is not stopped: it may already be that of a repeated installation.
pub(super) fn bypass(switch: &KubeletSwitch) -> String {
    let file = switch.effective_file();
    let renamed = Paths::reverted(&file);
    let [mv, rm, sh, systemctl] = ["mv", "rm", "sh", "systemctl"].map(program);
    let (file, renamed, unit) = (file.display(), renamed.display(), switch.unit());
    format!(
        "[Unit]\nDescription=Point the kubelet at the runtime's own socket\nStartLimitIntervalSec=0\n\
         ConditionPathExists=|{file}\nConditionPathExists=|{renamed}\n\n\
         [Service]\nType=oneshot\nRestart=on-failure\nRestartSec=1s\n\
         ExecStart={sh} -c '[ ! -e {file} ] || exec {mv} -f {file} {renamed}'\n\
         ExecStart={systemctl} daemon-reload\n\
         ExecStart={sh} -c '[ \"$$({systemctl} show --value --property ActiveState {unit})\" = inactive ] || \
         exec {systemctl} --no-block restart {unit}'\n\
         ExecStart={rm} -f {renamed}\n",
    )
}

/// Returns the path of a program of the system.
pub(super) fn program(name: &str) -> String {
    let dirs = ["/usr/bin", "/bin"];
    let found = dirs.iter().map(|dir| Path::new(dir).join(name)).find(|path| path.exists());
    found.unwrap_or_else(|| Path::new("/usr/bin").join(name)).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::install::paths::InstalledUnit;

    #[test]
    fn the_bypass_leaves_the_timer_to_a_repeated_installation() {
        let text = bypass(&KubeletSwitch::K3s { unit: "k3s.service".to_owned() });
        assert!(!text.contains(InstalledUnit::Revert.name()), "{text}");
    }

    #[test]
    fn the_bypass_is_repeated_until_the_kubelet_was_restarted() {
        let text = bypass(&KubeletSwitch::K3s { unit: "k3s.service".to_owned() });
        let file = "/etc/rancher/k3s/config.yaml.d/zz-probeshim.yaml";
        let lines: Vec<&str> = text.lines().collect();
        let at = |part: &str| {
            let found = lines.iter().position(|line| line.contains(part));
            found.unwrap_or_else(|| panic!("{part:?} is missing:\n{text}"))
        };
        assert!(at("Restart=on-failure") < at("ExecStart="));
        // Either file suffices for a repetition, and the second one is there until the end.
        assert!(lines.contains(&&*format!("ConditionPathExists=|{file}")), "{text}");
        assert!(lines.contains(&&*format!("ConditionPathExists=|{file}.reverted")), "{text}");
        let order = ["mv -f", "daemon-reload", "--no-block restart k3s.service", "rm -f"].map(at);
        assert!(order.is_sorted(), "{text}");
        // The shell reads its command substitution as written.
        assert!(lines[order[2]].contains("\"$$(/"), "{text}");
    }
}
