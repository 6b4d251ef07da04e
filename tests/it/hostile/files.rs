//! Files that never end, or are too long.

use std::fs::{self, File};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::playing;
use crate::program::{Answer, Place};

async fn probeshim(arguments: &[&str]) -> Answer {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_probeshim"));
    command.args(arguments);
    Answer::to(command).await
}

#[tokio::test]
async fn manifests_and_configurations_are_regular_files_up_to_a_limit() {
    let place = Place::new();
    let [fifo, sparse, folder] = ["fifo", "sparse.yaml", "folder"].map(|name| place.at(name));
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    File::create(&sparse).unwrap().set_len(5 << 30).unwrap();
    fs::create_dir(&folder).unwrap();
    fs::rename(&sparse, folder.join("sparse.yaml")).unwrap();
    let (fifo, sparse) = (fifo.to_str().unwrap(), folder.join("sparse.yaml"));
    let long = "it has 5368709120 bytes, and at most 67108864 bytes (64.0 MiB) are read";
    for (path, reason) in [
        (fifo, "it is a FIFO; only regular files are read"),
        ("/dev/zero", "it is a device; only regular files are read"),
        (folder.to_str().unwrap(), long),
        (sparse.to_str().unwrap(), long),
    ] {
        let checked = probeshim(&["check", path]).await;
        assert_eq!(checked.code, Some(2), "{checked:?}");
        let told = if path == folder.to_str().unwrap() { sparse.to_str().unwrap() } else { path };
        assert_eq!(checked.stderr, format!("probeshim: {told}: {reason}\n"));
        let played = Answer::to(playing::play(&place, &[path])).await;
        assert_eq!(played.code, Some(2), "{played:?}");
        assert!(played.stderr.contains(&format!("{told}: {reason}")), "{played:?}");
    }
    for path in [fifo, "/dev/zero", sparse.to_str().unwrap()] {
        let checked = probeshim(&["check", "--config", path]).await;
        assert_eq!(checked.code, Some(2), "{checked:?}");
        assert!(checked.stderr.starts_with(&format!("probeshim: {path}: ")), "{checked:?}");
        let refused = place.refused(place.command("shim.sock", &["--pods", path])).await;
        assert_eq!(refused.0, 2, "{refused:?}");
    }
}
