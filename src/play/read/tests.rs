//! What is read of documents, and what is wrong with them.

use super::*;

/// The pod of a spec that has nothing wrong with it.
pub(in crate::play) fn pod(spec: &str) -> Pod {
    let pods = play(&format!("{{kind: Pod, metadata: {{name: p, namespace: test}}, spec: {spec}}}")).unwrap();
    (**pods.first().unwrap()).clone()
}

/// The pods of documents, or everything that is wrong with them.
pub(in crate::play) fn play(text: &str) -> Result<Vec<Arc<Pod>>, Vec<String>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    let (mut read, mut problems) = (Vec::new(), Vec::new());
    for (place, document) in documents.iter().enumerate() {
        let mut found = Vec::new();
        read.extend(Document::read(document, Terms::default(), &format!("doc {}", place + 1), &mut found));
        problems.extend(found.iter().map(|problem| format!("doc {}: {problem}", place + 1)));
    }
    let wanted = joined(&read.iter().collect::<Vec<_>>());
    problems.extend(wanted.problems);
    if problems.is_empty() { Ok(wanted.pods) } else { Err(problems) }
}
