//! The queue of calls in front of the limits. It decides which call is next, so that no container
//! takes the turns of another.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::num::NonZeroU32;
use std::sync::Arc;

/// Running and waiting calls. `W` is a waiting call.
#[derive(Debug)]
pub(super) struct ExecQueue<W> {
    node_limit: usize,
    container_limit: usize,
    /// Number of running calls on the node.
    running: usize,
    containers: HashMap<Arc<str>, ContainerQueue<W>>,
    /// Containers with waiting calls and room for another running one, in the order of their turns:
    /// those with the fewest running calls first, then those that have waited longest since their
    /// last turn, or since their first call.
    ready: BTreeSet<(usize, u64, Arc<str>)>,
    /// Number of changes, by which turns are ordered.
    turn: u64,
}

/// Calls of a container. A container without calls is forgotten.
#[derive(Debug)]
struct ContainerQueue<W> {
    running: usize,
    /// Turn in which a call was last admitted or ended, or in which the container came.
    last_turn: u64,
    waiting: VecDeque<W>,
}

impl<W> Default for ExecQueue<W> {
    fn default() -> Self {
        Self {
            node_limit: usize::MAX,
            container_limit: usize::MAX,
            running: 0,
            containers: HashMap::new(),
            ready: BTreeSet::new(),
            turn: 0,
        }
    }
}

impl<W> ExecQueue<W> {
    /// Changes the limits. Running calls continue.
    pub(super) fn set_limits(&mut self, node: Option<NonZeroU32>, container: Option<NonZeroU32>) {
        let limit = |limit: Option<NonZeroU32>| limit.map_or(usize::MAX, |limit| limit.get() as usize);
        (self.node_limit, self.container_limit) = (limit(node), limit(container));
        let is_ready = |queue: &ContainerQueue<W>| queue.is_ready(self.container_limit);
        let ready = self.containers.iter().filter(|(_, queue)| is_ready(queue));
        self.ready = ready.map(|(name, queue)| (queue.running, queue.last_turn, name.clone())).collect();
    }

    /// Admits a call of a container if there is room and no call of the container waits.
    pub(super) fn try_admit(&mut self, container: &Arc<str>) -> bool {
        // While calls of other containers wait for the node, the node is full.
        let has_room = self.running < self.node_limit
            && self
                .containers
                .get(container)
                .is_none_or(|queue| queue.running < self.container_limit && queue.waiting.is_empty());
        if has_room {
            self.change(container, |queue, turn| {
                queue.running += 1;
                queue.last_turn = turn;
            });
        }
        has_room
    }

    /// Adds a waiting call of a container.
    pub(super) fn push(&mut self, container: &Arc<str>, waiter: W) {
        self.change(container, |queue, _| queue.waiting.push_back(waiter));
    }

    /// Removes a waiting call of a container. Returns false if it does not wait.
    pub(super) fn remove(&mut self, container: &Arc<str>, is_it: impl Fn(&W) -> bool) -> bool {
        let Some(queue) = self.containers.get(container) else { return false };
        let Some(index) = queue.waiting.iter().position(is_it) else { return false };
        self.change(container, |queue, _| drop(queue.waiting.remove(index)));
        true
    }

    /// Handles the end of an admitted call.
    pub(super) fn release(&mut self, container: &Arc<str>) {
        self.change(container, |queue, turn| {
            queue.running -= 1;
            queue.last_turn = turn;
        });
    }

    /// Admits the next waiting call, if there is room.
    pub(super) fn admit_next(&mut self) -> Option<W> {
        if self.running >= self.node_limit {
            return None;
        }
        let container = self.ready.first()?.2.clone();
        self.change(&container, |queue, turn| {
            queue.running += 1;
            queue.last_turn = turn;
            queue.waiting.pop_front()
        })
    }

    /// Changes the queue of a container. `change` receives the number of the turn.
    fn change<T>(
        &mut self,
        container: &Arc<str>,
        change: impl FnOnce(&mut ContainerQueue<W>, u64) -> T,
    ) -> T {
        self.turn += 1;
        // A container that comes, or comes again, has no advantage over those that wait.
        let new = || ContainerQueue { running: 0, last_turn: self.turn, waiting: VecDeque::new() };
        let queue = self.containers.entry(container.clone()).or_insert_with(new);
        self.ready.remove(&(queue.running, queue.last_turn, container.clone()));
        self.running -= queue.running;
        let result = change(queue, self.turn);
        self.running += queue.running;
        if queue.is_ready(self.container_limit) {
            self.ready.insert((queue.running, queue.last_turn, container.clone()));
        } else if queue.running == 0 && queue.waiting.is_empty() {
            self.containers.remove(container);
        }
        result
    }
}

