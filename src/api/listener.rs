//! Accepts a limited number of connections at the same time, so that descriptors are left for cameras and broker. An idle connection
//! is closed, so that clients which disappeared do not take up this number.

use std::{
    future::Future,
    io::{Error, ErrorKind, IoSlice, Result},
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    extract::connect_info::Connected,
    serve::{IncomingStream, Listener},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, Sleep, sleep},
};

/// Further ones wait in the machine's queue.
const CONNECTIONS_MAX: usize = 256;
/// A connection on which nothing is read or written for so long is closed: longer than any answer takes, on a CPU, too.
const IDLE_LIMIT: Duration = Duration::from_mins(10);

pub struct LimitedListener {
    listener: TcpListener,
    free: Arc<Semaphore>,
}

/// A connection; another one may be accepted when it is dropped.
pub struct LimitedStream {
    stream: TcpStream,
    idle: Pin<Box<Sleep>>,
    _place: Option<OwnedSemaphorePermit>,
}

impl LimitedStream {
    fn new(stream: TcpStream, place: Option<OwnedSemaphorePermit>) -> Self {
        Self {
            stream,
            idle: Box::pin(sleep(IDLE_LIMIT)),
            _place: place,
        }
    }

    /// Bytes were read or written.
    fn moved(&mut self) {
        self.idle.as_mut().reset(Instant::now() + IDLE_LIMIT);
    }
}

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
pub struct ClientAddress(pub SocketAddr);

impl LimitedListener {
    pub fn new(listener: TcpListener) -> Self {
        Self {
            listener,
            free: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
        }
    }
}

impl Listener for LimitedListener {
    type Io = LimitedStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (LimitedStream, SocketAddr) {
        // `None`: never, because the semaphore is not closed.
        let place = Arc::clone(&self.free).acquire_owned().await.ok();
        let (stream, address) = Listener::accept(&mut self.listener).await;
        (LimitedStream::new(stream, place), address)
    }

    fn local_addr(&self) -> Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Connected<IncomingStream<'_, LimitedListener>> for ClientAddress {
    fn connect_info(stream: IncomingStream<'_, LimitedListener>) -> Self {
        Self(*stream.remote_addr())
    }
}

impl AsyncRead for LimitedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        match read {
            Poll::Ready(_) => self.moved(),
            Poll::Pending if self.idle.as_mut().poll(context).is_ready() => {
                return Poll::Ready(Err(Error::from(ErrorKind::TimedOut)));
            }
            Poll::Pending => {}
        }
        read
    }
}

impl AsyncWrite for LimitedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        self.moved();
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        self.moved();
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        time::{advance, pause},
    };

    use super::*;

    #[tokio::test]
    async fn idle_connection_is_closed_and_a_used_one_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = LimitedStream::new(stream, None);
        pause();
        for _ in 0..3 {
            advance(IDLE_LIMIT - Duration::from_secs(1)).await;
            client.write_all(b"x").await.unwrap();
            assert_eq!(stream.read_u8().await.unwrap(), b'x');
        }
        let error = stream.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }
}
