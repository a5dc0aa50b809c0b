//! The shell of one camera's events: requests as the session decides. Each request has a thread, which nothing waits for at the end.

use std::{sync::Arc, thread, time::Duration};

use tokio::{
    sync::{mpsc, oneshot},
    time::{sleep, timeout},
};

use crate::{
    answer::{CreatedSubscription, ServiceAddresses, SubscriptionAnswer},
    camera::{OnvifCamera, reachable, shown},
    client::OnvifClient,
    error::{OnvifError, OnvifProblem},
    request::{DEVICE, EVENTS, OnvifRequest, PULL_POINT, SUBSCRIPTION, seconds},
    session::{EventSession, FinishedCall, OnvifUpdate, SessionCall, SessionStep},
    soap::Endpoint,
    timing::OnvifTiming,
    xml::leaf,
};
use spotter_core::{Clock, Mono};

/// The most messages of one answer.
const MESSAGE_LIMIT: u32 = 100;

/// Receives the events of a camera until the receiver of `updates` is dropped; then it ends the subscription.
pub async fn watch_events(
    camera: OnvifCamera,
    clock: Arc<dyn Clock>,
    updates: mpsc::Sender<OnvifUpdate>,
) {
    watch_with(camera, clock, OnvifTiming::default(), updates).await;
}

pub(crate) async fn watch_with(
    camera: OnvifCamera,
    clock: Arc<dyn Clock>,
    timing: OnvifTiming,
    updates: mpsc::Sender<OnvifUpdate>,
) {
    let mut watch = EventWatch {
        session: EventSession::new(timing),
        link: None,
        subscription: None,
        camera,
        timing,
        clock,
        updates,
    };
    while watch.turn().await.is_some() {}
    watch.release().await;
}

struct EventWatch {
    session: EventSession,
    /// `None` before the first call and during one.
    link: Option<CameraLink>,
    /// For the end.
    subscription: Option<Endpoint>,
    camera: OnvifCamera,
    timing: OnvifTiming,
    clock: Arc<dyn Clock>,
    updates: mpsc::Sender<OnvifUpdate>,
}

impl EventWatch {
    /// One wait or one call; `None` at the end.
    async fn turn(&mut self) -> Option<()> {
        let (now, updates) = (self.clock.now(), self.updates.clone());
        let turn = async {
            match self.session.next(now) {
                SessionStep::WaitUntil(at) => {
                    sleep(at.since(now)).await;
                    Some(())
                }
                SessionStep::Call(call) => self.call(call, now).await,
            }
        };
        tokio::select! {
            turn = turn => turn,
            () = updates.closed() => None,
        }
    }

    async fn call(&mut self, call: SessionCall, began: Mono) -> Option<()> {
        let finished = FinishedCall {
            call,
            began,
            result: self.carry_out(call).await,
        };
        let now = self.clock.now();
        let change = self.session.finish(&finished, now, fastrand::f64());
        let answer = finished.result.unwrap_or_default();
        if answer.ignored > 0 {
            let (camera, messages) = (shown(&self.camera.address), answer.ignored);
            tracing::debug!(%camera, messages, "ONVIF messages without a topic ignored");
        }
        let messages = answer.messages.into_iter().map(OnvifUpdate::Message);
        for update in change.into_iter().chain(messages) {
            self.updates.send(update).await.ok()?;
        }
        Some(())
    }

    /// Each request of a call has a limit, so the call has one.
    async fn carry_out(&mut self, call: SessionCall) -> Result<SubscriptionAnswer, OnvifError> {
        let mut link = self.link.take().unwrap_or_else(|| self.new_link());
        let timing = self.timing;
        let running = in_thread(move || {
            let result = link.carry_out(call, timing);
            (link, result)
        });
        let (link, result) = running.await.map_err(|_| {
            let reason = "the thread of the request could not be started".to_owned();
            self.new_link()
                .client
                .error(OnvifProblem::Unreachable(reason))
        })?;
        self.subscription.clone_from(&link.subscription);
        self.link = Some(link);
        result
    }

    fn new_link(&self) -> CameraLink {
        CameraLink {
            client: OnvifClient::new(self.camera.clone(), Arc::clone(&self.clock)),
            events: None,
            subscription: self.subscription.clone(),
        }
    }

    /// Ends the subscription, which would count until it expires.
    async fn release(&mut self) {
        if self.subscription.is_none() || !self.session.has_subscription(self.clock.now()) {
            return;
        }
        // The client may be in a request that the camera keeps open.
        let mut link = self.new_link();
        let timing = OnvifTiming {
            answer_within: self.timing.release_within,
            ..self.timing
        };
        let released = in_thread(move || link.carry_out(SessionCall::Release, timing));
        // A camera that does not answer lets the subscription expire.
        _ = timeout(self.timing.release_within, released).await;
    }
}

