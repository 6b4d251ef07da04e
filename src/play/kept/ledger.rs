//! What clients have done through the relay → what is kept alive of it. A fold, which does nothing itself.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::cri::RedactedBytes;
use crate::play::spec::identity;
use crate::tap;

/// Why something is not kept that a client has stopped or removed.
const LET_GO: &str = "stopped or removed by a client";

/// How many containers are remembered of a sandbox that their owner has let go.
const MOST_LET_GO: usize = 64;

/// The request with which a client had something made, as its bytes came; or why they are not known.
pub type Captured = Result<RedactedBytes, String>;

/// What tells pods apart: the names with the uid, since people who make pods by hand copy uids.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
}

/// Something that was done with a pod: by a client through the relay, where nothing else is said.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// It had a sandbox made, with this id.
    Ran(Option<String>, Captured),
    /// We have made another sandbox, with this id.
    Remade(String),
    /// It had a container made, of this name.
    Created {
        /// The container's name.
        name: String,
        /// Its id.
        id: Option<String>,
        /// The request.
        request: Captured,
    },
    /// It had one started.
    Started(String),
    /// We have made another attempt of one.
    Attempted {
        /// The container's name.
        name: String,
        /// The id of the attempt.
        id: Option<String>,
        /// Its number.
        attempt: u32,
    },
    /// One has ended, and is not started again for it: the container of this name and id.
    Finished(String, String),
    /// It had one stopped or removed, which is its own again.
    LetGo(String),
    /// It had the sandbox stopped, with everything in it.
    LetGoAll,
    /// It had the sandbox removed.
    Removed,
    /// The sandbox is not there any more, whoever has removed it.
    Gone,
}

/// What is kept, by pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Ledger(BTreeMap<Key, Kept>);

/// What is kept of a pod.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Kept {
    pub(super) sandbox: Captured,
    /// The id of the newest sandbox, be it the client's or one of ours.
    pub(super) sandbox_id: Option<String>,
    /// Its containers, in the order in which they were made.
    pub(super) containers: Vec<KeptContainer>,
}

/// What is kept of a container.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct KeptContainer {
    pub(super) name: String,
    pub(super) request: Captured,
    pub(super) stage: Stage,
    /// The id of the instance that its owner has made, by which one request is told from the same that was sent before.
    pub(super) first: Option<String>,
    /// The id of its newest instance, be it the client's or one of ours.
    pub(super) id: Option<String>,
    /// The last attempt of it that we have made; 0 for none.
    pub(super) attempt: u32,
}

/// How far a client has come with a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Stage {
    /// It has it made.
    Created,
    /// It has it started: from then on it is kept alive.
    Started,
    /// It has ended, and its policy is that it is not started again: nor is it once nobody remembers that it was there.
    Finished,
    /// It has it stopped or removed.
    LetGo,
}

impl Key {
    /// The key of a pod, if all its names are known.
    #[must_use]
    pub fn of(pod: &tap::PodRef) -> Option<Self> {
        let tap::PodRef { namespace, name, uid, .. } = pod;
        Some(Self { namespace: namespace.clone()?, name: name.clone()?, uid: uid.clone()? })
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&identity(&self.namespace, &self.name, &self.uid))
    }
}

impl Ledger {
    /// Takes what was done with a pod.
    pub(super) fn take(&mut self, key: &Key, act: Act) {
        match act {
            Act::Ran(id, request) => {
                let kept = Kept { sandbox: request, sandbox_id: id, containers: Vec::new() };
                self.0.insert(key.clone(), kept);
            }
            Act::Removed => drop(self.0.remove(key)),
            Act::Gone => {
                // What is kept alive is made again, with its sandbox; of the rest nobody knows any more.
                let lives_on = |it: &KeptContainer| it.is_kept() && it.stage == Stage::Started;
                if !self.0.get(key).is_some_and(|pod| pod.containers.iter().any(lives_on)) {
                    self.0.remove(key);
                }
            }
            Act::Created { name, id, request } => self.seen(key).created(name, id, request),
            Act::Started(name) => self.seen(key).started(name),
            Act::Remade(_) | Act::Attempted { .. } | Act::Finished(..) | Act::LetGo(_) | Act::LetGoAll => {
                if let Some(pod) = self.0.get_mut(key) {
                    pod.take(act);
                }
            }
        }
    }

    /// A pod of which something is known from now on.
    fn seen(&mut self, key: &Key) -> &mut Kept {
        let not_seen =
            || Kept { sandbox: Err(not_seen("RunPodSandbox")), sandbox_id: None, containers: Vec::new() };
        self.0.entry(key.clone()).or_insert_with(not_seen)
    }

    /// What is kept of a pod.
    pub(super) fn pod(&self, key: &Key) -> Option<&Kept> {
        self.0.get(key)
    }

