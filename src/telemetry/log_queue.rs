//! Bounded queue of log lines, and the thread that writes them. A stuck reader of the log costs
//! lines, but delays no call.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Maximum number of lines that wait for a slow reader; further lines are dropped.
const CAPACITY: usize = 4096;

/// Time for which the end of the program waits for a slow reader.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Adds lines to the queue. Each write is one line.
#[derive(Clone, Debug)]
pub(crate) struct LineWriter(Arc<Queue>);

/// Writes the remaining lines when it is dropped, unless the reader is stuck.
#[derive(Debug)]
pub struct LogGuard(Arc<Queue>);

#[derive(Debug, Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<Vec<u8>>,
    /// Whether the guard is dropped. The thread then ends after the last line.
    is_ending: bool,
    has_ended: bool,
}

/// Starts the thread that writes to `output`.
pub(crate) fn start(output: impl Write + Send + 'static) -> io::Result<(LineWriter, LogGuard)> {
    let queue = Arc::new(Queue::default());
    let writing = queue.clone();
    thread::Builder::new().name("log".to_owned()).spawn(move || writing.write_all_to(output))?;
    Ok((LineWriter(queue.clone()), LogGuard(queue)))
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_all_to(&self, mut output: impl Write) {
        loop {
            let waiting = |state: &mut State| state.lines.is_empty() && !state.is_ending;
            let mut state =
                self.changed.wait_while(self.lock(), waiting).unwrap_or_else(PoisonError::into_inner);
            let Some(line) = state.lines.pop_front() else {
                state.has_ended = true;
                self.changed.notify_all();
                return;
            };
            drop(state);
            // A failure of the log cannot be logged.
            let _ = output.write_all(&line);
        }
    }
}

impl Write for LineWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut state = self.0.lock();
        if state.lines.len() < CAPACITY {
            state.lines.push_back(line.to_owned());
            drop(state);
            self.0.changed.notify_all();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_ending = true;
        self.0.changed.notify_all();
        let _ = self.0.changed.wait_timeout_while(state, END_TIMEOUT, |state| !state.has_ended);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// An output that waits for a message before each line. It waits no more once the sender is
    /// gone.
    struct Gate {
        open: Receiver<()>,
        written: Sender<String>,
    }

    impl Write for Gate {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            let _ = self.open.recv();
            self.written.send(String::from_utf8(line.to_vec()).unwrap()).unwrap();
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_log_queue_drops_lines_and_its_guard_writes_the_rest() {
        let ((opener, open), (written, lines)) = (channel(), channel());
        let (mut writer, guard) = start(Gate { open, written }).unwrap();
        let all = CAPACITY + 100;
        for number in 0..all {
            writer.write_all(number.to_string().as_bytes()).unwrap();
        }
        drop(opener);
        drop(guard);
        let lines: Vec<usize> = lines.iter().map(|line| line.parse().unwrap()).collect();
        // The thread may have taken a line before it waited.
        assert!([CAPACITY, CAPACITY + 1].contains(&lines.len()), "{}", lines.len());
        assert!(lines.iter().enumerate().all(|(place, number)| place == *number), "lines stay in order");
    }

    #[test]
    fn the_log_guard_does_not_wait_for_a_stuck_reader() {
        let ((opener, open), (written, lines)) = (channel(), channel());
        let (mut writer, guard) = start(Gate { open, written }).unwrap();
        writer.write_all(b"stuck").unwrap();
        drop(guard);
        assert!(lines.try_recv().is_err());
        drop(opener);
        assert_eq!(lines.recv().unwrap(), "stuck");
    }
}
