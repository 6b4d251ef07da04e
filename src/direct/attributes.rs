//! Attributes of the processes that the helper starts in a container.
//!
//! The specification gives the attributes that the OCI runtime sets before the exec. All others are
//! those of a process that the runtime has started, as recorded at its exec.

use exec_helper::protocol::{Attributes, Recorded, Rlimit, SeccompFilter, Snapshot};

use super::spec::{ContainerSpec, Unsupported};

/// Names of the resource limits in `/proc/PID/limits`, in the order of their numbers.
const RLIMITS: [&str; 16] = [
    "Max cpu time",
    "Max file size",
    "Max data size",
    "Max stack size",
    "Max core file size",
    "Max resident set",
    "Max processes",
    "Max open files",
    "Max locked memory",
    "Max address space",
    "Max file locks",
    "Max pending signals",
    "Max msgqueue size",
    "Max nice priority",
    "Max realtime priority",
    "Max realtime timeout",
];

/// Instruction that ends a filter with a constant: `BPF_RET | BPF_K`.
const RETURN: u16 = 0x06;

/// Action `SECCOMP_RET_USER_NOTIF`: another process decides on the system call.
const NOTIFY: u32 = 0x7fc0_0000;

/// Mask of the action in the constant of a [`RETURN`].
const ACTION: u32 = 0xffff_0000;

/// Returns the attributes of commands in a container.
pub(super) fn attributes_for_container(
    container_id: &str,
    spec: &ContainerSpec,
    recorded: &Recorded,
) -> Result<Attributes, Unsupported> {
    let runtime = OciRuntime::from_name(&recorded.runtime)?;
    let snapshot = recorded.snapshot.clone().unwrap_or_default();
    let text = |name: &'static str| snapshot.text(name).ok_or(Unsupported::Unrecorded(name));
    let number = |name: &'static str, radix: u32| -> Result<u64, Unsupported> {
        let text = text(name)?.split_whitespace().next().unwrap_or_default();
        u64::from_str_radix(text, radix).map_err(|_| Unsupported::Unrecorded(name))
    };
    let id = |name| u32::try_from(number(name, 10)?).map_err(|_| Unsupported::Unrecorded(name));
    let groups = text("Groups")?.split_whitespace().map(str::parse);
    let environ = snapshot.value("environ").ok_or(Unsupported::Unrecorded("environ"))?;
    let env = environ.split(|byte| *byte == 0).filter(|variable| !variable.is_empty());
    if recorded.filters.iter().any(notifies) {
        return Err(Unsupported::Field("seccomp notify"));
    }
    let filters = recorded.filters.iter().map(|filter| SeccompFilter {
        program: filter.program.clone(),
        flags: filter.flags | spec.filter_flags,
    });
    Ok(Attributes {
        keyring: spec.joins_keyring.then(|| runtime.keyring(container_id)).flatten(),
        no_new_privs: spec.no_new_privs,
        umask: u32::try_from(number("Umask", 8)?).map_err(|_| Unsupported::Unrecorded("Umask"))?,
        rlimits: rlimits(&snapshot)?,
        oom_score_adj: text("oom_score_adj")?
            .trim()
            .parse()
            .map_err(|_| Unsupported::Unrecorded("oom_score_adj"))?,
        uid: id("Uid")?,
        gid: id("Gid")?,
        stream_gid: if runtime == OciRuntime::Crun { Some(id("Gid")?) } else { None },
        groups: groups.collect::<Result<_, _>>().map_err(|_| Unsupported::Unrecorded("Groups"))?,
        capabilities: Some(spec.capabilities),
        apparmor_profile: spec.apparmor_profile.clone(),
        cwd: spec.cwd.clone().into_bytes(),
        env: env.map(<[u8]>::to_vec).collect(),
        filters: filters.collect(),
        ignored_signals: number("SigIgn", 16)?,
        home: (!spec.has_home).then(|| home(environ).to_vec()),
        unknown_home: runtime.unknown_home(home(environ)).as_bytes().to_vec(),
    })
}

/// OCI runtime whose processes the helper can imitate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OciRuntime {
    Runc,
    Crun,
}

impl OciRuntime {
    fn from_name(name: &str) -> Result<Self, Unsupported> {
        match name {
            "runc" => Ok(Self::Runc),
            "crun" => Ok(Self::Crun),
            _ => Err(Unsupported::OciRuntime(name.to_owned())),
        }
    }

    /// Returns the HOME of a user that `/etc/passwd` does not have, if that of the record is this.
    fn unknown_home(self, recorded: &[u8]) -> &'static str {
        match self {
            // `moby/sys/user`: `GetExecUser`
            Self::Runc => "/",
            // `set_home_env` of crun 1.8 sets none, and later versions set this.
            Self::Crun if recorded == b"/" => "/",
            Self::Crun => "",
        }
    }

    /// Returns the name of the session keyring that a command joins.
    fn keyring(self, container_id: &str) -> Option<String> {
        match self {
            // `libcontainer/setns_init_linux.go`: `getSessionRingName`
            Self::Runc => Some(format!("_ses.{container_id}")),
            // `crun exec` joins none.
            Self::Crun => None,
        }
    }
}

/// Returns HOME in an environment; empty if it is missing.
fn home(environ: &[u8]) -> &[u8] {
    environ.split(|byte| *byte == 0).find_map(|variable| variable.strip_prefix(b"HOME=")).unwrap_or_default()
}

