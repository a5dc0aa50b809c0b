//! The status page and the local HTTP API, which answer from the beginning of the start on that the model is being opened.

use std::{future::pending, sync::Arc};

use super::{
    notice::StageNotice,
    stage::{Stage, StageContext, StageFuture},
};
use spotter_api::ServedApi;
use spotter_config::Config;
use spotter_core::Clock;
use spotter_http::HostNames;
use spotter_page::{Readiness, ServedPage};
use spotter_requests::RequestQueue;

#[derive(Default)]
pub struct HttpServers {
    /// What API and page ask the engines.
    pub queue: Arc<RequestQueue>,
    /// `None`: off.
    pub page: Option<ServedPage>,
    /// `None`: off.
    pub api: Option<ServedApi>,
}

impl HttpServers {
    pub async fn start(
        file: &Config,
        readiness: Readiness,
        clock: &Arc<dyn Clock>,
    ) -> anyhow::Result<Self> {
        let page = ServedPage::start(&file.node.name, &file.http, readiness, clock).await?;
        let names = HostNames::of_this_machine(&file.http.names);
        let mut servers = Self {
            page,
            ..Self::default()
        };
        match ServedApi::start(file.api.as_ref(), names, &servers.queue, clock).await {
            Ok(api) => servers.api = api,
            Err(error) => {
                servers.free().await;
                return Err(error);
            }
        }
        Ok(servers)
    }

    /// Frees the addresses at once.
    pub async fn free(&mut self) {
        self.queue.close();
        if let Some(api) = self.api.take() {
            api.close().await;
        }
        if let Some(page) = self.page.take() {
            page.close().await;
        }
    }
}

impl Stage for HttpServers {
    fn next(&mut self) -> StageFuture<'_, Vec<StageNotice>> {
        let (page, api) = (&mut self.page, &mut self.api);
        Box::pin(async move {
            let request = async {
                match page {
                    Some(page) => page.next_request().await,
                    None => pending().await,
                }
            };
            let call = async {
                match api {
                    Some(api) => api.next_trigger().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                request = request => vec![StageNotice::PageAsked(Some(request))],
                call = call => vec![StageNotice::TriggerCalled(Some(call))],
            }
        })
    }

    fn hear(&mut self, notice: &mut StageNotice, context: &mut StageContext<'_>) {
        if let (StageNotice::AdaptersSet, Some(api)) = (notice, &self.api) {
            api.set_adapters(context.config.file().adapters.ids());
        }
    }

    fn tick(&mut self, context: &mut StageContext<'_>) {
        if let Some(api) = &self.api {
            context.status.api = Some(api.status());
        }
    }

    fn finish(&mut self) -> StageFuture<'_, Vec<StageNotice>> {
        self.queue.close();
        if let Some(page) = &mut self.page {
            page.refuse();
        }
        Box::pin(async { Vec::new() })
    }

    fn close(&mut self, _is_restart: bool) -> StageFuture<'_, Vec<StageNotice>> {
        Box::pin(async {
            self.free().await;
            Vec::new()
        })
    }
}