impl<W> ContainerQueue<W> {
    /// Returns whether a call waits for the node only.
    fn is_ready(&self, limit: usize) -> bool {
        self.running < limit && !self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(node: u32, container: u32) -> ExecQueue<&'static str> {
        let mut queue = ExecQueue::default();
        queue.set_limits(NonZeroU32::new(node), NonZeroU32::new(container));
        queue
    }

    /// Ends one running call after the other. Returns the calls that are admitted in their place.
    fn served(queue: &mut ExecQueue<&'static str>, running: &Arc<str>, count: usize) -> Vec<&'static str> {
        let (mut running, mut order) = (running.clone(), Vec::new());
        for _ in 0..count {
            queue.release(&running);
            let next = queue.admit_next().unwrap();
            running = next[..1].into();
            order.push(next);
        }
        order
    }

    #[test]
    fn a_container_with_many_calls_does_not_delay_the_calls_of_others() {
        let mut queue = queue(1, 0);
        let [a, b, c] = ["a", "b", "c"].map(Arc::<str>::from);
        assert!(queue.try_admit(&a));
        for waiter in ["a1", "a2", "a3", "a4"] {
            queue.push(&a, waiter);
        }
        queue.push(&b, "b1");
        queue.push(&b, "b2");
        queue.push(&c, "c1");
        assert!(!queue.try_admit(&c), "the node is full");
        assert_eq!(served(&mut queue, &a, 7), ["b1", "c1", "a1", "b2", "a2", "a3", "a4"]);
    }

    #[test]
    fn a_container_with_slow_calls_has_its_share_of_the_node_only() {
        let mut queue = queue(2, 0);
        let [a, b] = ["a", "b"].map(Arc::<str>::from);
        assert!(queue.try_admit(&a) && queue.try_admit(&b));
        for waiter in ["a1", "a2"] {
            queue.push(&a, waiter);
        }
        for waiter in ["b1", "b2", "b3"] {
            queue.push(&b, waiter);
        }
        // The call of a runs on, while those of b end.
        assert_eq!(served(&mut queue, &b, 3), ["b1", "b2", "b3"]);
        queue.release(&b);
        assert_eq!(queue.admit_next(), Some("a1"), "no other container needs the room");
    }

    #[test]
    fn containers_that_call_again_and_again_have_equal_numbers_of_turns() {
        let mut queue = queue(1, 0);
        let names = ["e", "d", "c", "b", "a"];
        let [first, others @ ..] = names.map(Arc::<str>::from);
        assert!(queue.try_admit(&first));
        for (container, waiter) in others.iter().zip(&names[1..]) {
            queue.push(container, waiter);
        }
        let (mut running, mut turns) = (first, HashMap::<&str, usize>::new());
        for _ in 0..1000 {
            queue.release(&running);
            // The client of the container calls again before and after the next call is admitted.
            let again = names[names.iter().position(|name| **name == *running).unwrap()];
            if turns.values().sum::<usize>() % 2 == 0 {
                queue.push(&running, again);
            }
            let next = queue.admit_next().unwrap();
            if turns.values().sum::<usize>() % 2 == 1 {
                queue.push(&running, again);
            }
            *turns.entry(next).or_default() += 1;
            running = next.into();
        }
        assert!(names.iter().all(|name| turns[name] == 200), "{turns:?}");
    }

    #[test]
    fn a_full_container_waits_while_the_node_has_room_for_others() {
        let mut queue = queue(3, 1);
        let [a, b] = ["a", "b"].map(Arc::<str>::from);
        assert!(queue.try_admit(&a) && !queue.try_admit(&a));
        queue.push(&a, "a1");
        assert_eq!(queue.admit_next(), None);
        assert!(queue.try_admit(&b));
        assert!(!queue.remove(&a, |waiter| *waiter == "a2"));
        queue.set_limits(NonZeroU32::new(3), None);
        assert_eq!(queue.admit_next(), Some("a1"));
        queue.push(&a, "a2");
        assert!(queue.remove(&a, |waiter| *waiter == "a2"));
        for container in [&a, &a, &b] {
            queue.release(container);
        }
        assert!(queue.containers.is_empty() && queue.ready.is_empty() && queue.running == 0);
    }
}
