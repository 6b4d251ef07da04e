//! What is read, and what is refused.

use super::read::{duration, http_address};
use super::*;

fn around(is_root: bool, runtime_dir: Option<&str>) -> Surroundings {
    Surroundings {
        is_root,
        has_collector: false,
        is_activated: false,
        runtime_dir: runtime_dir.map(PathBuf::from),
        state_home: None,
    }
}

#[test]
fn defaults_are_those_of_the_documentation() {
    let root = Settings::new(&Flags::default(), &around(true, Some("/run/user/0"))).unwrap();
    assert_eq!(root.shim.listen.unwrap().to_string(), "unix:///run/probeshim/probeshim.sock");
    assert_eq!(root.shim.relay.upstream.to_string(), "unix:///run/containerd/containerd.sock");
    assert_eq!(root.shim.admin.to_string(), "unix:///run/probeshim/admin.sock");
    assert_eq!(root.shim.http.unwrap().to_string(), "127.0.0.1:9754");
    assert_eq!(root.shim.relay.drain_timeout, Duration::from_secs(30));
    let user = Settings::new(&Flags::default(), &around(false, Some("/run/user/1000"))).unwrap();
    assert_eq!(user.shim.listen.unwrap().to_string(), "unix:///run/user/1000/probeshim/probeshim.sock");
}

#[test]
fn every_problem_is_told_at_once_with_flag_value_and_what_is_allowed() {
    let flags = Flags {
        listen: None,
        upstream: Some("tcp://127.0.0.1:1".into()),
        admin: None,
        http: Some("0.0.0.0:9754".into()),
        drain_timeout: Some("-3s".into()),
        log: Some("probeshim=loud".into()),
        ..Flags::default()
    };
    let told = Settings::new(&flags, &around(false, None)).unwrap_err().to_string();
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), 6, "{told}");
    assert_eq!(lines[0], "--listen is needed: not root, and XDG_RUNTIME_DIR is not set");
    assert_eq!(lines[1], "--admin is needed: not root, and XDG_RUNTIME_DIR is not set");
    assert!(lines[2].starts_with("--upstream \"tcp://127.0.0.1:1\" has the scheme tcp://"), "{told}");
    assert!(lines[3].starts_with("--http \"0.0.0.0:9754\" is not a loopback address"), "{told}");
    assert!(lines[4].starts_with("--drain-timeout \"-3s\" is out of range; write a duration"), "{told}");
    assert!(lines[5].starts_with("--log \"probeshim=loud\" is not a log filter"), "{told}");
}

#[test]
fn a_socket_that_systemd_passes_needs_no_path_and_wins_over_one() {
    let activated = Surroundings { is_activated: true, ..around(false, None) };
    let flags = Flags { admin: Some("/run/admin.sock".into()), ..Flags::default() };
    assert_eq!(Settings::new(&flags, &activated).unwrap().shim.listen, None);
    let flags = |listen: &str| Flags { listen: Some(listen.into()), ..flags.clone() };
    assert_eq!(Settings::new(&flags("/run/a.sock"), &activated).unwrap().shim.listen, None);
    assert!(Settings::new(&flags("tcp://a"), &activated).is_err(), "what is written is checked all the same");
}

#[test]
fn durations_are_read_as_people_write_them() {
    assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
    assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
    assert_eq!(duration("0s"), Ok(Duration::ZERO));
    for wrong in ["", "30", "soon", "25h", "1 fortnight"] {
        assert!(duration(wrong).unwrap_err().contains("from 0s to 24h"), "{wrong}");
    }
}

#[test]
fn addresses_for_http_are_of_this_machine() {
    let address = |text: &str| http_address(text).map(|address| address.map(|address| address.to_string()));
    assert_eq!(address("off"), Ok(None));
    assert_eq!(address("localhost:0").unwrap().unwrap(), "127.0.0.1:0");
    assert_eq!(address("[::1]:9754").unwrap().unwrap(), "[::1]:9754");
    for wrong in ["", "9754", "127.0.0.1", "localhost:x", "10.0.0.1:1", "[::]:1", "unix:///run/a.sock"] {
        assert!(address(wrong).unwrap_err().contains("write off, or a loopback address"), "{wrong}");
    }
}

#[test]
fn the_admin_socket_is_no_other() {
    let flags =
        Flags { admin: Some("/run/a.sock".into()), upstream: Some("/run/a.sock".into()), ..Flags::default() };
    let told = Settings::new(&flags, &around(true, None)).unwrap_err().to_string();
    assert_eq!(
        told,
        "--admin \"unix:///run/a.sock\" is the socket of --upstream as well; choose another path"
    );
}

#[test]
fn every_flag_of_the_runtime_is_checked() {
    let wrong = |value: &str| Some(value.to_owned());
    let flags = RuntimeFlags {
        listen: wrong("tcp://a"),
        root: wrong(""),
        exec_delay: wrong("1 fortnight"),
        start_delay: wrong("-1s"),
        synthetic: wrong("many"),
        drain_exec_sync_io_timeout: wrong("25h"),
        exec_timeout_kills: wrong("all"),
        log: wrong(""),
    };
    let told = RuntimeSettings::new(&flags, &around(false, None)).unwrap_err().to_string();
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), 8, "{told}");
    assert!(lines[1].starts_with("--root \"\" is empty"), "{told}");
    assert!(lines[5].starts_with("--drain-exec-sync-io-timeout \"25h\" is out of range"), "{told}");
    assert_eq!(lines[4], "--synthetic \"many\" is not a number of containers; write one from 0 to 100000");
    assert_eq!(lines[6], "--exec-timeout-kills \"all\" is not what can be killed; write process or group");
}

#[test]
fn procrun_has_its_place_among_our_own() {
    let defaults = RuntimeFlags::default();
    let root = RuntimeSettings::new(&defaults, &around(true, None)).unwrap();
    assert_eq!(root.listen.to_string(), "unix:///run/probeshim/procrun.sock");
    assert_eq!(root.procrun.root, Path::new("/var/lib/probeshim/procrun"));
    let home =
        Surroundings { state_home: Some("/home/me/state".into()), ..around(false, Some("/run/user/1")) };
    let user = RuntimeSettings::new(&defaults, &home).unwrap();
    assert_eq!(user.procrun.root, Path::new("/home/me/state/probeshim/procrun"));
    assert_eq!(user.procrun.drain_limit, None, "0s is for as long as it takes, as with containerd");
    let nowhere = RuntimeSettings::new(&defaults, &around(false, None)).unwrap_err().to_string();
    assert_eq!(
        nowhere.lines().nth(1),
        Some("--root is needed: not root, and neither XDG_STATE_HOME nor HOME is set")
    );
}
