//! Catches panics of the database library without printing them; callers report them as errors.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    /// Whether a panic of this thread will be caught by `catch`.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Installs a panic hook that ignores the panics of quiet threads and passes the others to the
/// previous hook.
static HOOK: Once = Once::new();

/// Runs a closure. Returns the message of its panic, which is not printed.
pub(super) fn catch<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    HOOK.call_once(|| {
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                hook(info);
            }
        }));
    });
    let before = QUIET.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    QUIET.set(before);
    done.map_err(|payload| panic_message(&*payload))
}

/// Returns the message of a panic.
fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_caught_with_its_message_and_other_panics_are_reported() {
        assert_eq!(catch(|| 7), Ok(7));
        assert_eq!(catch(|| -> u8 { panic!("at {}", 1) }), Err("at 1".to_owned()));
        assert_eq!(catch(|| -> u8 { panic!("plain") }), Err("plain".to_owned()));
        assert!(!QUIET.get(), "later panics are printed");
    }
}
