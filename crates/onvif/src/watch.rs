//! One camera's events: subscribes, pulls messages, renews, and begins again after a failure.
//!
//! ```text
//!   find and subscribe ──▶ synchronize ──▶ pull, renew ──▶ …
//!           ▲                                  │
//!           └─────── forgotten, expired ───────┘
//! ```
//!
//! A failure leaves the subscription as it is, except that a camera which refuses a request has forgotten it. The first failure
//! after a success is repeated at once: cameras close connections and forget subscriptions without another fault. From the second one
//! on there are pauses, and the connection counts as lost until messages can be pulled again.

use std::{convert::Infallible, sync::Arc, thread, time::Duration};

use tokio::{
    sync::{mpsc, oneshot},
    time::{sleep, timeout},
};

use crate::{
    answer::{CreatedSubscription, ServiceAddresses, SubscriptionAnswer},
    camera::{OnvifCamera, reachable, shown},
    client::OnvifClient,
    error::{OnvifError, OnvifProblem},
    message::OnvifMessage,
    request::{DEVICE, EVENTS, OnvifRequest, PULL_POINT, SUBSCRIPTION, seconds},
    soap::Endpoint,
    xml::leaf,
};
use spotter_core::{Backoff, Clock, Mono};

/// The most messages of one answer.
const MESSAGE_LIMIT: u32 = 100;
/// A subscription that is granted for longer than this more than it had left was extended.
const EXTENSION: Duration = Duration::from_secs(5);

/// What a camera's events are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnvifUpdate {
    /// Events arrive. What the states are, messages say: as [`PropertyOperation::Initialized`](crate::PropertyOperation), if the camera
    /// knows them.
    Connected,
    Message(OnvifMessage),
    /// No events arrive until the next `Connected`; states are unknown. Again when the reason is another one.
    Lost {
        reason: String,
    },
}

/// Pauses and limits of a camera's events; tests use shorter ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OnvifTiming {
    /// What a subscription is asked for; it is renewed after half of what the camera grants.
    pub(crate) subscription: Duration,
    /// The camera may keep a request for messages open for this time.
    pub(crate) pull: Duration,
    /// As `pull`, for the first request of a connection, whose answer shows that it works.
    pub(crate) first_pull: Duration,
    /// Between the beginnings of two requests for messages, when the first one had none. Some cameras answer at once.
    pub(crate) empty_gap: Duration,
    /// As `empty_gap`, when it had messages.
    pub(crate) full_gap: Duration,
    /// For an answer, beyond the time that the camera may keep the request.
    pub(crate) answer_within: Duration,
    /// From the second failure in a row on.
    pub(crate) pauses: Backoff,
    /// The same for a missing or rejected login.
    pub(crate) login_pauses: Backoff,
    /// The same when the camera has too many subscriptions: old ones have to expire.
    pub(crate) full_pauses: Backoff,
    /// For the end of the subscription when the events are not wanted any more.
    pub(crate) release_within: Duration,
}

impl Default for OnvifTiming {
    fn default() -> Self {
        Self {
            subscription: Duration::from_secs(120),
            pull: Duration::from_secs(20),
            first_pull: Duration::from_secs(1),
            empty_gap: Duration::from_secs(1),
            full_gap: Duration::from_millis(100),
            answer_within: Duration::from_secs(10),
            pauses: Backoff::of_seconds(1, 60),
            login_pauses: Backoff::of_seconds(30, 300),
            full_pauses: Backoff::of_seconds(15, 60),
            release_within: Duration::from_secs(2),
        }
    }
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
    let receiver = updates.clone();
    let mut watch = EventWatch {
        client: None,
        events: None,
        subscription: None,
        link: EventLink::default(),
        camera,
        timing,
        clock,
        updates,
    };
    tokio::select! {
        never = watch.run() => match never {},
        () = receiver.closed() => {}
    }
    // The client may be in a request that the camera keeps open.
    watch.client = None;
    watch.unsubscribe(timing.release_within).await;
}

struct EventWatch {
    /// `None` before the first request and during one.
    client: Option<OnvifClient>,
    /// The event service; `None` before it is found and after it refused a subscription.
    events: Option<Endpoint>,
    subscription: Option<EventSubscription>,
    link: EventLink,
    camera: OnvifCamera,
    timing: OnvifTiming,
    clock: Arc<dyn Clock>,
    updates: mpsc::Sender<OnvifUpdate>,
}

#[derive(Clone, Debug)]
struct EventSubscription {
    endpoint: Endpoint,
    is_synchronized: bool,
    began: Mono,
    lasts: Duration,
}

