//! The actions of a rule.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use tonic::Code;

use super::RuleError;
use super::when::Place;
use crate::cri::{self, FieldPath, MessageSide, Method};
use crate::duration;
use crate::gofmt::format_duration;
use crate::policy::call_match::{CallMatch, quoted};
use crate::suggest::did_you_mean;

/// Longest delay of a call or message.
const MAX_DELAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Largest number of copies of a message, and of messages in reverse order.
const MAX_MESSAGES: usize = 1_000;

/// An effect on a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Delays the call by a fixed duration, and up to `jitter` more or less.
    Delay {
        /// Mean of the delay.
        delay: Duration,
        /// Largest difference from the mean.
        jitter: Duration,
    },
    /// Ends the call with a status.
    Abort {
        /// The status code.
        code: Code,
        /// The status message.
        message: String,
        /// The bytes of `grpc-status-details-bin`.
        details: Vec<u8>,
    },
    /// Holds the call until its client gives up, or the rule ends.
    Hang,
    /// Closes the client's connection.
    Drop,
    /// Refuses the client's connections.
    Refuse,
    /// Sends GOAWAY, and refuses the call.
    GoAway,
    /// Changes the messages of a stream.
    Stream(StreamAction),
    /// Ends an ExecSync with an exit code and output.
    Exit {
        /// The exit code.
        code: i32,
        /// Standard output of the command.
        stdout: String,
        /// Standard error of the command.
        stderr: String,
    },
    /// Sets a field of the request or response.
    Set(MessageSide, FieldPath, String),
    /// Removes a field of the request or response.
    Remove(MessageSide, FieldPath),
}

/// A change of the messages of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamAction {
    /// Ends the stream with a status after a number of messages.
    Truncate(usize, Code),
    /// Sends each message a number of times.
    Repeat(usize),
    /// Waits before each message.
    DelayEach(Duration),
    /// Reverses the order of each group of this many messages.
    Reverse(usize),
}

impl Action {
    /// Forms of the actions.
    pub const FORMS: [&str; 14] = [
        "off",
        "delay(DURATION[, JITTER])",
        "abort(CODE[, MESSAGE[, DETAILS-BASE64]])",
        "hang",
        "drop",
        "refuse",
        "goaway",
        "truncate(MESSAGES[, CODE])",
        "repeat(TIMES)",
        "delayEach(DURATION)",
        "reverse(MESSAGES)",
        "exit(CODE[, STDOUT[, STDERR]])",
        "set(request|response.PATH=VALUE)",
        "remove(request|response.PATH)",
    ];

