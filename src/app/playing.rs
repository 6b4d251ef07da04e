//! Pods that are being played, in the same process as the shim through which that is done.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::shim::Staged;
use super::signals::Signals;
use crate::play::{Documents, Notice, Parts, Play, Witness};
use crate::probe::{News, Specs};
use crate::record::{Event, Events};
use crate::socket::SocketPath;
use crate::terminal::human;

/// What the runtime gets to end and remove pods, beyond their grace periods.
const PATIENCE: Duration = Duration::from_secs(60);

/// Pods that are being played.
pub(super) struct Playing {
    pub(super) play: Play,
    over: CancellationToken,
    /// Ends by itself only where a fault of ours ends it.
    pub(super) running: JoinHandle<bool>,
}

/// Where what belongs to pods lies on this host.
pub(super) struct Folders {
    pub(super) logs: PathBuf,
    /// Whether logs stay when their pod goes.
    pub(super) keeps_logs: bool,
    pub(super) pods: PathBuf,
}

/// Keeps what happens to pods among the events, and tells others of what is specified.
#[derive(Debug)]
struct Told {
    events: Arc<Events>,
    news: mpsc::Sender<News>,
}

impl Staged {
    /// Plays what documents say on the shim that listens there; others find it from now on.
    pub(super) fn play(self, listen: SocketPath, folders: Folders, documents: Documents) -> Playing {
        let Self { own: asks, executor, prober, events, news, play: known } = self;
        let Folders { logs, keeps_logs, pods } = folders;
        let witness = Arc::new(Told { events, news });
        let parts = Parts { acts: listen, asks, executor, prober, logs, keeps_logs, pods, witness };
        let (play, over) = (Play::new(parts), CancellationToken::new());
        let _ = known.set(play.clone());
        let (player, until) = (play.clone(), over.clone());
        let running = tokio::spawn(async move { player.run(documents, until).await });
        Playing { play, over, running }
    }
}

impl Playing {
    /// Ends all pods, and removes them; at once where a signal comes meanwhile, or it takes longer than it may. Tells whether all of them are
    /// gone.
    pub(super) async fn end(mut self, signals: &mut Signals) -> bool {
        let limit = self.play.longest_grace_period() + PATIENCE;
        let late = sleep(limit);
        tokio::pin!(late);
        let mut is_late = false;
        self.over.cancel();
        loop {
            tokio::select! {
                ended = &mut self.running => return ended.unwrap_or(false),
                name = signals.next() => {
                    warn!(signal = name, "told again: the pods are removed at once");
                    self.play.hurry();
                }
                () = &mut late, if !is_late => {
                    is_late = true;
                    warn!("the pods have not ended within {}: they are removed at once", human::duration(limit));
                    self.play.hurry();
                }
            }
        }
    }
}

impl Witness for Told {
    fn notice(&self, notice: Notice) {
        self.events.push(Event::of_play(notice));
    }

    fn specified(&self, specs: Specs) {
        // There is always room: a look at files comes every two seconds at most.
        let _ = self.news.try_send(News::Specs(specs));
    }

    fn problem(&self, problem: String) {
        let _ = self.news.try_send(News::Problem(problem));
    }

    fn solved(&self, problem: String) {
        let _ = self.news.try_send(News::Solved(problem));
    }

    fn held(&self) {
        let event = Event::of_hold();
        warn!("{}", event.message);
        self.events.push(event);
    }
}
