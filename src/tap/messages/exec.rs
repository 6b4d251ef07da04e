//! ExecSync: container, command, exit code, size of the output, and its beginning if the command
//! failed.

use bytes::{Buf, BufMut};
use prost::encoding::{self, DecodeContext, WireType};
use prost::{DecodeError, Message};

use super::{MessageContext, cut, name};
use crate::cri::v1;
use crate::tap::call::{ExecCall, ExecResult, MAX_OUTPUT_BYTES};

/// Maximum number of bytes that are kept of a command. Some commands are scripts, and clients may
/// send commands of any length.
const MAX_COMMAND_BYTES: usize = 4096;

/// `ExecSyncRequest`, with arguments up to the maximum: half a million arguments fit into 1 MiB.
#[derive(Debug, Default)]
struct ExecSyncPartial {
    container_id: String,
    command: ExecCommand,
    timeout: i64,
}

/// The arguments of a command, up to the maximum.
#[derive(Debug, Default)]
struct ExecCommand {
    args: Vec<String>,
    bytes: usize,
    is_cut: bool,
}

pub(in crate::tap) fn request(read: &mut MessageContext, message: &[u8]) -> Result<(), DecodeError> {
    let ExecSyncPartial { container_id, command: ExecCommand { args, is_cut: truncated, .. }, timeout } =
        ExecSyncPartial::decode(message)?;
    read.container().id = Some(name(container_id));
    let exec = ExecCall { command: args, truncated, timeout_seconds: timeout, ..ExecCall::default() };
    read.call.exec = Some(Box::new(exec));
    Ok(())
}

pub(in crate::tap) fn response(read: &mut MessageContext, message: &[u8]) -> Result<(), DecodeError> {
    let response = v1::ExecSyncResponse::decode(message)?;
    if let Some(exec) = &mut read.call.exec {
        exec.result = Some(ExecResult::from(&response));
        // The analysis discards it unless the command belongs to a known probe.
        exec.output = (response.exit_code != 0).then(|| first_output(&response));
    }
    Ok(())
}

/// Returns the beginning of the output of a command, stdout before stderr. Each has at least half
/// of the room: a command writes its reason to stderr, also after much output.
pub(in crate::tap) fn first_output(response: &v1::ExecSyncResponse) -> Box<str> {
    let room = (MAX_OUTPUT_BYTES - 1).saturating_sub(response.stderr.len()).max(MAX_OUTPUT_BYTES / 2 - 1);
    let stdout = &response.stdout[..response.stdout.len().min(room)];
    let stderr = &response.stderr[..response.stderr.len().min(MAX_OUTPUT_BYTES - 1 - stdout.len())];
    // The text of stderr begins on a line of its own.
    let end: &[u8] = if stdout.len() < response.stdout.len() && !stderr.is_empty() { b"\n" } else { b"" };
    String::from_utf8_lossy(&[stdout, end, stderr].concat()).into()
}

impl From<&v1::ExecSyncResponse> for ExecResult {
    fn from(response: &v1::ExecSyncResponse) -> Self {
        Self {
            exit_code: response.exit_code,
            stdout_bytes: response.stdout.len(),
            stderr_bytes: response.stderr.len(),
        }
    }
}

impl Message for ExecSyncPartial {
    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        match tag {
            1 => encoding::string::merge(wire_type, &mut self.container_id, buf, context),
            2 if self.command.is_cut => encoding::skip_field(wire_type, tag, buf, context),
            2 => {
                let mut word = String::new();
                encoding::string::merge(wire_type, &mut word, buf, context)?;
                self.command.add(word);
                Ok(())
            }
            3 => encoding::int64::merge(wire_type, &mut self.timeout, buf, context),
            _ => encoding::skip_field(wire_type, tag, buf, context),
        }
    }

    fn clear(&mut self) {
        *self = Self::default();
    }

    // The message is never encoded.
    fn encode_raw(&self, _: &mut impl BufMut) {}

    fn encoded_len(&self) -> usize {
        0
    }
}

impl ExecCommand {
    /// Adds an argument, or as much of it as there is room for.
    fn add(&mut self, word: String) {
        let (room, length) = (MAX_COMMAND_BYTES.saturating_sub(self.bytes), word.len());
        if room == 0 {
            self.is_cut = true;
            return;
        }
        let word = cut(word, room);
        self.is_cut = word.len() < length;
        // Each argument counts one byte more, for the space before it, so that the number of
        // arguments is bounded as well.
        self.bytes += word.len() + 1;
        self.args.push(word);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::tap::Call;

    fn read(args: &[&str]) -> ExecSyncPartial {
        let cmd = args.iter().map(ToString::to_string).collect();
        let request = v1::ExecSyncRequest { container_id: "c0ffee".into(), cmd, timeout: 7 };
        let read = ExecSyncPartial::decode(&*request.encode_to_vec()).unwrap();
        assert_eq!((read.container_id.as_str(), read.timeout), ("c0ffee", 7));
        read
    }

    #[test]
    fn the_first_kibibyte_of_the_output_of_a_failed_command_is_kept() {
        let kept = |exit_code, stdout: &[u8], stderr: &[u8]| {
            let mut context = MessageContext::new(Call::sample(1, "/a/B", UNIX_EPOCH, Duration::ZERO));
            context.call.exec = Some(Box::default());
            let message = v1::ExecSyncResponse { stdout: stdout.into(), stderr: stderr.into(), exit_code };
            response(&mut context, &message.encode_to_vec()).unwrap();
            context.call.exec.unwrap().output.map(String::from)
        };
        assert_eq!(kept(0, b"secret", b""), None, "the command succeeded");
        assert_eq!(kept(1, b"", b"").unwrap(), "");
        assert_eq!(kept(1, b"out\n", b"err").unwrap(), "out\nerr");
        let long = [b'x'; 2000];
        assert_eq!(kept(1, &long, b"reason").unwrap(), format!("{}\nreason", "x".repeat(1017)));
        assert_eq!(
            kept(1, &long, &[b'y'; 2000]).unwrap(),
            format!("{}\n{}", "x".repeat(511), "y".repeat(512))
        );
        assert_eq!(kept(1, &long, b"").unwrap(), "x".repeat(1023));
        assert_eq!(kept(1, b"", &long).unwrap(), "x".repeat(1023));
        assert_eq!(kept(1, b"\xff", b"").unwrap(), "\u{fffd}");
    }

    #[test]
    fn a_long_exec_command_is_truncated() {
        let ExecCommand { args, is_cut, .. } = read(&["sh", "-c", ""]).command;
        assert_eq!((args, is_cut), (["sh", "-c", ""].map(str::to_owned).into(), false));
        let ExecCommand { args, is_cut, .. } = read(&["sh", &"ö".repeat(5000), "more"]).command;
        assert!(is_cut && args.len() == 2 && args[1].len() == 4092, "{}", args[1].len());
        let ExecCommand { args, is_cut, .. } = read(&vec!["x"; 300_000]).command;
        assert!(is_cut && args.len() == 2048, "{}", args.len());
    }
}