impl EventSubscription {
    fn ends_at(&self) -> Mono {
        self.began.after(self.lasts)
    }

    fn renew_at(&self) -> Mono {
        self.began.after(self.lasts / 2)
    }

    /// The answer to a request for messages may extend it. What is left of it is no extension.
    fn pulled(&mut self, began: Mono, lasts: Option<Duration>) {
        if let Some(lasts) = lasts
            && began.after(lasts) > self.ends_at().after(EXTENSION)
        {
            (self.began, self.lasts) = (began, lasts);
        }
    }
}

impl EventWatch {
    async fn run(&mut self) -> Infallible {
        loop {
            let Err(error) = self.follow().await;
            let (pause, lost) = self.link.failed(&error, &self.timing, fastrand::f64());
            self.send(lost).await;
            sleep(pause).await;
        }
    }

    /// The end of the receiver ends the watch.
    async fn send(&self, updates: impl IntoIterator<Item = OnvifUpdate>) {
        for update in updates {
            _ = self.updates.send(update).await;
        }
    }

    /// Until a request fails.
    async fn follow(&mut self) -> Result<Infallible, OnvifError> {
        loop {
            let now = self.clock.now();
            match &self.subscription {
                Some(it) if it.ends_at() <= now => self.subscribe(now).await?,
                Some(it) if !it.is_synchronized => self.synchronize().await?,
                Some(it) if it.renew_at() <= now => self.renew(now).await?,
                Some(it) => {
                    let until_renewal = it.renew_at().since(now);
                    self.pull(now, until_renewal).await?;
                }
                None => self.subscribe(now).await?,
            }
        }
    }

    async fn subscribe(&mut self, began: Mono) -> Result<(), OnvifError> {
        let (within, wanted) = (self.timing.answer_within, self.timing.subscription);
        // After an update of the camera, the service may be at another address.
        let known = self.events.take();
        let created = self.blocking(move |client| {
            let find = || {
                let events = services(client, within)?.events;
                let events =
                    events.ok_or_else(|| client.error(OnvifProblem::NoService("event")))?;
                Ok(Endpoint::new(reachable(&client.camera().address, &events)))
            };
            let events = known.map_or_else(find, Ok)?;
            let content = leaf("tev:InitialTerminationTime", &seconds(wanted));
            let request = OnvifRequest::new(&EVENTS, "CreatePullPointSubscription", content);
            let answer = client.ask(&events, &request, within)?;
            let created = client.read(&request, CreatedSubscription::of(&answer))?;
            let subscription = EventSubscription {
                endpoint: Endpoint {
                    url: reachable(&events.url, &created.address),
                    parameters: created.parameters,
                },
                is_synchronized: false,
                began,
                lasts: created.lasts.unwrap_or(wanted),
            };
            Ok((events, subscription))
        });
        let (events, subscription) = created.await?;
        (self.events, self.subscription) = (Some(events), Some(subscription));
        Ok(())
    }

    /// Cameras that cannot do it send the states at the start of a subscription.
    async fn synchronize(&mut self) -> Result<(), OnvifError> {
        let request = OnvifRequest::new(&PULL_POINT, "SetSynchronizationPoint", "");
        self.ask_optional(request).await?;
        if let Some(subscription) = &mut self.subscription {
            subscription.is_synchronized = true;
        }
        Ok(())
    }

    /// Of a camera that cannot do it, the subscription is ended before a new one.
    async fn renew(&mut self, began: Mono) -> Result<(), OnvifError> {
        let lasts = leaf("wsnt:TerminationTime", &seconds(self.timing.subscription));
        let request = OnvifRequest::new(&SUBSCRIPTION, "Renew", lasts);
        match (self.ask_optional(request).await?, &mut self.subscription) {
            (Some(answer), Some(subscription)) => {
                let lasts = answer.lasts.unwrap_or(self.timing.subscription);
                (subscription.began, subscription.lasts) = (began, lasts);
            }
            _ => self.unsubscribe(self.timing.answer_within).await,
        }
        Ok(())
    }

