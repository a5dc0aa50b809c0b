//! The status page of a running daemon: opened, moved to another address, closed.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
    time::timeout,
};

use crate::ops::{
    metrics::Metrics,
    page::{DaemonHealth, ListenError, PageInputs, StatusPage, StatusSource},
};
use spotter_core::config::HttpConfig;

/// Time for answers in progress when the page is closed.
const CLOSE_LIMIT: Duration = Duration::from_millis(500);

/// The status page with its address bound and no request answered yet: an address in use is an error before anything else is
/// started, and dropping this frees it.
pub struct BoundPage {
    listen: Option<SocketAddr>,
    page: Option<StatusPage>,
}

/// The status page; it serves nothing while `http.listen` is off.
pub struct Page {
    inputs: PageInputs,
    /// As configured.
    listen: Option<SocketAddr>,
    /// Dropping the sender stops the task.
    serving: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl BoundPage {
    /// Binds the address of `[http]`, unless it is off.
    pub async fn bind(http: &HttpConfig) -> Result<Self, ListenError> {
        let page = match http.listen {
            Some(address) => Some(StatusPage::bind(address).await?),
            None => None,
        };
        Ok(Self {
            listen: http.listen,
            page,
        })
    }
}

impl Page {
    /// Starts to serve.
    pub fn open(
        bound: BoundPage,
        metrics: Arc<Metrics>,
        health: watch::Receiver<DaemonHealth>,
        source: Arc<dyn StatusSource>,
    ) -> Self {
        let inputs = PageInputs {
            metrics,
            health,
            source,
        };
        let mut page = Self {
            inputs,
            listen: None,
            serving: None,
        };
        page.serve(bound);
        page
    }

    /// Moves to the address of `[http]`. When that cannot be bound, the page stays where it is.
    pub async fn move_to(&mut self, http: &HttpConfig) -> Result<(), ListenError> {
        if http.listen == self.listen {
            return Ok(());
        }
        let bound = match BoundPage::bind(http).await {
            Err(_) if self.has_the_port_of(http) => self.rebind(http).await?,
            bound => bound?,
        };
        self.close().await;
        self.serve(bound);
        Ok(())
    }

    /// Ends it, so that its address is free.
    pub async fn close(&mut self) {
        if let Some((stop, page)) = self.serving.take() {
            drop(stop);
            let _ = timeout(CLOSE_LIMIT, page).await;
        }
    }

    /// A port cannot be bound on all addresses and on one of them at the same time.
    fn has_the_port_of(&self, http: &HttpConfig) -> bool {
        let port = |address: SocketAddr| address.port();
        self.serving.is_some() && self.listen.map(port) == http.listen.map(port)
    }

    /// Closes the page and binds again; when that fails too, reopens it at its old address.
    async fn rebind(&mut self, http: &HttpConfig) -> Result<BoundPage, ListenError> {
        self.close().await;
        let error = match BoundPage::bind(http).await {
            Ok(bound) => return Ok(bound),
            Err(error) => error,
        };
        let before = HttpConfig {
            listen: self.listen,
        };
        match BoundPage::bind(&before).await {
            Ok(bound) => self.serve(bound),
            Err(lost) => tracing::error!("status page stopped: {lost}"),
        }
        Err(error)
    }

    fn serve(&mut self, BoundPage { listen, page }: BoundPage) {
        self.listen = listen;
        self.serving = page.map(|page| {
            let (stop, stopped) = oneshot::channel();
            tracing::debug!(address = %page.address(), "status page");
            // An error means that the sender was dropped, which is the stop.
            let serving = page.serve(self.inputs.clone(), async move { drop(stopped.await) });
            (stop, tokio::spawn(serving))
        });
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use tokio::net::TcpStream;

    use super::*;
    use crate::ops::page::{DaemonStatus, Thumbnail};

    struct Nothing;

    impl StatusSource for Nothing {
        fn status(&self, _: bool) -> DaemonStatus {
            unreachable!("no request is sent")
        }
        fn thumbnail(&self, _: &str) -> Option<Arc<Thumbnail>> {
            None
        }
    }

    fn at(address: SocketAddr) -> HttpConfig {
        HttpConfig {
            listen: Some(address),
        }
    }

    fn free() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.local_addr().unwrap()
    }

    async fn is_there(address: SocketAddr) -> bool {
        TcpStream::connect(address).await.is_ok()
    }

    #[tokio::test]
    async fn page_moves_to_a_free_address_and_stays_otherwise() {
        let (first, second) = (free(), free());
        let bound = BoundPage::bind(&at(first)).await.unwrap();
        let (_, health) = watch::channel(DaemonHealth::default());
        let mut page = Page::open(bound, Arc::new(Metrics::new()), health, Arc::new(Nothing));
        page.move_to(&at(second)).await.unwrap();
        assert!(is_there(second).await && !is_there(first).await);

        let foreign = TcpListener::bind(first).unwrap();
        let error = page.move_to(&at(first)).await.unwrap_err().to_string();
        assert!(error.contains(&first.to_string()), "{error}");
        assert!(is_there(second).await);
        drop(foreign);

        // The same port of every address, and back.
        let everywhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, second.port()));
        page.move_to(&at(everywhere)).await.unwrap();
        assert!(is_there(second).await);
        page.move_to(&at(second)).await.unwrap();
        assert!(is_there(second).await);
        // One that is not of this machine (documentation's range).
        let nowhere = SocketAddr::from(([192, 0, 2, 1], second.port()));
        page.move_to(&at(nowhere)).await.unwrap_err();
        assert!(is_there(second).await);

        page.move_to(&HttpConfig { listen: None }).await.unwrap();
        assert!(!is_there(second).await);
    }
}
