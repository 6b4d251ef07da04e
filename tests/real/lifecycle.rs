//! Table 9.8 with `play`: what Kubernetes' own node tests expect of probes, hooks, restarts and ends.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::containerd::{Containerd, Version};
use super::crictl::Crictl;
use super::image::PAUSE;
use super::kubelet::manifest_of;
use super::life::Runtime as _;
use super::play::Player;
use super::probing::dress;
use super::story::{Case, Observer};

/// The rows, and what is expected of each.
const TABLE: &str = include_str!("../parity/table_9_8.yaml");

/// A container that ends when it is told to, and one that does not heed that.
const POLITE: &str = r#"[sh, -c, "trap 'exit 0' TERM; while true; do sleep 0.1; done"]"#;
const DEAF: &str = r#"[sh, -c, "trap '' TERM; while true; do sleep 0.1; done"]"#;

/// How long a pod may take to have another image, and to go, whatever is expected of it.
const PATIENCE: Duration = Duration::from_secs(180);

/// A row of the table.
pub(crate) struct Row {
    title: String,
    case: Case,
    /// What is told once the image of a container has changed, and which that is.
    then: Option<(String, Case)>,
    hooks: u64,
    /// What is expected of the end.
    end: Value,
}

/// All rows, for pods that find what is probed in that folder.
pub(crate) fn rows(probes: &Path) -> Vec<Row> {
    let text = TABLE.replace("POLITE", POLITE).replace("DEAF", DEAF);
    let rows: Vec<Value> = serde_saphyr::from_str(&text).unwrap();
    rows.iter().enumerate().map(|(place, row)| Row::read(place, row, probes)).collect()
}

/// Plays these pods on one containerd, has their stories told, and takes them away. Returns what went otherwise than expected.
pub(crate) fn play(rows: &[Row]) -> Result<Vec<String>, String> {
    let containerd = Containerd::start(Version::V2_2)?;
    let crictl = Crictl::new("crictl-1.36", &containerd.socket(), containerd.folder())?;
    let player = Player::start(containerd.folder(), &containerd.socket(), &[]);
    let mut observer = Observer::new(crictl, "");
    for row in rows {
        player.run(&row.case.name, &row.case.manifest);
    }
    let cases: Vec<Case> = rows.iter().map(|row| row.case.clone()).collect();
    let mut wrong = player.tells(&mut observer, &cases);
    let changed: Vec<Case> = rows.iter().filter_map(|row| Some(row.then.as_ref()?.1.clone())).collect();
    for case in &changed {
        player.run(&case.name, &case.manifest);
    }
    wrong.extend(player.tells(&mut observer, &changed));
    let begun = Instant::now();
    while rows.iter().any(|row| row.wrong_image(&observer).is_some()) && begun.elapsed() < PATIENCE {
        observer.look(&player.pods());
    }
    for row in rows {
        wrong.extend(row.wrong_image(&observer));
        player.forget(&row.case.name);
    }
    let (begun, mut gone) = (Instant::now(), BTreeMap::new());
    while gone.len() < rows.len() && begun.elapsed() < PATIENCE {
        let (there, age) = (player.pods(), begun.elapsed().as_secs_f64());
        for name in rows.iter().map(|row| row.case.name.as_str()) {
            if !there.iter().any(|pod| pod["metadata"]["name"] == name) {
                gone.entry(name).or_insert(age);
            }
        }
    }
    let events = player.list(&["events"]);
    for row in rows {
        let gone = gone.get(row.case.name.as_str()).copied();
        wrong.extend(row.wrong_at_end(&player, &events, gone, observer.lag()));
    }
    let titles: BTreeMap<&str, &str> =
        rows.iter().map(|row| (row.case.name.as_str(), row.title.as_str())).collect();
    let with_title = |text: String| match text.split_once(':') {
        Some((name, rest)) if titles.contains_key(name) => format!("{}:{rest}", titles[name]),
        _ => text,
    };
    wrong.extend(player.ends_cleanly(&containerd)?);
    Ok(wrong.into_iter().map(with_title).collect())
}