    /// Puts back what was kept before.
    pub(super) fn put(&mut self, key: Key, kept: Kept) {
        self.0.insert(key, kept);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, &Kept)> {
        self.0.iter()
    }
}

impl KeptContainer {
    /// Whether it is kept alive, or was until its end.
    pub(super) fn is_kept(&self) -> bool {
        matches!(self.stage, Stage::Started | Stage::Finished) && self.request.is_ok()
    }

    /// It is its owner's again; what it was made with is nobody's business any more.
    fn let_go(&mut self) {
        (self.request, self.stage, self.attempt) = (Err(LET_GO.to_owned()), Stage::LetGo, 0);
    }
}

impl Kept {
    /// Takes what was done with a pod of which something is known.
    fn take(&mut self, act: Act) {
        match act {
            Act::Remade(id) => self.sandbox_id = Some(id),
            Act::Attempted { name, id, attempt } => {
                if let Some(container) = self.container(&name) {
                    (container.id, container.attempt) = (id, attempt);
                    if container.stage == Stage::Finished {
                        // It was wanted otherwise meanwhile.
                        container.stage = Stage::Started;
                    }
                }
            }
            Act::Finished(name, id) => {
                let container = self.container(&name).filter(|it| it.id.as_ref() == Some(&id));
                if let Some(container) = container.filter(|it| it.stage == Stage::Started) {
                    container.stage = Stage::Finished;
                }
            }
            Act::LetGo(name) => {
                if let Some(container) = self.container(&name) {
                    container.let_go();
                    self.forget_the_oldest();
                }
            }
            Act::LetGoAll => {
                self.sandbox = Err(LET_GO.to_owned());
                self.containers.iter_mut().for_each(KeptContainer::let_go);
            }
            Act::Ran(..) | Act::Created { .. } | Act::Started(_) | Act::Removed | Act::Gone => {}
        }
    }

    fn created(&mut self, name: String, id: Option<String>, request: Captured) {
        let (first, stage) = (id.clone(), Stage::Created);
        let container = KeptContainer { name, request, stage, first, id, attempt: 0 };
        match self.container(&container.name) {
            Some(known) => *known = container,
            None => self.containers.push(container),
        }
    }

    fn started(&mut self, name: String) {
        match self.container(&name) {
            Some(known) if known.stage == Stage::Created => known.stage = Stage::Started,
            Some(_) => {}
            None => {
                let request = Err(not_seen("CreateContainer"));
                let (first, stage) = (None, Stage::Started);
                self.containers.push(KeptContainer { name, request, stage, first, id: None, attempt: 0 });
            }
        }
    }

    /// What is known of the container of a name.
    pub(super) fn newest(&self, name: &str) -> Option<&KeptContainer> {
        self.containers.iter().find(|known| known.name == name)
    }

    fn container(&mut self, name: &str) -> Option<&mut KeptContainer> {
        self.containers.iter_mut().find(|known| known.name == name)
    }

    /// Names that nobody uses any more would become more and more in a sandbox that lives long.
    fn forget_the_oldest(&mut self) {
        let is_let_go = |it: &KeptContainer| it.stage == Stage::LetGo;
        if self.containers.iter().filter(|it| is_let_go(it)).count() > MOST_LET_GO
            && let Some(oldest) = self.containers.iter().position(is_let_go)
        {
            self.containers.remove(oldest);
        }
    }

    /// Whether its owner has let a container go.
    pub(super) fn is_let_go(&self, container: &str) -> bool {
        self.newest(container).is_some_and(|known| known.stage == Stage::LetGo)
    }

    /// Why a container is not started again when it ends, if it is not.
    pub(super) fn obstacle(&self, container: &str) -> Option<&str> {
        match self.newest(container) {
            None => Some("its CreateContainer was not seen"),
            Some(KeptContainer { request: Err(reason), .. }) => Some(reason),
            Some(KeptContainer { stage: Stage::Created, .. }) => Some("its StartContainer was not seen"),
            Some(_) => None,
        }
    }
}