/// Returns all resource limits of a process.
fn rlimits(snapshot: &Snapshot) -> Result<Vec<Rlimit>, Unsupported> {
    let limit = |text: &str| if text == "unlimited" { Some(u64::MAX) } else { text.parse().ok() };
    let rlimit = |(resource, name): (u32, &&'static str)| {
        let text = snapshot.text(&format!("limits/{name}"));
        let (soft, hard) = text.and_then(|text| text.split_once(' ')).unwrap_or_default();
        let limits = limit(soft).zip(limit(hard));
        let (soft, hard) = limits.ok_or(Unsupported::Unrecorded(name))?;
        Ok(Rlimit { resource, soft, hard })
    };
    (0..).zip(&RLIMITS).map(rlimit).collect()
}

/// Returns whether a filter leaves the decision on a system call to another process.
fn notifies(filter: &SeccompFilter) -> bool {
    filter.program.chunks_exact(8).any(|instruction| {
        let code = u16::from_ne_bytes([instruction[0], instruction[1]]);
        let constant = u32::from_ne_bytes([instruction[4], instruction[5], instruction[6], instruction[7]]);
        code == RETURN && constant & ACTION == NOTIFY
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use exec_helper::protocol::{Capabilities, SnapshotField};

    fn spec() -> ContainerSpec {
        ContainerSpec {
            init: 1,
            joins_keyring: true,
            cwd: "/srv".to_owned(),
            capabilities: Capabilities::default(),
            no_new_privs: true,
            apparmor_profile: None,
            has_home: false,
            filter_flags: 4,
        }
    }

    fn recorded(change: impl Fn(&str) -> Option<&'static str>) -> Recorded {
        let mut fields = vec![
            ("Umask", "0027"),
            ("Uid", "33\t33\t33\t33"),
            ("Gid", "44\t44\t44\t44"),
            ("Groups", "5 6"),
            ("SigIgn", "0000000000001000"),
            ("oom_score_adj", "-997\n"),
            ("environ", "PATH=/bin\0EMPTY=\0HOME=/srv\0"),
        ];
        let limits: Vec<String> = RLIMITS.iter().map(|name| format!("limits/{name}")).collect();
        fields.extend(limits.iter().map(|name| (name.as_str(), "1024 unlimited")));
        let field = |(name, value): (&str, &str)| SnapshotField {
            name: name.to_owned(),
            value: change(name).unwrap_or(value).as_bytes().to_vec(),
        };
        let snapshot = Snapshot { fields: fields.into_iter().map(field).collect() };
        Recorded { watch: 1, runtime: "runc".to_owned(), snapshot: Some(snapshot), ..Recorded::default() }
    }

    fn filter(instructions: &[(u16, u32)]) -> SeccompFilter {
        let program = instructions.iter().flat_map(|(code, constant)| {
            let (code, constant) = (code.to_ne_bytes(), constant.to_ne_bytes());
            [&code[..], &[0, 0], &constant[..]].concat()
        });
        SeccompFilter { program: program.collect(), flags: 0 }
    }

    #[test]
    fn attributes_come_from_the_specification_and_from_the_recorded_process() {
        let mut recorded = recorded(|_| None);
        recorded.filters.push(filter(&[(0x20, NOTIFY), (RETURN, 0x7fff_0000)]));
        let found = attributes_for_container("c1", &spec(), &recorded).unwrap();
        assert_eq!((found.uid, found.gid, &found.groups[..]), (33, 44, &[5, 6][..]));
        assert_eq!((found.umask, found.oom_score_adj), (0o27, -997));
        assert_eq!(found.ignored_signals, 1 << 12);
        assert_eq!(found.home.as_deref(), Some(&b"/srv"[..]));
        assert_eq!(found.env, [b"PATH=/bin".to_vec(), b"EMPTY=".to_vec(), b"HOME=/srv".to_vec()]);
        assert_eq!(found.keyring.as_deref(), Some("_ses.c1"));
        assert_eq!(found.rlimits[7], Rlimit { resource: 7, soft: 1024, hard: u64::MAX });
        assert_eq!(found.filters[0].flags, 4);
        assert_eq!((&found.cwd[..], found.no_new_privs), (&b"/srv"[..], true));
    }

    #[test]
    fn a_command_of_crun_joins_no_keyring_its_group_owns_its_streams_and_unknown_users_have_no_home() {
        let runc = attributes_for_container("c1", &spec(), &recorded(|_| None)).unwrap();
        assert_eq!((runc.keyring.as_deref(), runc.stream_gid), (Some("_ses.c1"), None));
        assert_eq!(runc.unknown_home, b"/");
        let recorded = Recorded { runtime: "crun".to_owned(), ..recorded(|_| None) };
        let crun = attributes_for_container("c1", &spec(), &recorded).unwrap();
        assert_eq!((crun.keyring.as_deref(), crun.stream_gid), (None, Some(44)));
        assert_eq!(crun.unknown_home, b"", "the record has another HOME than /");
    }

    #[test]
    fn a_record_that_cannot_be_imitated_is_refused_with_the_reason() {
        let reason =
            |recorded: &Recorded| attributes_for_container("c1", &spec(), recorded).unwrap_err().to_string();
        let mut foreign = recorded(|_| None);
        "kata".clone_into(&mut foreign.runtime);
        assert!(reason(&foreign).contains("kata"), "{}", reason(&foreign));
        let mut notifying = recorded(|_| None);
        notifying.filters.push(filter(&[(RETURN, NOTIFY)]));
        assert!(reason(&notifying).contains("notify"), "{}", reason(&notifying));
        for name in ["Umask", "Uid", "Groups", "SigIgn", "oom_score_adj", "limits/Max open files"] {
            let reason = reason(&recorded(|field| (field == name).then_some("x")));
            assert!(reason.contains(name.trim_start_matches("limits/")), "{name}: {reason}");
        }
    }
}
