//! The runtime of the attacks. It answers immediately, and serves successive connections on
//! different threads, so that no client waits for another.

use std::path::Path;
use std::thread;

use bytes::Bytes;
use h2::server::{Builder, SendResponse};
use h2::{Reason, RecvStream};
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::net::UnixStream;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// Method with a small answer.
pub(crate) const VERSION: &str = "/runtime.v1.RuntimeService/Version";

/// Method that runs a command. The stub runs none, and answers that it has exited with 0.
pub(crate) const EXEC_SYNC: &str = "/runtime.v1.RuntimeService/ExecSync";

/// Method whose answer is a list of some hundred containers.
pub(crate) const LIST: &str = "/runtime.v1.RuntimeService/ListContainers";

/// Method whose answer is a list of five thousand containers.
pub(crate) const LARGE_LIST: &str = "/runtime.v1.RuntimeService/ListPodSandbox";

/// Number of threads.
const THREADS: usize = 64;

/// Size of the answer to [`LIST`] in bytes.
const LIST_BYTES: usize = 64 << 10;

/// Size of the answer to [`LARGE_LIST`] in bytes.
pub(crate) const LARGE_LIST_BYTES: usize = 5 << 19;

/// Serves connections until the process is killed.
pub(crate) fn run(socket: &Path) {
    let listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
    let list = answer(LIST_BYTES);
    let large = answer(LARGE_LIST_BYTES);
    let threads: Vec<_> = (0..THREADS).map(|_| thread_of_connections(list.clone(), large.clone())).collect();
    for (stream, thread) in listener.incoming().zip(threads.iter().cycle()) {
        thread.send(stream.unwrap()).unwrap();
    }
}

/// Starts a thread that serves the connections it receives.
fn thread_of_connections(list: Bytes, large: Bytes) -> UnboundedSender<std::os::unix::net::UnixStream> {
    let (sender, mut streams) = unbounded_channel::<std::os::unix::net::UnixStream>();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            while let Some(stream) = streams.recv().await {
                let (list, large) = (list.clone(), large.clone());
                stream.set_nonblocking(true).unwrap();
                let stream = UnixStream::from_std(stream).unwrap();
                tokio::spawn(async move { serve(stream, &list, &large).await });
            }
        });
    });
    sender
}

/// Returns a gRPC message with `bytes` bytes.
fn answer(bytes: usize) -> Bytes {
    let mut message = vec![0];
    message.extend(u32::try_from(bytes).unwrap().to_be_bytes());
    // An unknown bytes field, which clients ignore: number 1000, its length, its content.
    let mut field = vec![0xc2, 0x3e];
    let mut length = bytes - 6;
    for _ in 0..3 {
        field.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
        length >>= 7;
    }
    field.push(u8::try_from(length).unwrap());
    field.resize(bytes, 0);
    message.extend(field);
    message.into()
}

/// Answers the calls of one connection.
async fn serve(stream: UnixStream, list: &Bytes, large: &Bytes) {
    let handshake = Builder::new()
        .max_header_list_size(16 << 20)
        .max_concurrent_reset_streams(100_000)
        .max_pending_accept_reset_streams(100_000)
        .max_local_error_reset_streams(None)
        .data_frame_budget(usize::MAX)
        .handshake(stream)
        .await;
    let Ok(mut connection) = handshake else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        let message = match request.uri().path() {
            LIST => list.clone(),
            LARGE_LIST => large.clone(),
            _ => Bytes::from_static(b"\0\0\0\0\0"),
        };
        // A call that the client resets in the meantime gets no answer.
        tokio::spawn(async move { drop(call(request, respond, message).await) });
    }
}

/// Reads a request to its end and answers it.
async fn call(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    mut message: Bytes,
) -> Result<(), h2::Error> {
    let mut body = request.into_body();
    while let Some(chunk) = body.data().await {
        let length = chunk?.len();
        body.flow_control().release_capacity(length)?;
    }
    let head = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
    let mut stream = respond.send_response(head, false)?;
    while !message.is_empty() {
        stream.reserve_capacity(message.len());
        match std::future::poll_fn(|cx| stream.poll_capacity(cx)).await {
            Some(room) => stream.send_data(message.split_to(room?.min(message.len())), false)?,
            None => return Err(Reason::CANCEL.into()),
        }
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    stream.send_trailers(trailers)
}
