//! A connection whose client has to read what is written to it, at a minimum speed.

use std::{
    io::{Error, ErrorKind, Result},
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep_until},
};

use super::pace::ClientPace;

/// Fails with [`ErrorKind::TimedOut`] when its client reads too slowly. Deadlines of what the client sends belong to requests.
pub struct PacedStream<S> {
    stream: S,
    pace: ClientPace,
    stalled: Option<Stall>,
}

/// A write that waits for the client.
struct Stall {
    since: Instant,
    deadline: Pin<Box<Sleep>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> PacedStream<S> {
    pub fn new(stream: S) -> Self {
        Self {
            stream,
            pace: ClientPace::default(),
            stalled: None,
        }
    }

    fn paced(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<Result<usize>>,
    ) -> Poll<Result<usize>> {
        match written {
            Poll::Ready(Ok(bytes)) => {
                let stall = self.stalled.take();
                let waited = stall.map(|stall| stall.since.elapsed());
                self.pace.moved(waited.unwrap_or_default(), bytes);
            }
            Poll::Ready(Err(_)) => {}
            Poll::Pending => {
                let left = self.pace.left();
                let stall = self.stalled.get_or_insert_with(|| {
                    let since = Instant::now();
                    let deadline = Box::pin(sleep_until(since + left));
                    Stall { since, deadline }
                });
                if stall.deadline.as_mut().poll(context).is_ready() {
                    return Poll::Ready(Err(Error::from(ErrorKind::TimedOut)));
                }
            }
        }
        written
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for PacedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for PacedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.paced(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