/// Runs `work` in a thread of its own; an error if that cannot be started. The result of a thread that is waited for no more is lost.
fn in_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> oneshot::Receiver<T> {
    let (sender, answer) = oneshot::channel();
    let thread = thread::Builder::new().name("onvif".to_owned());
    let started = thread.spawn(move || {
        _ = sender.send(work());
    });
    if let Err(error) = started {
        tracing::warn!(%error, "cannot start the thread of a request");
    }
    answer
}

/// A camera with what is known of its event service.
struct CameraLink {
    client: OnvifClient,
    /// The event service.
    events: Option<Endpoint>,
    subscription: Option<Endpoint>,
}

impl CameraLink {
    /// Blocks until the camera has answered.
    fn carry_out(
        &mut self,
        call: SessionCall,
        timing: OnvifTiming,
    ) -> Result<SubscriptionAnswer, OnvifError> {
        let mut within = timing.answer_within;
        let lasts = seconds(timing.subscription);
        let request = match call {
            SessionCall::Find => {
                self.events = Some(self.find(within)?);
                return Ok(SubscriptionAnswer::default());
            }
            SessionCall::Subscribe => return self.subscribe(&lasts, within),
            SessionCall::Synchronize => {
                OnvifRequest::new(&PULL_POINT, "SetSynchronizationPoint", "")
            }
            SessionCall::Renew => {
                OnvifRequest::new(&SUBSCRIPTION, "Renew", leaf("wsnt:TerminationTime", &lasts))
            }
            SessionCall::Release => OnvifRequest::new(&SUBSCRIPTION, "Unsubscribe", ""),
            SessionCall::Pull { timeout } => {
                within += timeout;
                let limit = leaf("tev:MessageLimit", &MESSAGE_LIMIT.to_string());
                let content = leaf("tev:Timeout", &seconds(timeout)) + &limit;
                OnvifRequest::new(&PULL_POINT, "PullMessages", content)
            }
        };
        let subscription = self.subscription.clone();
        let subscription = subscription
            .ok_or_else(|| self.client.error(OnvifProblem::NoService("subscription")))?;
        let answer = self.client.ask(&subscription, &request, within)?;
        let read = SubscriptionAnswer::of(&answer);
        self.client.read(&request, read)
    }

    fn find(&mut self, within: Duration) -> Result<Endpoint, OnvifError> {
        let services = services(&mut self.client, within)?;
        let events = services.events;
        let events = events.ok_or_else(|| self.client.error(OnvifProblem::NoService("event")))?;
        let used = &self.client.camera().address;
        Ok(Endpoint::new(reachable(used, &events)))
    }

    fn subscribe(
        &mut self,
        lasts: &str,
        within: Duration,
    ) -> Result<SubscriptionAnswer, OnvifError> {
        let events = match &self.events {
            Some(events) => events.clone(),
            None => self.find(within)?,
        };
        let content = leaf("tev:InitialTerminationTime", lasts);
        let request = OnvifRequest::new(&EVENTS, "CreatePullPointSubscription", content);
        let answer = self.client.ask(&events, &request, within)?;
        let read = CreatedSubscription::of(&answer);
        let created = self.client.read(&request, read)?;
        self.subscription = Some(Endpoint {
            url: reachable(&events.url, &created.address),
            parameters: created.parameters,
        });
        self.events = Some(events);
        Ok(SubscriptionAnswer {
            lasts: created.lasts,
            ..SubscriptionAnswer::default()
        })
    }
}

/// Where the camera has its services. Old cameras know them as capabilities.
pub(crate) fn services(
    client: &mut OnvifClient,
    within: Duration,
) -> Result<ServiceAddresses, OnvifError> {
    let content = leaf("tds:IncludeCapability", "false");
    let request = OnvifRequest::new(&DEVICE, "GetServices", content);
    match client.ask_device(&request, within) {
        Ok(answer) => client.read(&request, ServiceAddresses::of_services(&answer)),
        Err(error) if error.problem.is_refusal() => {
            let content = leaf("tds:Category", "All");
            let request = OnvifRequest::new(&DEVICE, "GetCapabilities", content);
            let answer = client.ask_device(&request, within)?;
            client.read(&request, ServiceAddresses::of_capabilities(&answer))
        }
        Err(error) => Err(error),
    }
}
