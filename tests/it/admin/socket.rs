//! The command `probeshim status`, and admin sockets that do not answer.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use fixtures::http2::answered;
use fixtures::machine::program;
use fixtures::need;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{get, public_address};
use crate::procrun::Runtime as Procrun;
use crate::program::{Answer, Place, is_root, joined};

#[tokio::test]
async fn status_and_readiness_show_whether_the_runtime_answers() {
    let place = Place::new();
    let runtime = Procrun::start_at(&place.at("runtime.sock"));
    let shim = place.start(&[]).await;
    let http = public_address(&shim).await;
    let status = place.ask(&["status", "-o", "json"]).await.json();
    assert_eq!(status["mode"], "off");
    assert_eq!(status["pid"], shim.process.id());
    assert_eq!(status["http"], format!("http://{http}"));
    let socket = format!("unix://{}", place.at("runtime.sock").display());
    let version = concat!("v", env!("CARGO_PKG_VERSION"));
    let ready =
        json!({"socket": socket, "ready": true, "runtime": "procrun", "version": version, "error": null});
    assert_eq!(status["upstream"], ready);
    let table = place.ask(&["status"]).await.stdout;
    assert!(
        table.contains(&format!("procrun {version}"))
            && table.contains("0 in flight, 0 observed, 0 kept, 0 dropped"),
        "{table}"
    );
    assert!(get(&http, "/readyz").await.starts_with("HTTP/1.1 200"));

    runtime.end().await;
    let answer = get(&http, "/readyz").await;
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains(&socket), "{answer}");
    assert!(get(&http, "/healthz").await.starts_with("HTTP/1.1 200"));
    let upstream = place.ask(&["status", "-o", "json"]).await.json()["upstream"].clone();
    assert_eq!((&upstream["ready"], &upstream["version"]), (&json!(false), &Value::Null));
    let table = place.ask(&["status"]).await.stdout;
    assert!(table.contains("ready        no: "), "{table}");
}

#[tokio::test]
async fn readiness_returns_with_the_runtime_and_does_not_wait_for_a_hanging_runtime() {
    let place = Place::new();
    let (shim, runtime) = place.start_with_runtime(&[]).await;
    let http = public_address(&shim).await;
    // The runtime accepts the connection and sends nothing.
    let silent = get(&http, "/readyz").await;
    assert!(
        silent.starts_with("HTTP/1.1 503") && silent.contains("no answer to Version within 2s"),
        "{silent}"
    );
    // Another runtime takes the path of the first, which still holds its connection.
    fs::remove_file(place.at("runtime.sock")).unwrap();
    let gone = get(&http, "/readyz").await;
    assert!(gone.starts_with("HTTP/1.1 503") && gone.contains("No such file or directory"), "{gone}");
    let procrun = Procrun::start_at(&place.at("runtime.sock"));
    let ready = get(&http, "/readyz").await;
    assert!(ready.starts_with("HTTP/1.1 200"), "{ready}");
    drop(runtime);
    procrun.end().await;
}

#[tokio::test]
async fn a_command_gives_up_on_a_silent_admin_socket() {
    let place = Place::new();
    let _silent = UnixListener::bind(place.at("admin.sock")).unwrap();
    let answer = place.ask(&["status"]).await;
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(answer.stderr.contains("did not answer within 10s"), "{answer:?}");
}

#[tokio::test]
async fn a_successor_takes_over_all_addresses_while_calls_are_finished() {
    let place = Place::new();
    let (mut first, runtime) = place.start_with_runtime(&[]).await;
    let http = public_address(&first).await;
    let (mut client, mut connection) = joined(&first, &runtime).await;
    let answer = client.ask("/a.B/Slow");
    let slow = connection.call().await;
    first.signal(Signal::TERM);
    first.logged("draining").await;

    let mut command = place.command_with_http("shim.sock", &http);
    let second = place.spawn_logging_to(&mut command, "second.log").await;
    assert_eq!(public_address(&second).await, http);
    let status = place.ask(&["status", "-o", "json"]).await.json();
    assert_eq!(status["pid"], second.process.id());
    slow.answer("in time");
    assert_eq!(answered(answer).await, "in time");
    assert_eq!(first.ended().await, Some(0));
    assert!(place.at("admin.sock").exists(), "the socket belongs to the successor");
}

