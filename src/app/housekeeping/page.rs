//! The status page while the daemon runs: opened and closed.

use std::time::Duration;

use tokio::{sync::oneshot, task::JoinHandle, time::timeout};

use crate::ops::page::{ListenError, PageInputs, StatusPage};
use spotter_core::config::HttpConfig;

/// Time for answers in progress when the page is closed.
const CLOSE_LIMIT: Duration = Duration::from_millis(500);

/// The status page with its address bound and no request answered yet: an address in use is an error before anything else is
/// started, and dropping this frees it. `None` while `http.listen` is off.
pub struct BoundPage(Option<StatusPage>);

/// The page that is served.
pub struct ServedPage {
    /// Dropping it stops the page.
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl BoundPage {
    /// Binds the address of `[http]`, unless it is off.
    pub async fn bind(http: &HttpConfig) -> Result<Self, ListenError> {
        Ok(Self(match http.listen {
            Some(address) => Some(StatusPage::bind(address).await?),
            None => None,
        }))
    }

    pub fn serve(self, inputs: PageInputs) -> Option<ServedPage> {
        let page = self.0?;
        let (stop, stopped) = oneshot::channel();
        tracing::debug!(address = %page.address(), "status page");
        // An error means that the sender was dropped, which is the stop.
        let serving = page.serve(inputs, async move { drop(stopped.await) });
        let task = tokio::spawn(serving);
        Some(ServedPage { stop, task })
    }
}

impl ServedPage {
    /// Ends it, so that its address is free.
    pub async fn close(self) {
        drop(self.stop);
        let _ = timeout(CLOSE_LIMIT, self.task).await;
    }
}
