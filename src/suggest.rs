//! Suggests the known name that a user probably meant.

use strsim::jaro_winkler;

/// Minimum similarity, from 0 to 1, of a suggested name.
const MIN_SIMILARITY: f64 = 0.8;

/// Maximum length of an unknown name, in bytes, for which a name is suggested. The comparison of a
/// very long name takes long, and finds no similar name.
const MAX_COMPARED_BYTES: usize = 64;

/// Returns the known name that is most similar to an unknown one, without regard to case; `None` if
/// none is similar.
#[must_use]
pub fn most_similar<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > MAX_COMPARED_BYTES {
        return None;
    }
    let name = name.to_ascii_lowercase();
    let similarity = |known: &'a str| (jaro_winkler(&name, &known.to_ascii_lowercase()), known);
    let similar = known.into_iter().map(similarity).filter(|(similarity, _)| *similarity > MIN_SIMILARITY);
    similar.max_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, known)| known)
}

/// Returns `, did you mean "…"?` with the known name that is most similar to an unknown one; empty
/// if none is similar.
#[must_use]
pub fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    most_similar(name, known).map_or_else(String::new, |similar| format!(", did you mean {similar:?}?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_similar_name_is_suggested_if_one_is_similar() {
        let known = ["liveness", "readiness", "startup"];
        assert_eq!(did_you_mean("livness", known), ", did you mean \"liveness\"?");
        assert_eq!(most_similar("READYNESS", known), Some("readiness"));
        assert_eq!(did_you_mean("exec", known), "");
        assert_eq!(most_similar(&"liveness".repeat(9), known), None, "a long name is not compared");
    }
}