fn not_seen(what: &str) -> String {
    format!("its {what} was not seen")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        let [namespace, name, uid] = ["n", "a", "u"].map(str::to_owned);
        Key { namespace, name, uid }
    }

    fn ran() -> Act {
        Act::Ran(None, Ok(RedactedBytes(b"pod".as_slice().into())))
    }

    fn created(name: &str) -> Act {
        let (id, request) = (Some(format!("id of {name}")), Ok(RedactedBytes(name.as_bytes().into())));
        Act::Created { name: name.to_owned(), id, request }
    }

    /// The names of containers that are kept alive, after all of this was done.
    fn kept(acts: Vec<Act>) -> Vec<String> {
        let mut ledger = Ledger::default();
        for act in acts {
            ledger.take(&key(), act);
        }
        let containers = ledger.pod(&key()).map(|kept| kept.containers.clone()).unwrap_or_default();
        containers.iter().filter(|it| it.is_kept()).map(|it| it.name.clone()).collect()
    }

    #[test]
    fn what_a_client_has_started_is_kept_until_it_lets_it_go() {
        let started = |name: &str| Act::Started(name.to_owned());
        let let_go = |name: &str| Act::LetGo(name.to_owned());
        let lost = Act::Created { name: "a".to_owned(), id: None, request: Err("too long".to_owned()) };
        let attempted = Act::Attempted { name: "a".to_owned(), id: None, attempt: 1 };
        for (acts, expected) in [
            (vec![], &[][..]),
            (vec![ran(), created("a")], &[]),
            (vec![ran(), created("a"), started("a")], &["a"]),
            (vec![ran(), created("b"), started("b"), created("a"), started("a")], &["b", "a"]),
            (vec![created("a"), started("a")], &["a"]),
            (vec![ran(), started("a")], &[]),
            (vec![ran(), lost, started("a")], &[]),
            (vec![ran(), created("a"), started("a"), let_go("a")], &[]),
            (vec![ran(), created("a"), started("a"), let_go("a"), started("a")], &[]),
            (vec![ran(), created("a"), started("a"), let_go("a"), created("a"), started("a")], &["a"]),
            (vec![ran(), created("a"), started("a"), created("a")], &[]),
            (vec![ran(), created("a"), started("a"), Act::LetGoAll], &[]),
            (vec![ran(), created("a"), started("a"), Act::Removed], &[]),
            (vec![ran(), created("a"), started("a"), Act::Gone], &["a"]),
            (vec![ran(), created("a"), Act::Gone, started("a")], &[]),
            (vec![ran(), created("a"), started("a"), ran()], &[]),
            (vec![let_go("a"), attempted], &[]),
        ] {
            assert_eq!(kept(acts.clone()), expected, "{acts:?}");
        }
    }

    #[test]
    fn why_something_is_not_kept_is_known() {
        let mut ledger = Ledger::default();
        ledger.take(&key(), created("a"));
        let request = Err("it is too long".to_owned());
        ledger.take(&key(), Act::Created { name: "b".to_owned(), id: None, request });
        ledger.take(&key(), created("c"));
        ledger.take(&key(), Act::LetGo("c".to_owned()));
        let kept = ledger.pod(&key()).unwrap();
        assert_eq!(kept.sandbox, Err("its RunPodSandbox was not seen".to_owned()));
        let obstacles = ["a", "b", "c", "d"].map(|name| kept.obstacle(name));
        assert_eq!(
            obstacles,
            [
                Some("its StartContainer was not seen"),
                Some("it is too long"),
                Some(LET_GO),
                Some("its CreateContainer was not seen")
            ]
        );
        ledger.take(&key(), Act::Started("a".to_owned()));
        let kept = ledger.pod(&key()).unwrap();
        assert_eq!(kept.obstacle("a"), None);
        assert!(kept.is_let_go("c") && !kept.is_let_go("a"));
        ledger.take(&key(), Act::LetGoAll);
        assert!(ledger.pod(&key()).unwrap().is_let_go("a"));
    }

    #[test]
    fn what_has_finished_is_so_until_its_owner_makes_it_again() {
        let mut ledger = Ledger::default();
        let stage = |ledger: &Ledger| ledger.pod(&key()).unwrap().containers[0].stage;
        let finished = |id: &str| Act::Finished("a".to_owned(), id.to_owned());
        for (act, expected) in [
            (created("a"), Stage::Created),
            (finished("id of a"), Stage::Created),
            (Act::Started("a".to_owned()), Stage::Started),
            (finished("another"), Stage::Started),
            (finished("id of a"), Stage::Finished),
            (created("a"), Stage::Created),
            (Act::Started("a".to_owned()), Stage::Started),
        ] {
            ledger.take(&key(), act.clone());
            assert_eq!(stage(&ledger), expected, "{act:?}");
        }
    }

    #[test]
    fn names_that_nobody_uses_any_more_are_forgotten() {
        let mut ledger = Ledger::default();
        ledger.take(&key(), created("first"));
        for number in 0..1000 {
            let name = format!("job-{number}");
            ledger.take(&key(), created(&name));
            ledger.take(&key(), Act::LetGo(name));
        }
        let kept = ledger.pod(&key()).unwrap();
        assert_eq!(kept.containers.len(), 1 + MOST_LET_GO);
        assert!(kept.is_let_go("job-999") && kept.containers[0].name == "first");
    }
}
