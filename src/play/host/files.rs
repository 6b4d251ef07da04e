//! Files of a volume, all of which change at once: they are links into a folder, which is a link itself (as the kubelet's atomic writer).

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::{HostError, at, make};
use crate::play::configs::{Facts, field, resource};
use crate::play::spec::{Content, File};

/// The link to the folder that counts.
const DATA: &str = "..data";

/// Writes the files of a volume. Tells whether they were not so already.
pub(super) fn write(volume: &Path, files: &[File], mode: u32, facts: &Facts<'_>) -> Result<bool, HostError> {
    let content = |file: &File| match &file.content {
        Content::Given(content) => content.clone(),
        Content::Field(of) => field(of, facts).into_bytes(),
        Content::Resource(of) => resource(of, "", facts).into_bytes(),
    };
    let files: Vec<(&File, Vec<u8>)> = files.iter().map(|file| (file, content(file))).collect();
    let mut digest = Sha256::new_with_prefix(mode.to_le_bytes());
    for (file, content) in &files {
        digest.update(format!("{}\0{:?}\0{}\0", file.path, file.mode, content.len()));
        digest.update(content);
    }
    let digest = digest.finalize();
    let name = digest.iter().take(8).fold("..".to_owned(), |name, byte| format!("{name}{byte:02x}"));
    let (folder, link) = (volume.join(&name), volume.join(DATA));
    let before = fs::read_link(&link).ok();
    if before.as_deref() == Some(Path::new(&name)) {
        return Ok(false);
    }
    for (file, content) in &files {
        let path = folder.join(&file.path);
        make(path.parent().unwrap_or(&folder), 0o755)?;
        fs::write(&path, content).map_err(at(&path))?;
        let mode = Permissions::from_mode(file.mode.unwrap_or(mode));
        fs::set_permissions(&path, mode).map_err(at(&path))?;
    }
    make(&folder, 0o755)?;
    let new = volume.join("..data_tmp");
    let _ = fs::remove_file(&new);
    symlink(&name, &new).map_err(at(&new))?;
    fs::rename(&new, &link).map_err(at(&link))?;
    let names = files.iter().filter_map(|(file, _)| file.path.split('/').find(|part| !part.is_empty()));
    let names: BTreeSet<&str> = names.collect();
    for name in &names {
        let path = volume.join(name);
        if fs::symlink_metadata(&path).is_err() {
            symlink(Path::new(DATA).join(name), &path).map_err(at(&path))?;
        }
    }
    for entry in fs::read_dir(volume).map_err(at(volume))? {
        let entry = entry.map_err(at(volume))?;
        let file_name = entry.file_name();
        if !file_name.to_string_lossy().starts_with("..") && !names.contains(&*file_name.to_string_lossy()) {
            fs::remove_file(entry.path()).map_err(at(&entry.path()))?;
        }
    }
    if let Some(before) = before {
        let path = volume.join(before);
        fs::remove_dir_all(&path).map_err(at(&path))?;
    }
    Ok(true)
}
