//! Tests of the dialogs that pause and resume probes.

use super::*;
use crate::admin::api::{PauseBody, ResumeBody};

#[test]
fn a_pause_needs_a_valid_duration_and_a_confirmation() {
    let mut app = app(&PODS);
    press(&mut app, "/db\np");
    insta::assert_snapshot!("top_pause", shown(&app));
    press(&mut app, "\u{8}\u{8}0s\n");
    assert!(shown(&app).contains("the duration must be"), "{}", shown(&app));
    press(&mut app, "\u{8}\u{8}10m");
    assert_eq!(press(&mut app, "\n"), None);
    insta::assert_snapshot!("top_pause_confirmation", shown(&app));
    assert_eq!(press(&mut app, "\n"), None, "Enter confirms nothing");
    let body = PauseBody {
        name: None,
        selector: "namespace=shop,pod=db-0,container=main".to_owned(),
        for_ms: 600_000,
        readiness: false,
        all: false,
    };
    assert_eq!(press(&mut app, "y"), Some(TopEffect::Pause(body)));
    app.update(TopEvent::Answered(Err("refused".to_owned())));
    assert!(shown(&app).contains("refused"));
    press(&mut app, "p\n");
    assert_eq!(press(&mut app, "n"), None);
    assert!(app.dialog.is_none());
}

#[test]
fn a_pause_ends_after_a_confirmation() {
    let mut app = app(&PODS);
    press(&mut app, "r");
    insta::assert_snapshot!("top_resume", shown(&app));
    let names = vec!["pause-1".to_owned()];
    assert_eq!(press(&mut app, "y"), Some(TopEffect::Resume(ResumeBody { names })));
    press(&mut app, "r\u{1b}");
    assert!(app.dialog.is_none());
    let mut without = status(1);
    without.pauses.clear();
    app.update(TopEvent::Status(Box::new(without), start()));
    press(&mut app, "r");
    assert!(shown(&app).contains("no pause is active"));
}

#[test]
fn keys_quit_and_suspend_also_in_a_dialog() {
    let control = |c| TopEvent::Key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL));
    let mut app = app(&PODS);
    press(&mut app, "p");
    assert_eq!(app.update(control('z')), Some(TopEffect::Suspend));
    assert_eq!(app.update(control('c')), Some(TopEffect::Quit));
    assert_eq!(press(&mut app, "\u{1b}q"), Some(TopEffect::Quit));
    assert_eq!(app.update(TopEvent::TerminalClosed), Some(TopEffect::Quit));
}
