//! Resolves the sources of a volume to the content of its files (kubelet: `configmap.go`,
//! `secret.go`: `MakePayload`; `projected.go`: `collectData`).

use std::collections::BTreeMap;

use crate::kubelet::cri_config::{EnvFacts, field, resource};
use crate::manifest::ObjectError;
use crate::manifest::pod::{DownwardApiFile, FileSource, KeyToPath, PodField};

/// Files of a volume, by their paths.
pub(super) type Payload = BTreeMap<String, PayloadFile>;

/// A file of a volume. The type does not implement `Debug`, because the content may be that of a
/// Secret.
pub(super) struct PayloadFile {
    pub(super) mode: u32,
    pub(super) content: Vec<u8>,
}

/// Resolves the sources of a volume. If several sources have a file at one path, the last one wins.
/// `mode` is the mode of files without a mode of their own. Fails with all missing objects and
/// keys.
pub(super) fn resolve(
    sources: &[FileSource],
    mode: u32,
    facts: &EnvFacts<'_>,
) -> Result<Payload, ObjectError> {
    let (mut payload, mut errors) = (Payload::new(), Vec::new());
    for source in sources {
        match resolve_source(source, mode, facts) {
            Ok(files) => payload.extend(files),
            Err(error) => errors.push(error),
        }
    }
    match errors.len() {
        0 => Ok(payload),
        1 => Err(errors.remove(0)),
        _ => Err(ObjectError::Several(errors)),
    }
}

fn resolve_source(source: &FileSource, mode: u32, facts: &EnvFacts<'_>) -> Result<Payload, ObjectError> {
    let mut payload = Payload::new();
    match source {
        FileSource::Data { object, items } => {
            let Some(data) = facts.objects.resolve(&facts.pod.namespace, object)? else { return Ok(payload) };
            for KeyToPath { key, path, mode: own } in items {
                if let Some(content) = data.file(key, object.is_optional)? {
                    let file = PayloadFile { mode: own.unwrap_or(mode), content: content.to_owned() };
                    payload.insert(path.clone(), file);
                }
            }
            if items.is_empty() {
                let file = |(key, content): (&String, &Vec<u8>)| {
                    (key.clone(), PayloadFile { mode, content: content.clone() })
                };
                payload.extend(data.entries.iter().map(file));
            }
        }
        FileSource::DownwardApi(files) => {
            for DownwardApiFile { path, mode: own, content } in files {
                let content = match content {
                    PodField::Field(of) => field(of, facts),
                    PodField::Resource(of) => resource(of, None, facts),
                };
                let file = PayloadFile { mode: own.unwrap_or(mode), content: content.into_bytes() };
                payload.insert(path.clone(), file);
            }
        }
    }
    Ok(payload)
}
