//! The status page while the daemon runs: opened and closed.

use std::{sync::Arc, time::Duration};

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
    page: Option<StatusPage>,
}

/// The status page, or none where none is wanted.
pub struct Page {
    site: Site,
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
        Ok(Self { page })
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
            serving: None,
        };
        page.serve(bound);
        page
    }

    /// Ends it, so that its address is free.
    pub async fn close(&mut self) {
        if let Some((stop, page)) = self.serving.take() {
            drop(stop);
            let _ = timeout(CLOSE_LIMIT, page).await;
        }
    }

    fn serve(&mut self, BoundPage { page }: BoundPage) {
        self.serving = page.map(|page| {
            let (stop, stopped) = oneshot::channel();
            tracing::debug!(address = %page.address(), "status page");
            // An error means that its sender is gone, which is a stop too.
            let serving = page.serve(self.site.clone(), async move { drop(stopped.await) });
            (stop, tokio::spawn(serving))
        });
    }
}
