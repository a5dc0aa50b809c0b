//! The body of a request: bounded in length, in the memory of all bodies, and in the time that a client takes for it.
//!
//! Faults: H5.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use futures_util::TryStreamExt as _;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout},
};

use super::pace::ClientPace;

/// Memory of all bodies that are read or held. Clones share it.
#[derive(Clone, Debug)]
pub struct BodyMemory(Arc<Semaphore>);

/// Why there is no body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// Longer than allowed.
    TooLong,
    /// The client stopped, or is slower than the minimum speed.
    TooSlow,
    /// Other bodies take all memory.
    NoMemory,
    /// The client has disconnected, or sent something else than HTTP.
    Broken,
}

/// A whole body; its memory is given back when it is dropped.
#[derive(Debug)]
pub struct HeldBody {
    pub bytes: Vec<u8>,
    _memory: OwnedSemaphorePermit,
}

impl BodyMemory {
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes.min(Semaphore::MAX_PERMITS))))
    }

    fn take(&self, bytes: usize) -> Result<OwnedSemaphorePermit, BodyError> {
        let bytes = u32::try_from(bytes).map_err(|_| BodyError::NoMemory)?;
        let taken = Arc::clone(&self.0).try_acquire_many_owned(bytes);
        taken.map_err(|_| BodyError::NoMemory)
    }
}

/// Reads a body of at most `most` bytes.
pub async fn read_body(
    body: Body,
    most: usize,
    memory: &BodyMemory,
) -> Result<HeldBody, BodyError> {
    let mut chunks = body.into_data_stream();
    let mut held = HeldBody {
        bytes: Vec::new(),
        _memory: memory.take(0)?,
    };
    let mut pace = ClientPace::default();
    loop {
        let began = Instant::now();
        let chunk: Option<Bytes> = match timeout(pace.left(), chunks.try_next()).await {
            Ok(chunk) => chunk.map_err(|_| BodyError::Broken)?,
            Err(_) => return Err(BodyError::TooSlow),
        };
        let Some(chunk) = chunk else {
            return Ok(held);
        };
        pace.moved(began.elapsed(), chunk.len());
        if held.bytes.len() + chunk.len() > most {
            return Err(BodyError::TooLong);
        }
        held._memory.merge(memory.take(chunk.len())?);
        held.bytes.extend_from_slice(&chunk);
    }
}

#[cfg(test)]
mod tests {
    use std::{io, time::Duration};

    use futures_util::stream;
    use tokio::time::sleep;

    use super::*;

    /// `count` chunks of `bytes`, one each second.
    fn body(count: usize, bytes: usize) -> Body {
        Body::from_stream(stream::unfold(0, move |sent| async move {
            if sent == count {
                return None;
            }
            sleep(Duration::from_secs(1)).await;
            Some((Ok::<_, io::Error>(vec![b'x'; bytes]), sent + 1))
        }))
    }

    async fn read(body: Body) -> Result<usize, BodyError> {
        let memory = BodyMemory::new(20_000_000);
        let body = read_body(body, 10_000_000, &memory).await;
        body.map(|body| body.bytes.len())
    }

    #[tokio::test(start_paused = true)]
    async fn body_of_a_slow_client_is_given_up() {
        let began = Instant::now();
        assert_eq!(read(body(usize::MAX, 1)).await, Err(BodyError::TooSlow));
        assert!(began.elapsed() < Duration::from_secs(11));
        assert_eq!(read(body(200, 40_000)).await, Ok(8_000_000));
        assert_eq!(read(body(1, 10_000_001)).await, Err(BodyError::TooLong));
    }

    #[tokio::test]
    async fn bodies_share_their_memory_and_give_it_back() {
        let memory = BodyMemory::new(1000);
        let read = |bytes: usize| read_body(Body::from(vec![0; bytes]), 900, &memory);
        let held = read(600).await.unwrap();
        assert_eq!(read(600).await.unwrap_err(), BodyError::NoMemory);
        let second = read(400).await.unwrap();
        drop(held);
        assert!(read(600).await.is_ok());
        drop(second);
        assert_eq!(memory.0.available_permits(), 1000);
    }

    #[tokio::test]
    async fn body_that_ends_early_is_broken() {
        let error = stream::once(async { Err::<Vec<u8>, _>(io::ErrorKind::UnexpectedEof.into()) });
        let error: Body = Body::from_stream(error.map_err(|kind: io::Error| kind));
        assert_eq!(read(error).await, Err(BodyError::Broken));
    }
}