    /// A request for messages is over before the subscription has to be renewed.
    async fn pull(&mut self, began: Mono, until_renewal: Duration) -> Result<(), OnvifError> {
        let timing = self.timing;
        let most = match self.link.state {
            EventLinkState::Connected => timing.pull,
            EventLinkState::Connecting | EventLinkState::Lost(_) => timing.first_pull,
        };
        let open = until_renewal.clamp(Duration::from_secs(1).min(most), most);
        let limit = leaf("tev:MessageLimit", &MESSAGE_LIMIT.to_string());
        let content = leaf("tev:Timeout", &seconds(open)) + &limit;
        let request = OnvifRequest::new(&PULL_POINT, "PullMessages", content);
        let answer = self.ask(request, timing.answer_within + open).await;
        let answer = answer.inspect_err(|error| self.forget_if_refused(error))?;
        if let Some(subscription) = &mut self.subscription {
            subscription.pulled(began, answer.lasts);
        }
        if answer.ignored > 0 {
            let (camera, messages) = (shown(&self.camera.address), answer.ignored);
            tracing::debug!(%camera, messages, "ONVIF messages without a topic ignored");
        }
        let gap = match answer.messages.is_empty() {
            true => timing.empty_gap,
            false => timing.full_gap,
        };
        let change = self.link.pulled();
        let messages = answer.messages.into_iter().map(OnvifUpdate::Message);
        self.send(change.into_iter().chain(messages)).await;
        sleep(began.after(gap).since(self.clock.now())).await;
        Ok(())
    }

    /// Ends the subscription, which would count until it expires.
    async fn unsubscribe(&mut self, within: Duration) {
        let now = self.clock.now();
        let subscription = self.subscription.as_ref();
        if subscription.is_some_and(|it| it.ends_at() > now) {
            let request = OnvifRequest::new(&SUBSCRIPTION, "Unsubscribe", "");
            // A camera that does not answer lets the subscription expire.
            _ = timeout(within, self.ask(request, within)).await;
        }
        self.subscription = None;
    }

    /// A request to the subscription that the camera may not know: `None` then.
    async fn ask_optional(
        &mut self,
        request: OnvifRequest,
    ) -> Result<Option<SubscriptionAnswer>, OnvifError> {
        let within = self.timing.answer_within;
        match self.ask(request, within).await {
            Err(error) if error.problem.is_refusal() && !error.problem.is_about_subscription() => {
                Ok(None)
            }
            answer => answer
                .inspect_err(|error| self.forget_if_refused(error))
                .map(Some),
        }
    }

    fn forget_if_refused(&mut self, error: &OnvifError) {
        if error.problem.is_refusal() {
            self.subscription = None;
        }
    }

    /// A request to the subscription.
    async fn ask(
        &mut self,
        request: OnvifRequest,
        within: Duration,
    ) -> Result<SubscriptionAnswer, OnvifError> {
        let endpoint = self.subscription.as_ref().map(|it| it.endpoint.clone());
        let asked = self.blocking(move |client| {
            let missing = || client.error(OnvifProblem::NoService("subscription"));
            let endpoint = endpoint.ok_or_else(missing)?;
            let answer = client.ask(&endpoint, &request, within)?;
            Ok(SubscriptionAnswer::of(&answer))
        });
        asked.await
    }

    /// Runs requests, which block, in a thread of their own. The result of a thread that is waited for no more is lost.
    async fn blocking<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut OnvifClient) -> Result<T, OnvifError> + Send + 'static,
    ) -> Result<T, OnvifError> {
        let new_client = || OnvifClient::new(self.camera.clone(), Arc::clone(&self.clock));
        let mut client = self.client.take().unwrap_or_else(new_client);
        let (sender, finished) = oneshot::channel();
        let thread = thread::Builder::new().name("onvif".to_owned());
        let started = thread.spawn(move || {
            let result = work(&mut client);
            _ = sender.send((client, result));
        });
        if let Err(error) = started {
            tracing::warn!(%error, "cannot start the thread of a request");
        }
        let (client, result) = finished.await.map_err(|_| {
            let reason = "the thread of the request could not be started".to_owned();
            new_client().error(OnvifProblem::Unreachable(reason))
        })?;
        self.client = Some(client);
        result
    }
}

/// Whether events arrive, and how often in a row a request failed. Pure.
#[derive(Debug, Default)]
struct EventLink {
    state: EventLinkState,
    /// Since the last answer to a request for messages.
    failures: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum EventLinkState {
    #[default]
    Connecting,
    Connected,
    Lost(String),
}

impl EventLink {
    fn pulled(&mut self) -> Option<OnvifUpdate> {
        self.failures = 0;
        let before = std::mem::replace(&mut self.state, EventLinkState::Connected);
        (before != EventLinkState::Connected).then_some(OnvifUpdate::Connected)
    }

