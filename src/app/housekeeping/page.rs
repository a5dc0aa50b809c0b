//! The status page while the daemon runs: opened and closed.

use std::{sync::Arc, time::Duration};

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
    page: Option<StatusPage>,
}

/// The status page; it serves nothing while `http.listen` is off.
pub struct Page {
    inputs: PageInputs,
    /// With what stops it.
    serving: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl BoundPage {
    /// Binds the address of `[http]`, unless it is off.
    pub async fn bind(http: &HttpConfig) -> Result<Self, ListenError> {
        let page = match http.listen {
            Some(address) => Some(StatusPage::bind(address).await?),
            None => None,
        };
        Ok(Self { page })
    }
}

impl Page {
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
            // An error means that the sender was dropped, which is the stop.
            let serving = page.serve(self.inputs.clone(), async move { drop(stopped.await) });
            (stop, tokio::spawn(serving))
        });
    }
}
