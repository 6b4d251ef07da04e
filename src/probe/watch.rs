//! Manifests and the kubelet's pods as they change while we run.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::error;

use super::kubelet::Kubelet;
use super::read::files::Files;
use super::specs::Specs;

/// From one look at the files to the next, at least.
const LOOK: Duration = Duration::from_secs(2);

/// How much longer than a look takes it is waited for the next.
const REST: u32 = 50;

/// The same for a kubelet that is asked out of its time, because there is a new pod.
const HURRY: Duration = Duration::from_secs(1);

/// News that may wait to be taken.
const WAITING: usize = 64;

/// What becomes of the sources of specs.
#[derive(Debug)]
pub enum News {
    /// These are the specs from now on.
    Specs(Specs),
    /// Something is wrong with a source: what it said of that before goes on to count, if it did.
    Problem(String),
    /// What was wrong is so no longer.
    Solved(String),
}

/// The sources of specs that may change.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Files and folders of manifests.
    pub files: Files,
    /// A kubelet, if one is asked.
    pub kubelet: Option<Kubelet>,
}

/// Tells the kubelet's source to look at once, because there is somebody new. Copies tell the same.
#[derive(Clone, Debug, Default)]
pub struct Hurry(Arc<Notify>);

impl Hurry {
    /// There is somebody new.
    pub fn up(&self) {
        self.0.notify_one();
    }
}

impl Sources {
    /// Watches them for as long as somebody takes the news. What is wrong from the start is the first of it.
    #[must_use]
    pub fn watch(self, specs: Specs) -> (mpsc::Receiver<News>, Hurry) {
        let (news, told) = mpsc::channel(WAITING);
        let (hurry, sources) = (Hurry::default(), self);
        let hurried = hurry.clone();
        tokio::spawn(async move {
            let closed = news.clone();
            tokio::select! {
                () = sources.run(specs, news, hurried) => {}
                () = closed.closed() => {}
            }
        });
        (told, hurry)
    }

    async fn run(self, mut specs: Specs, news: mpsc::Sender<News>, hurry: Hurry) {
        let Self { mut files, kubelet } = self;
        let mut known = Told::default();
        known.told(files.problems(), &news).await;
        let mut look = Instant::now() + LOOK;
        let mut ask = Instant::now();
        let mut of_kubelet = Told::default();
        loop {
            tokio::select! {
                () = sleep_until(look), if !files.is_empty() => {
                    let begun = Instant::now();
                    let looked = spawn_blocking(move || {
                        let has_changed = files.look();
                        (files, has_changed)
                    });
                    let Ok((back, has_changed)) = looked.await else {
                        error!("a fault of probeshim's own: manifests are not watched any more, please report it");
                        return;
                    };
                    files = back;
                    known.told(files.problems(), &news).await;
                    if has_changed {
                        specs = specs.with_manifests(files.manifests());
                        let _ = news.send(News::Specs(specs.clone())).await;
                    }
                    look = Instant::now() + LOOK.max(REST * begun.elapsed());
                }
                () = sleep_until(ask), if kubelet.is_some() => {
                    let Some(kubelet) = &kubelet else { continue };
                    let problems = match kubelet.pods().await {
                        Ok((pods, problems)) => {
                            if specs.tell_kubelet(pods) {
                                let _ = news.send(News::Specs(specs.clone())).await;
                            }
                            problems.into_iter().map(|problem| format!("{}: {problem}", kubelet.name())).collect()
                        }
                        Err(error) => BTreeSet::from([format!("{}: {error}", kubelet.name())]),
                    };
                    of_kubelet.told(problems, &news).await;
                    let pause = sleep(kubelet.interval);
                    tokio::select! {
                        () = pause => ask = Instant::now(),
                        () = hurry.0.notified() => ask = Instant::now() + HURRY,
                    }
                }
                else => return,
            }
        }
    }
}

/// What is known to be wrong.
#[derive(Default)]
struct Told(BTreeSet<String>);

impl Told {
    /// Tells what is new of what is wrong, and what is over.
    async fn told(&mut self, now: BTreeSet<String>, news: &mpsc::Sender<News>) {
        for problem in now.difference(&self.0) {
            let _ = news.send(News::Problem(problem.clone())).await;
        }
        for solved in self.0.difference(&now) {
            let _ = news.send(News::Solved(solved.clone())).await;
        }
        self.0 = now;
    }
}