    /// Returns the names of the actions, in the order in which a step of a document applies them: a
    /// delay comes before the end of the call.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::FORMS.iter().filter_map(|form| form.split('(').next()).filter(|name| *name != "off")
    }

    /// Returns the name of the action.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Delay { .. } => "delay",
            Self::Abort { .. } => "abort",
            Self::Hang => "hang",
            Self::Drop => "drop",
            Self::Refuse => "refuse",
            Self::GoAway => "goaway",
            Self::Stream(StreamAction::Truncate(..)) => "truncate",
            Self::Stream(StreamAction::Repeat(_)) => "repeat",
            Self::Stream(StreamAction::DelayEach(_)) => "delayEach",
            Self::Stream(StreamAction::Reverse(_)) => "reverse",
            Self::Exit { .. } => "exit",
            Self::Set(..) => "set",
            Self::Remove(..) => "remove",
        }
    }

    /// Returns whether the action changes what a request, a response or a stream contains.
    pub(super) fn changes_messages(&self) -> bool {
        match self {
            Self::Delay { .. }
            | Self::Abort { .. }
            | Self::Hang
            | Self::Drop
            | Self::Refuse
            | Self::GoAway => false,
            Self::Stream(change) => !matches!(change, StreamAction::DelayEach(_)),
            Self::Exit { .. } | Self::Set(..) | Self::Remove(..) => true,
        }
    }

    /// Creates an action from its name and arguments in the one-line form.
    pub fn new(name: &str, args: &[String]) -> Result<Self, RuleError> {
        let shown = || format!("action {}", written(name, args));
        let wrong = |reason: String| RuleError::new(shown(), reason);
        let form = || {
            let form = Self::FORMS.iter().find(|form| form.split('(').next() == Some(name)).unwrap_or(&"");
            format!("must be {form}")
        };
        let arg = |index: usize| args.get(index).map(String::as_str);
        let (min, max) = match name {
            "hang" | "drop" | "refuse" | "goaway" => (0, 0),
            "repeat" | "delayEach" | "reverse" | "set" | "remove" => (1, 1),
            "delay" | "truncate" => (1, 2),
            "abort" | "exit" => (1, 3),
            _ => {
                let hint = did_you_mean(name, Self::names());
                return Err(wrong(format!("is unknown{hint}; actions are {}", Self::FORMS.join(", "))));
            }
        };
        if args.len() < min || args.len() > max {
            return Err(wrong(form()));
        }
        let first = arg(0).unwrap_or_default();
        let text = |index: usize| arg(index).unwrap_or_default().to_owned();
        let span = |text: &str| {
            duration::parse(text).filter(|span| *span <= MAX_DELAY).ok_or_else(|| {
                wrong(format!("needs a duration from 0s to 24h, such as 500ms, in place of {text:?}"))
            })
        };
        let count = |least: usize| {
            let count = first.parse().ok().filter(|count| (least..=MAX_MESSAGES).contains(count));
            count.ok_or_else(|| wrong(format!("needs a whole number from {least} to {MAX_MESSAGES}")))
        };
        Ok(match name {
            "delay" => {
                let delay = span(first)?;
                let jitter = arg(1).map_or(Ok(Duration::ZERO), span)?;
                if jitter > delay {
                    return Err(wrong("has a jitter that is longer than its delay".to_owned()));
                }
                Self::Delay { delay, jitter }
            }
            "abort" => {
                let details = BASE64_STANDARD.decode(text(2));
                let details = details.map_err(|_| wrong("needs details in base64".to_owned()))?;
                let code = code(first).map_err(&wrong)?;
                if code == Code::Ok {
                    return Err(wrong("cannot abort with OK; exit and set change a response".to_owned()));
                }
                Self::Abort { code, message: text(1), details }
            }
            "hang" => Self::Hang,
            "drop" => Self::Drop,
            "refuse" => Self::Refuse,
            "goaway" => Self::GoAway,
            "truncate" => {
                let code = arg(1).map_or(Ok(Code::Ok), code).map_err(&wrong)?;
                Self::Stream(StreamAction::Truncate(count(0)?, code))
            }
            "repeat" => Self::Stream(StreamAction::Repeat(count(2)?)),
            "reverse" => Self::Stream(StreamAction::Reverse(count(2)?)),
            "delayEach" => Self::Stream(StreamAction::DelayEach(span(first)?)),
            "exit" => {
                let code =
                    first.parse().map_err(|_| wrong(format!("needs an exit code in place of {first:?}")))?;
                Self::Exit { code, stdout: text(1), stderr: text(2) }
            }
            "set" => {
                let (path, value) = first.split_once('=').ok_or_else(|| wrong(form()))?;
                let (side, path) = field(path).map_err(&wrong)?;
                Self::Set(side, path, value.to_owned())
            }
            _ => {
                let (side, path) = field(first).map_err(&wrong)?;
                Self::Remove(side, path)
            }
        })
    }

    /// Checks that the action suits the methods and the place of its rule.
    pub(super) fn check(&self, matches: &CallMatch, place: Place) -> Result<(), RuleError> {
        let wrong = |reason: String| RuleError::new(format!("action {self}"), reason);
        let methods: Vec<Method> = matches.methods().collect();
        match self {
            Self::GoAway | Self::Refuse if place == Place::After => {
                Err(wrong("cannot be after the execution by the runtime".to_owned()))
            }
            Self::Set(MessageSide::Request, ..) | Self::Remove(MessageSide::Request, _)
                if place == Place::After =>
            {
                Err(wrong("changes the request, which is before the execution by the runtime".to_owned()))
            }
            Self::Exit { .. } if methods.iter().any(|method| method.name() != "ExecSync") => {
                Err(wrong("suits ExecSync only: select that method".to_owned()))
            }
            Self::Stream(_) if methods.iter().any(|method| !method.is_streaming()) => {
                let streams: Vec<&str> =
                    Method::all().filter(|method| method.is_streaming()).map(Method::name).collect();
                Err(wrong(format!("suits methods with a stream only: {}", streams.join(", "))))
            }
            Self::Set(side, path, _) | Self::Remove(side, path) => {
                let value = match self {
                    Self::Set(_, _, value) => Some(value.as_str()),
                    _ => None,
                };
                methods.into_iter().try_for_each(|method| {
                    let checked = path.check(method, *side, value);
                    checked.map_err(|error| wrong(format!("does not suit {}: {error}", method.name())))
                })
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Action {
    /// Writes the action in the one-line form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |side: &MessageSide| match side {
            MessageSide::Request => "request",
            MessageSide::Response => "response",
        };
        let args = match self {
            Self::Delay { delay, jitter } => {
                let jitter = Some(*jitter).filter(|jitter| !jitter.is_zero());
                [Some(*delay), jitter].into_iter().flatten().map(format_duration).collect()
            }
            Self::Abort { code, message, details } => {
                let details = BASE64_STANDARD.encode(details);
                without_empty_end([cri::Code::from(*code).to_string(), message.clone(), details])
            }
            Self::Hang | Self::Drop | Self::Refuse | Self::GoAway => Vec::new(),
            Self::Stream(StreamAction::Truncate(count, code)) => {
                let code = Some(*code).filter(|code| *code != Code::Ok);
                let code = code.map(|code| cri::Code::from(code).to_string());
                [Some(count.to_string()), code].into_iter().flatten().collect()
            }
            Self::Stream(StreamAction::Repeat(count) | StreamAction::Reverse(count)) => {
                vec![count.to_string()]
            }
            Self::Stream(StreamAction::DelayEach(delay)) => vec![format_duration(*delay)],
            Self::Exit { code, stdout, stderr } => {
                without_empty_end([code.to_string(), stdout.clone(), stderr.clone()])
            }
            Self::Set(which, path, value) => vec![format!("{}.{path}={value}", side(which))],
            Self::Remove(which, path) => vec![format!("{}.{path}", side(which))],
        };
        f.write_str(&written(self.name(), &args))
    }
}

/// Returns the arguments without empty ones at the end.
fn without_empty_end(args: [String; 3]) -> Vec<String> {
    let count = args.iter().rposition(|arg| !arg.is_empty()).map_or(0, |last| last + 1);
    args.into_iter().take(count).collect()
}

/// Returns an action in the one-line form.
fn written(name: &str, args: &[String]) -> String {
    let args: Vec<String> = args.iter().map(|arg| quoted(arg)).collect();
    if args.is_empty() { name.to_owned() } else { format!("{name}({})", args.join(", ")) }
}

/// Parses the name of a status code, in the spelling of gRPC or of its number.
fn code(text: &str) -> Result<Code, String> {
    let number =
        cri::Code::named(&text.to_ascii_uppercase()).map(|code| code.0).or_else(|| text.parse().ok());
    let code = number.filter(|number| *number <= 16).and_then(|number| i32::try_from(number).ok());
    code.map(Code::from).ok_or_else(|| {
        let hint = did_you_mean(text, cri::Code::NAMES);
        format!("has an unknown code{hint}; codes are {}", cri::Code::NAMES.join(", "))
    })
}

/// Parses the path of a field after the side of its message.
fn field(text: &str) -> Result<(MessageSide, FieldPath), String> {
    let sides = [("request.", MessageSide::Request), ("response.", MessageSide::Response)];
    let found = sides.into_iter().find_map(|(prefix, side)| Some((side, text.strip_prefix(prefix)?)));
    let (side, path) = found.ok_or("needs a path that begins with request. or response.")?;
    Ok((side, FieldPath::parse(path).map_err(|error| error.to_string())?))
}