#[tokio::test]
async fn a_command_names_an_unusable_admin_socket_with_the_reason() {
    let place = Place::new();
    let refused = async |told: &str| {
        let answer = place.ask(&["status"]).await;
        assert_eq!((answer.code, answer.stdout.as_str()), (Some(1), ""), "{answer:?}");
        let socket = format!("unix://{}", place.at("admin.sock").display());
        assert!(answer.stderr.contains(told) && answer.stderr.contains(&socket), "{answer:?}");
    };
    let nobody = place.ask(&["status"]).await.stderr;
    let told = format!(
        "error: no probeshim listens on unix://{}: No such file or directory (os error 2); \
         `probeshim` without arguments shows how to start one, and --admin or --instance names another\n",
        place.at("admin.sock").display()
    );
    assert_eq!(nobody, told);
    drop(UnixListener::bind(place.at("admin.sock")).unwrap());
    refused("Connection refused").await;
    fs::remove_file(place.at("admin.sock")).unwrap();

    // The socket belongs to a runtime.
    let runtime = Procrun::start_at(&place.at("admin.sock"));
    refused("is not the admin API of a probeshim").await;
    runtime.end().await;

    let stranger = tokio::net::UnixListener::bind(place.at("admin.sock")).unwrap();
    for (header, told) in [
        ("", "is not the admin API of a probeshim"),
        ("probeshim-api: 2\r\n", "has version \"2\" of the admin API"),
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\n{header}content-length: 2\r\n\r\n{{}}");
        let answering = async {
            let (mut asking, _) = stranger.accept().await.unwrap();
            assert!(asking.read_buf(&mut Vec::with_capacity(1024)).await.unwrap() > 0);
            asking.write_all(answer.as_bytes()).await.unwrap();
        };
        tokio::join!(refused(told), answering);
    }
}

#[tokio::test]
async fn the_admin_socket_is_private_and_refuses_other_users_with_a_message() {
    need!(is_root());
    let place = Place::new();
    let _shim = place.start(&[]).await;
    assert_eq!(fs::metadata(place.at("admin.sock")).unwrap().permissions().mode() & 0o777, 0o600);
    let mut stranger = Command::new(place.copied_program());
    stranger.arg("status").arg("--admin").arg(place.at("admin.sock")).uid(65_534).gid(65_534);
    let answer = Answer::to(stranger).await;
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(answer.stderr.contains("permission denied to open"), "{answer:?}");
}

#[tokio::test]
async fn the_admin_socket_serves_the_users_of_the_flag_and_refuses_others_with_their_uid() {
    need!(is_root());
    need!(program("perl", "perl"));
    let place = Place::new();
    let shim = place.start(&["--allow-uid", "65534"]).await;
    assert_eq!(fs::metadata(place.at("admin.sock")).unwrap().permissions().mode() & 0o777, 0o666);
    let copy = place.copied_program();
    let ask = async |uid: u32| {
        let mut command = Command::new(&copy);
        command
            .args(["status", "-o", "json"])
            .arg("--admin")
            .arg(place.at("admin.sock"))
            .uid(uid)
            .gid(65_534);
        Answer::to(command).await
    };
    assert_eq!(ask(65_534).await.json()["pid"], shim.process.id());
    for _ in 0..3 {
        let refused = ask(65_533).await;
        let expected = "error: uid 65533 may not use the admin socket: root and the user of probeshim are permitted; \
                        the flag --allow-uid 65533 of probeshim permits this user to read\n";
        assert_eq!((refused.code, refused.stderr.as_str()), (Some(1), expected));
    }
    let line = shim.logged("a user without permission is refused at the admin socket; see --allow-uid").await;
    assert!(line["client"].as_str().unwrap().ends_with("uid 65533"), "{line}");
    // Refused users occupy no connection of others, however many connections they have.
    let mut child = Command::new("perl");
    child.args(["-MSocket", "-e"]).arg(
        "my $to = sockaddr_un($ARGV[0]); \
         for (1 .. 400) { socket(my $s, PF_UNIX, SOCK_STREAM, 0) or die; connect($s, $to) or die; push @all, $s } \
         $| = 1; print qq(connected\n); <STDIN>",
    );
    child.arg(place.at("admin.sock")).uid(65_533).gid(65_534);
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut connected = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut connected).unwrap();
    assert_eq!(connected, "connected\n");
    assert_eq!(place.ask(&["status"]).await.code, Some(0));
    drop(child.stdin.take());
    child.wait().unwrap();
}
