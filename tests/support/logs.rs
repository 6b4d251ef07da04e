//! Logs of containers, with what was rotated of them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use flate2::read::GzDecoder;

/// The files of the first attempt of a container, by their names without `.gz`: the log itself is the last. Files that are renamed or
/// removed meanwhile are left out.
pub fn log_files(folder: &Path) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    for name in log_names(folder).into_iter().filter(|name| name.strip_suffix(".tmp").is_none()) {
        let Ok(text) = read(&folder.join(&name)) else { continue };
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        let is_rotated = name != "0.log";
        files.insert(if is_rotated { name.to_owned() } else { "current".to_owned() }, text);
    }
    files
}

/// The names of these files.
pub fn log_names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.retain(|name| name.starts_with("0.log"));
    names.sort();
    names
}

/// Whether each number is the one after the one before it. Any may be the first: the files that began with 1 may be gone.
pub fn are_consecutive(numbers: &[usize]) -> bool {
    !numbers.is_empty() && numbers.windows(2).all(|pair| pair[1] == pair[0] + 1)
}

/// The numbers that a container wrote to stdout, one on each line, in the order of the files. A line that a signal has cut is left out.
pub fn numbers_of<'a>(files: impl IntoIterator<Item = &'a String>) -> Vec<usize> {
    let lines = files.into_iter().flat_map(|text| text.lines());
    let whole = lines.filter_map(|line| line.split_once(" stdout F "));
    whole.map(|(_, number)| number.parse().unwrap()).collect()
}

fn read(path: &Path) -> io::Result<String> {
    let (mut text, mut file) = (String::new(), File::open(path)?);
    if path.extension().is_some_and(|extension| extension == "gz") {
        GzDecoder::new(file).read_to_string(&mut text)?;
    } else {
        file.read_to_string(&mut text)?;
    }
    Ok(text)
}
