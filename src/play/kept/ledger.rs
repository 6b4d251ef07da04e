//! What clients have done through the relay → what is kept alive of it. A fold, which does nothing itself.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::cri::Secret;
use crate::play::spec::identity;
use crate::tap;

/// Why something is not kept that a client has stopped or removed.
const LET_GO: &str = "its owner has stopped or removed it";

/// The request with which a client had something made, as its bytes came; or why they are not known.
pub type Captured = Result<Secret, String>;

/// What tells pods apart: the names with the uid, since people who make pods by hand copy uids.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
}

/// Something that a client has done through the relay.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// It had a sandbox made.
    Ran(Captured),
    /// It had a container made, of this name.
    Created(String, Captured),
    /// It had one started.
    Started(String),
    /// We have made another attempt of it.
    Attempted(String, u32),
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
    /// Its containers, in the order in which they were made.
    pub(super) containers: Vec<KeptContainer>,
}

/// What is kept of a container.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct KeptContainer {
    pub(super) name: String,
    pub(super) request: Captured,
    pub(super) stage: Stage,
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
    /// It has it stopped or removed.
    LetGo,
}

impl Key {
    /// The key of a pod, if all its names are known.
    #[must_use]
    pub fn of(pod: &tap::Pod) -> Option<Self> {
        let tap::Pod { namespace, name, uid, .. } = pod;
        Some(Self { namespace: namespace.clone()?, name: name.clone()?, uid: uid.clone()? })
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&identity(&self.namespace, &self.name, &self.uid))
    }
}

impl Ledger {
    /// Takes what a client has done with a pod.
    pub(super) fn take(&mut self, key: &Key, act: Act) {
        let not_seen = |what: &str| Err(format!("its {what} was not seen"));
        let pod = match act {
            Act::Ran(request) => {
                self.0.insert(key.clone(), Kept { sandbox: request, containers: Vec::new() });
                return;
            }
            Act::Removed => {
                self.0.remove(key);
                return;
            }
            Act::Gone => {
                // What is kept alive is made again, with its sandbox; of the rest nobody knows any more.
                if !self.0.get(key).is_some_and(|pod| pod.containers.iter().any(KeptContainer::is_kept)) {
                    self.0.remove(key);
                }
                return;
            }
            Act::LetGo(_) | Act::LetGoAll | Act::Attempted(..) => match self.0.get_mut(key) {
                Some(pod) => pod,
                None => return,
            },
            Act::Created(..) | Act::Started(_) => self
                .0
                .entry(key.clone())
                .or_insert_with(|| Kept { sandbox: not_seen("RunPodSandbox"), containers: Vec::new() }),
        };
        let place = |name: &str, pod: &Kept| pod.containers.iter().position(|known| known.name == name);
        match act {
            Act::Created(name, request) => {
                let container = KeptContainer { name, request, stage: Stage::Created, attempt: 0 };
                match place(&container.name, pod) {
                    Some(place) => pod.containers[place] = container,
                    None => pod.containers.push(container),
                }
            }
            Act::Started(name) => match place(&name, pod) {
                Some(place) if pod.containers[place].stage == Stage::Created => {
                    pod.containers[place].stage = Stage::Started;
                }
                Some(_) => {}
                None => {
                    let request = not_seen("CreateContainer");
                    pod.containers.push(KeptContainer { name, request, stage: Stage::Started, attempt: 0 });
                }
            },
            Act::LetGo(name) => {
                if let Some(place) = place(&name, pod) {
                    pod.containers[place].let_go();
                }
            }
            Act::LetGoAll => {
                pod.sandbox = Err(LET_GO.to_owned());
                pod.containers.iter_mut().for_each(KeptContainer::let_go);
            }
            Act::Attempted(name, attempt) => {
                if let Some(place) = place(&name, pod) {
                    pod.containers[place].attempt = attempt;
                }
            }
            Act::Ran(_) | Act::Removed | Act::Gone => {}
        }
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
    /// Whether it is kept alive.
    pub(super) fn is_kept(&self) -> bool {
        self.stage == Stage::Started && self.request.is_ok()
    }

    /// It is its owner's again; what it was made with is nobody's business any more.
    fn let_go(&mut self) {
        (self.request, self.stage, self.attempt) = (Err(LET_GO.to_owned()), Stage::LetGo, 0);
    }
}

impl Kept {
    /// Whether its owner has let a container go.
    pub(super) fn is_let_go(&self, container: &str) -> bool {
        self.containers.iter().any(|known| known.name == container && known.stage == Stage::LetGo)
    }

    /// Why a container is not started again when it ends, if it is not.
    pub(super) fn obstacle(&self, container: &str) -> Option<&str> {
        let known = self.containers.iter().find(|known| known.name == container);
        match known {
            None => Some("its CreateContainer was not seen"),
            Some(KeptContainer { request: Err(reason), .. }) => Some(reason),
            Some(KeptContainer { stage: Stage::Created, .. }) => Some("its StartContainer was not seen"),
            Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        let [namespace, name, uid] = ["n", "a", "u"].map(str::to_owned);
        Key { namespace, name, uid }
    }

    fn ran() -> Act {
        Act::Ran(Ok(Secret(b"pod".as_slice().into())))
    }

    fn created(name: &str) -> Act {
        Act::Created(name.to_owned(), Ok(Secret(name.as_bytes().into())))
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
        let lost = Act::Created("a".to_owned(), Err("too long".to_owned()));
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
            (vec![let_go("a"), Act::Attempted("a".to_owned(), 1)], &[]),
        ] {
            assert_eq!(kept(acts.clone()), expected, "{acts:?}");
        }
    }

    #[test]
    fn why_something_is_not_kept_is_known() {
        let mut ledger = Ledger::default();
        ledger.take(&key(), created("a"));
        ledger.take(&key(), Act::Created("b".to_owned(), Err("it is too long".to_owned())));
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
}