impl Row {
    fn read(place: usize, row: &Value, probes: &Path) -> Self {
        let name = format!("row-{place}");
        let mut spec = row["spec"].clone();
        if let Some(copies) = row["copies"].as_u64() {
            let one = spec["containers"][0].to_string();
            let copy = |number: u64| -> Value {
                let text = one.replace("\"1PORT\"", &(10_000 + number).to_string());
                let text = text.replace("\"2PORT\"", &(20_000 + number).to_string());
                let text = text.replace("PORT", &format!("{number:04}"));
                let mut container: Value = serde_json::from_str(&text).unwrap();
                container["name"] = format!("main-{number}").into();
                container
            };
            spec["containers"] = (0..copies).map(copy).collect();
        }
        dress(&mut spec, probes);
        let manifest = |spec: &Value| {
            let mut manifest = manifest_of(&name, spec);
            // It stays the same pod where its image changes.
            manifest["metadata"]["uid"] = name.as_str().into();
            manifest.to_string()
        };
        let case = |spec: &Value, story: &Value| Case {
            name: name.clone(),
            manifest: manifest(spec),
            story: story.clone(),
        };
        let then = row["then"]["changes"].as_str().map(|container| {
            let mut changed = spec.clone();
            for list in ["containers", "initContainers"] {
                for of in changed.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                    if of["name"] == container {
                        of["image"] = PAUSE.into();
                    }
                }
            }
            (container.to_owned(), case(&changed, &row["then"]["story"]))
        });
        Self {
            title: row["row"].as_str().unwrap().to_owned(),
            case: case(&spec, &row["story"]),
            then,
            hooks: row["hooks"].as_u64().unwrap_or(0),
            end: row["end"].clone(),
        }
    }

    /// Whether a container whose image has changed runs another one than the changed one.
    fn wrong_image(&self, observer: &Observer) -> Option<String> {
        let (container, case) = self.then.as_ref()?;
        let life = observer.lives.get(&case.name)?;
        let image =
            life.instances(container).last().map(|last| last.config["image"]["user_specified_image"].clone());
        let name = &case.name;
        (image != Some(json!(PAUSE))).then(|| format!("{name}: the last {container} is of {image:?}"))
    }

    /// What went otherwise with a pod that was gone after so many seconds, which may be more by `lag`.
    fn wrong_at_end(&self, player: &Player, events: &[Value], gone: Option<f64>, lag: f64) -> Vec<String> {
        let (name, end, mut wrong) = (&self.case.name, &self.end, Vec::new());
        let Some(gone) = gone else { return vec![format!("{name}: it has not gone")] };
        if let Some(took) = end["took"].as_array() {
            let [least, most] = [0, 1].map(|place| took[place].as_f64().unwrap());
            // A folder is looked at every two seconds.
            if !(least..=most + 3.0 + lag).contains(&gone) {
                wrong.push(format!("{name}: it was gone after {gone:.1}s, not {least} to {most}"));
            }
        }
        // Of each container the last.
        let mut exits: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
        for event in
            events.iter().filter(|it| it["pod"] == name.as_str() && it["reason"] == "ContainerExited")
        {
            let text = |field: &str| event[field].as_str().unwrap_or_default();
            let exit = exits.entry(text("container")).or_default();
            *exit = (*exit).max((text("time"), text("message")));
        }
        for (container, code) in end["codes"].as_object().into_iter().flatten() {
            let told = exits.get(container.as_str()).map(|(_, message)| *message);
            if !told.is_some_and(|message| message.starts_with(&format!("Exited with code {code}"))) {
                wrong.push(format!("{name}: {container} has {told:?}, not code {code}"));
            }
        }
        let order: Vec<&str> =
            end["order"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for pair in order.windows(2) {
            let times = [0, 1].map(|place| exits.get(pair[place]).map(|(time, _)| *time));
            if times[0].is_none() || times[0] > times[1] {
                wrong.push(format!("{name}: {} ended before {}: {times:?}", pair[1], pair[0]));
            }
        }
        for expected in end["events"].as_array().into_iter().flatten() {
            let text = |field: &str| expected[field].as_str().unwrap_or_default();
            let count = player.count(name, text("reason"), text("message"));
            let bound = |field: &str, default: u64| expected[field].as_u64().unwrap_or(default);
            if !(bound("least", 0)..=bound("most", u64::MAX)).contains(&count) {
                wrong.push(format!("{name}: {count} events of {expected}"));
            }
        }
        let hooks = player.hooks(name) as u64;
        if hooks < self.hooks {
            wrong.push(format!("{name}: {hooks} hooks have gone well, not {}", self.hooks));
        }
        wrong
    }
}
