//! Lists as streams of batches.

use std::pin::Pin;

use tokio_stream::Stream;
use tonic::{Response, Status};

/// Maximum number of items in a message. It keeps messages well below the limits of clients.
const BATCH_ITEMS: usize = 500;

/// Stream of a response.
pub(super) type Streamed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Returns a stream of the items in batches, which is empty if there are no items.
pub(super) fn batched_stream<T: Send + 'static, M: Send + 'static>(
    items: Vec<T>,
    message: fn(Vec<T>) -> M,
) -> Response<Streamed<M>> {
    let mut items = items.into_iter();
    let batches = std::iter::from_fn(move || {
        let batch: Vec<T> = items.by_ref().take(BATCH_ITEMS).collect();
        (!batch.is_empty()).then(|| Ok(message(batch)))
    });
    Response::new(Box::pin(tokio_stream::iter(batches)))
}

#[cfg(test)]
mod tests {
    use tokio_stream::StreamExt as _;

    use super::*;

    #[tokio::test]
    async fn a_list_stream_has_every_item_once_and_no_empty_batch() {
        for count in [0, 1, BATCH_ITEMS, BATCH_ITEMS + 1, 3 * BATCH_ITEMS] {
            let items: Vec<usize> = (0..count).collect();
            let batches: Vec<Vec<usize>> =
                batched_stream(items.clone(), |batch| batch).into_inner().map(Result::unwrap).collect().await;
            assert!(batches.iter().all(|batch| (1..=BATCH_ITEMS).contains(&batch.len())));
            assert_eq!(batches.concat(), items);
        }
    }
}
