use std::os::unix::net::{UnixListener, UnixStream};

use tempfile::TempDir;

use super::*;

/// A directory with the paths of a socket to bind and of a runtime's socket.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn at(&self, name: &str) -> SocketPath {
        SocketPath::parse(self.0.path().join(name).to_str().unwrap()).unwrap()
    }

    fn claim(&self, name: &str) -> Result<BoundListener, BindError> {
        bind(&self.at(name), BindMode::InheritFrom(&self.at("upstream")))
    }

    fn mode(&self, name: &str) -> u32 {
        fs::metadata(self.0.path().join(name)).unwrap().mode() & 0o777
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.0.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

#[test]
fn without_an_upstream_file_sockets_have_mode_0660_and_directories_0755() {
    let place = Place::new();
    let _held = place.claim("a/b/shim").unwrap();
    assert_eq!(place.mode("a/b/shim"), 0o660);
    assert_eq!(place.mode("a"), 0o755);
    assert_eq!(place.mode("a/b"), 0o755);
}

#[test]
fn the_socket_gets_the_mode_of_the_upstream_socket() {
    for mode in [0o600, 0o660, 0o666] {
        let place = Place::new();
        let _upstream = UnixListener::bind(place.at("upstream").as_path()).unwrap();
        fs::set_permissions(place.at("upstream").as_path(), Permissions::from_mode(mode)).unwrap();
        let _held = place.claim("shim").unwrap();
        assert_eq!(place.mode("shim"), mode);
    }
}

#[test]
fn the_socket_and_its_lock_are_removed_with_the_claim() {
    let place = Place::new();
    let held = place.claim("shim").unwrap();
    assert_eq!(place.names(), ["shim", "shim.lock"]);
    UnixStream::connect(place.at("shim").as_path()).unwrap();
    drop(held);
    assert!(place.names().is_empty());
}

#[test]
fn a_stale_socket_is_replaced() {
    let place = Place::new();
    drop(UnixListener::bind(place.at("shim").as_path()).unwrap());
    let _held = place.claim("shim").unwrap();
    UnixStream::connect(place.at("shim").as_path()).unwrap();
}

#[test]
fn a_socket_in_use_is_not_replaced() {
    let place = Place::new();
    let other = UnixListener::bind(place.at("shim").as_path()).unwrap();
    assert!(matches!(place.claim("shim"), Err(BindError::InUse(_))));
    UnixStream::connect(place.at("shim").as_path()).unwrap();
    drop(other);
    assert_eq!(place.names(), ["shim"], "the lock was released");
}

#[test]
fn a_second_instance_is_refused_by_the_lock() {
    let place = Place::new();
    let _held = place.claim("shim").unwrap();
    let refused = place.claim("shim").unwrap_err();
    assert!(matches!(refused, BindError::Locked(LockError::Held { .. })), "{refused}");
}

#[test]
fn a_file_that_replaced_the_socket_is_not_removed() {
    let place = Place::new();
    let held = place.claim("shim").unwrap();
    fs::remove_file(place.at("shim").as_path()).unwrap();
    let _other = UnixListener::bind(place.at("shim").as_path()).unwrap();
    drop(held);
    assert_eq!(place.names(), ["shim"]);
}

#[test]
fn directories_files_and_the_upstream_socket_are_refused_as_listen_paths() {
    let place = Place::new();
    fs::create_dir(place.0.path().join("directory")).unwrap();
    fs::write(place.0.path().join("file"), "kept").unwrap();
    assert!(matches!(place.claim("directory"), Err(BindError::IsDirectory(_))));
    assert!(matches!(place.claim("file"), Err(BindError::NotASocket(_))));
    assert_eq!(fs::read(place.0.path().join("file")).unwrap(), b"kept");
    assert!(matches!(place.claim("upstream"), Err(BindError::IsUpstream(_))));
    assert!(matches!(place.claim("new/../upstream"), Err(BindError::IsUpstream(_))));
    let under_a_file = place.claim("file/shim").unwrap_err().to_string();
    assert!(under_a_file.contains("file"), "{under_a_file}");
}

#[test]
fn a_private_socket_has_mode_0600_regardless_of_the_upstream() {
    let place = Place::new();
    let _upstream = UnixListener::bind(place.at("upstream").as_path()).unwrap();
    let _held = bind(&place.at("admin"), BindMode::OwnerOnly).unwrap();
    assert_eq!(place.mode("admin"), 0o600);
}