    /// The pause before the next request, and what is reported. `random` is in 0..1.
    fn failed(
        &mut self,
        error: &OnvifError,
        timing: &OnvifTiming,
        random: f64,
    ) -> (Duration, Option<OnvifUpdate>) {
        let is_first = self.failures == 0 && self.state == EventLinkState::Connected;
        self.failures += 1;
        if is_first && !error.problem.is_about_login() {
            return (Duration::ZERO, None);
        }
        let pauses = match &error.problem {
            problem if problem.is_about_login() => timing.login_pauses,
            problem if problem.is_about_number() => timing.full_pauses,
            OnvifProblem::NoService(_) => Backoff {
                first: timing.login_pauses.longest,
                ..timing.login_pauses
            },
            _ => timing.pauses,
        };
        let reason = error.to_string();
        let lost = EventLinkState::Lost(reason.clone());
        let before = std::mem::replace(&mut self.state, lost);
        let update = (before != self.state).then_some(OnvifUpdate::Lost { reason });
        (pauses.pause(self.failures, random), update)
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
        Ok(answer) => Ok(ServiceAddresses::of_services(&answer)),
        Err(error) if error.problem.is_refusal() => {
            let content = leaf("tds:Category", "All");
            let request = OnvifRequest::new(&DEVICE, "GetCapabilities", content);
            let answer = client.ask_device(&request, within)?;
            Ok(ServiceAddresses::of_capabilities(&answer))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::soap::SoapFault;

    fn failed(problem: OnvifProblem) -> OnvifError {
        let address = "cam".into();
        OnvifError { address, problem }
    }

    fn fault(code: &str) -> OnvifError {
        failed(OnvifProblem::Fault {
            request: "x",
            fault: SoapFault {
                codes: vec![code.into()],
                reason: None,
            },
        })
    }

    // Faults: O7, O9, O12.
    #[test]
    fn pauses_of_each_failure_are_its_own() {
        let closed = failed(OnvifProblem::Unreachable("closed".into()));
        let rejected = failed(OnvifProblem::LoginRejected);
        let forgotten = fault("ResourceUnknownFault");
        let full = fault("MaximumNumberOfSubscriptions");
        let without_events = failed(OnvifProblem::NoService("event"));
        // The first one is repeated at once.
        for (error, pauses_s) in [
            (&closed, [0, 1, 3, 6, 12, 25, 48]),
            (&forgotten, [0, 1, 3, 6, 12, 25, 48]),
            (&rejected, [30, 48, 96, 192, 240, 240, 240]),
            (&full, [0, 24, 48, 48, 48, 48, 48]),
            (&without_events, [0, 300, 300, 300, 300, 300, 300]),
        ] {
            let mut link = EventLink::default();
            assert_eq!(link.pulled(), Some(OnvifUpdate::Connected));
            let timing = OnvifTiming::default();
            let pauses = pauses_s.map(|_| link.failed(error, &timing, 0.0).0.as_secs());
            assert_eq!(pauses, pauses_s, "{error}");
        }
    }

    #[test]
    fn connection_is_lost_once_for_each_reason() {
        let (mut link, timing) = (EventLink::default(), OnvifTiming::default());
        let closed = failed(OnvifProblem::Unreachable("closed".into()));
        let rejected = failed(OnvifProblem::LoginRejected);
        let lost = |error: &OnvifError| {
            let reason = error.to_string();
            Some(OnvifUpdate::Lost { reason })
        };
        assert_eq!(
            link.failed(&closed, &timing, 0.5).1,
            lost(&closed),
            "never connected"
        );
        for _ in 0..2 {
            assert_eq!(link.pulled(), Some(OnvifUpdate::Connected));
            assert_eq!(link.failed(&closed, &timing, 0.5).1, None);
            assert_eq!(link.pulled(), None);
            assert_eq!(link.failed(&closed, &timing, 0.5).1, None);
            assert_eq!(link.failed(&closed, &timing, 0.5).1, lost(&closed));
            assert_eq!(
                link.failed(&closed, &timing, 0.5).1,
                None,
                "the same reason"
            );
            assert_eq!(link.failed(&rejected, &timing, 0.5).1, lost(&rejected));
        }
    }

    #[test]
    fn each_answer_may_extend_the_subscription() {
        let at = |seconds: u64| Mono::default().after(Duration::from_secs(seconds));
        let mut subscription = EventSubscription {
            endpoint: Endpoint::new("http://cam/".parse().unwrap()),
            is_synchronized: true,
            began: at(0),
            lasts: Duration::from_secs(60),
        };
        // One that shrinks as time goes by is no extension.
        for (began_s, lasts_s, renew_s) in [
            (20, Some(60), 50),
            (30, Some(50), 50),
            (40, Some(40), 50),
            (40, None, 50),
            (45, Some(60), 75),
        ] {
            subscription.pulled(at(began_s), lasts_s.map(Duration::from_secs));
            assert_eq!(subscription.renew_at(), at(renew_s), "{began_s}");
        }
    }
}
