//! The shell of one camera's events: requests as the session decides. Each request has a thread, which nothing waits for at the end.

use std::{sync::Arc, thread, time::Duration};

use tokio::{
    sync::{
        mpsc,
        oneshot::{self, error::TryRecvError},
    },
    time::{sleep, timeout},
};

use crate::{
    answer::{CreatedSubscription, PulledMessages, ServiceAddresses, subscription_lasts},
    camera::{OnvifCamera, reachable},
    client::OnvifClient,
    error::OnvifError,
    message::OnvifMessage,
    request::OnvifRequest,
    session::{CallOutcome, EventSession, FinishedCall, SessionCall, SessionChange, SessionStep},
    soap::Endpoint,
    timing::OnvifTiming,
};
use spotter_core::{Clock, Mono};

/// The most messages of one answer.
const MESSAGE_LIMIT: u32 = 100;

/// What a camera's events are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnvifUpdate {
    /// Events arrive. What the states are, messages say: as [`PropertyOperation::Initialized`](crate::PropertyOperation), if the camera
    /// knows them.
    Connected,
    Message(OnvifMessage),
    /// Messages without a topic or without content.
    Ignored {
        messages: u64,
    },
    /// No events arrive until the next `Connected`; states are unknown. Again when the reason is another one.
    Lost {
        reason: String,
    },
}

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
        overdue: None,
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
    /// `None` before the first call, during one, and after one whose thread is lost.
    link: Option<CameraLink>,
    /// A call that was not finished in its time. Its thread goes on, and no other call begins while it does.
    overdue: Option<oneshot::Receiver<(CameraLink, Result<LinkAnswer, OnvifError>)>>,
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
        let now = self.clock.now();
        match self.session.next(now) {
            SessionStep::WaitUntil(at) => {
                let updates = &self.updates;
                tokio::select! {
                    () = sleep(at.since(now)) => Some(()),
                    () = updates.closed() => None,
                }
            }
            SessionStep::Call(call) => self.call(call, now).await,
        }
    }

    async fn call(&mut self, call: SessionCall, began: Mono) -> Option<()> {
        let updates = self.updates.clone();
        let result = tokio::select! {
            result = self.carry_out(call) => result,
            () = updates.closed() => return None,
        };
        let (outcome, pulled) = match result {
            Ok(LinkAnswer::Done(outcome)) => (outcome, PulledMessages::default()),
            Ok(LinkAnswer::Pulled(pulled)) => (pulled_outcome(&pulled), pulled),
            Err(error) => (CallOutcome::Failed(error), PulledMessages::default()),
        };
        let finished = FinishedCall {
            call,
            began,
            outcome,
        };
        let now = self.clock.now();
        let change = self.session.finish(finished, now, fastrand::f64());
        self.publish(change, pulled).await
    }

    async fn carry_out(&mut self, call: SessionCall) -> Result<LinkAnswer, OnvifError> {
        let address = crate::camera::shown(&self.camera.address);
        let timing = self.timing;
        let kept_open = match call {
            SessionCall::Pull { timeout } => timeout,
            _ => Duration::ZERO,
        };
        let within = timing.call_within;
        if let Some(running) = &mut self.overdue
            && matches!(running.try_recv(), Err(TryRecvError::Empty))
        {
            return Err(OnvifError::Timeout { address, within });
        }
        self.overdue = None;
        let mut link = self.link.take().unwrap_or_else(|| self.new_link());
        let mut running = in_thread(move || {
            let result = link.carry_out(call, timing);
            (link, result)
        });
        match timeout(within + kept_open, &mut running).await {
            Ok(Ok((link, result))) => {
                self.subscription.clone_from(&link.subscription);
                self.link = Some(link);
                result
            }
            Ok(Err(_)) => Err(OnvifError::Unreachable {
                address,
                reason: "the thread of the request could not be started".to_owned(),
            }),
            Err(_) => {
                self.overdue = Some(running);
                Err(OnvifError::Timeout { address, within })
            }
        }
    }

    /// `None` when the updates are not wanted any more.
    async fn publish(
        &mut self,
        change: Option<SessionChange>,
        pulled: PulledMessages,
    ) -> Option<()> {
        let change = change.map(|change| match change {
            SessionChange::Connected => OnvifUpdate::Connected,
            SessionChange::Lost { reason } => OnvifUpdate::Lost { reason },
        });
        let ignored = (pulled.ignored > 0).then_some(OnvifUpdate::Ignored {
            messages: pulled.ignored,
        });
        let messages = pulled.messages.into_iter().map(OnvifUpdate::Message);
        for update in change.into_iter().chain(ignored).chain(messages) {
            self.updates.send(update).await.ok()?;
        }
        Some(())
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

fn pulled_outcome(pulled: &PulledMessages) -> CallOutcome {
    CallOutcome::Pulled {
        messages: pulled.messages.len(),
        lasts: pulled.lasts,
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

/// What a camera answered.
enum LinkAnswer {
    Done(CallOutcome),
    Pulled(PulledMessages),
}

impl CameraLink {
    /// Blocks until the camera has answered.
    fn carry_out(
        &mut self,
        call: SessionCall,
        timing: OnvifTiming,
    ) -> Result<LinkAnswer, OnvifError> {
        let within = timing.answer_within;
        let lasts = timing.subscription;
        let outcome = match call {
            SessionCall::Find => {
                self.events = Some(self.find(within)?);
                CallOutcome::Found
            }
            SessionCall::Subscribe => self.subscribe(lasts, within)?,
            SessionCall::Synchronize => {
                self.manage(&OnvifRequest::SetSynchronizationPoint, within)?;
                CallOutcome::Synchronized
            }
            SessionCall::Renew => {
                let answer = self.manage(&OnvifRequest::Renew { lasts }, within)?;
                CallOutcome::Renewed(subscription_lasts(&answer))
            }
            SessionCall::Release => {
                self.manage(&OnvifRequest::Unsubscribe, within)?;
                CallOutcome::Released
            }
            SessionCall::Pull { timeout } => {
                let request = OnvifRequest::PullMessages {
                    timeout,
                    limit: MESSAGE_LIMIT,
                };
                let answer = self.manage(&request, within + timeout)?;
                let pulled = self.client.read(&request, PulledMessages::of(&answer))?;
                return Ok(LinkAnswer::Pulled(pulled));
            }
        };
        Ok(LinkAnswer::Done(outcome))
    }

    fn find(&mut self, within: Duration) -> Result<Endpoint, OnvifError> {
        let services = services(&mut self.client, within)?;
        let events = services.events.ok_or_else(|| OnvifError::NoService {
            address: self.client.shown(),
            service: "event",
        })?;
        let used = &self.client.camera().address;
        Ok(Endpoint::new(reachable(used, &events)))
    }

    fn subscribe(&mut self, lasts: Duration, within: Duration) -> Result<CallOutcome, OnvifError> {
        let events = match &self.events {
            Some(events) => events.clone(),
            None => self.find(within)?,
        };
        let request = OnvifRequest::CreatePullPointSubscription { lasts };
        let answer = self.client.ask(&events, &request, within)?;
        let created = self
            .client
            .read(&request, CreatedSubscription::of(&answer))?;
        self.subscription = Some(Endpoint {
            url: reachable(&events.url, &created.address),
            parameters: created.parameters,
        });
        self.events = Some(events);
        Ok(CallOutcome::Subscribed(created.lasts))
    }

    /// A request to the subscription.
    fn manage(
        &mut self,
        request: &OnvifRequest<'_>,
        within: Duration,
    ) -> Result<String, OnvifError> {
        let subscription = self.subscription.clone();
        let subscription = subscription.ok_or_else(|| OnvifError::NoService {
            address: self.client.shown(),
            service: "subscription",
        })?;
        self.client.ask(&subscription, request, within)
    }
}

/// Where the camera has its services. Old cameras know them as capabilities.
pub(crate) fn services(
    client: &mut OnvifClient,
    within: Duration,
) -> Result<ServiceAddresses, OnvifError> {
    let request = OnvifRequest::GetServices;
    match client.ask_device(&request, within) {
        Ok(answer) => client.read(&request, ServiceAddresses::of_services(&answer)),
        Err(error) if error.is_refusal() => {
            let request = OnvifRequest::GetCapabilities;
            let answer = client.ask_device(&request, within)?;
            client.read(&request, ServiceAddresses::of_capabilities(&answer))
        }
        Err(error) => Err(error),
    }
}
