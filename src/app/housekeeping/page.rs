//! The status page while the daemon runs: opened, moved to another address, closed.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
    time::timeout,
};

use crate::ops::{
    metrics::Metrics,
    page::{Health, ListenError, Scene, Site, StatusPage},
};
use spotter_core::config::HttpConfig;

/// Grace for answers that are under way when it is closed.
const CLOSE_LIMIT: Duration = Duration::from_millis(500);

/// The status page with its address taken and nothing answered yet: an address in use is known before anything else is
/// started, and free again when something else cannot start.
pub struct BoundPage {
    listen: Option<SocketAddr>,
    page: Option<StatusPage>,
}

/// The status page, or none where none is wanted.
pub struct Page {
    site: Site,
    /// As configured.
    listen: Option<SocketAddr>,
    /// With what stops it.
    serving: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl BoundPage {
    /// Takes the address of `[http]`, when there is to be a page.
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
    /// Opens it, to tell of this.
    pub fn open(
        bound: BoundPage,
        metrics: Arc<Metrics>,
        health: watch::Receiver<Health>,
        scene: Arc<dyn Scene>,
    ) -> Self {
        let site = Site {
            metrics,
            health,
            scene,
        };
        let mut page = Self {
            site,
            listen: None,
            serving: None,
        };
        page.serve(bound);
        page
    }

    /// Is where `[http]` says from now on. When that cannot be, it stays where it is.
    pub async fn move_to(&mut self, http: &HttpConfig) -> Result<(), ListenError> {
        if http.listen == self.listen {
            return Ok(());
        }
        let bound = match BoundPage::bind(http).await {
            Err(_) if self.is_in_its_own_way(http) => self.step_aside(http).await?,
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

    /// A port of all addresses and the same port of one of them cannot be had together.
    fn is_in_its_own_way(&self, http: &HttpConfig) -> bool {
        let port = |address: SocketAddr| address.port();
        self.serving.is_some() && self.listen.map(port) == http.listen.map(port)
    }

    /// Closes it for a second try, and opens it again where it was when that fails too.
    async fn step_aside(&mut self, http: &HttpConfig) -> Result<BoundPage, ListenError> {
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
            Err(lost) => tracing::error!("there is no status page any more: {lost}"),
        }
        Err(error)
    }

    fn serve(&mut self, BoundPage { listen, page }: BoundPage) {
        self.listen = listen;
        self.serving = page.map(|page| {
            let (stop, stopped) = oneshot::channel();
            tracing::debug!(address = %page.address(), "status page");
            // An error means that its sender is gone, which is a stop too.
            let serving = page.serve(self.site.clone(), async move { drop(stopped.await) });
            (stop, tokio::spawn(serving))
        });
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use tokio::net::TcpStream;

    use super::*;
    use crate::ops::page::{Still, View};

    struct Nothing;

    impl Scene for Nothing {
        fn view(&self, _: bool) -> View {
            unreachable!("nobody asks for it")
        }
        fn still(&self, _: &str) -> Option<Arc<Still>> {
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
    async fn it_moves_where_it_can_and_stays_where_it_cannot() {
        let (first, second) = (free(), free());
        let bound = BoundPage::bind(&at(first)).await.unwrap();
        let (_, health) = watch::channel(Health::default());
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
