//! The events of ONVIF cameras as signals of triggers: one subscription for each camera that has such triggers.
//!
//! ```text
//!   camera ──watch_events──▶ OnvifUpdate ──▶ signal: pure ──▶ TriggerCall
//!                                       └──▶ log, trouble
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    future::poll_fn,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use tokio::{sync::mpsc, task::JoinHandle, time::timeout};
use url::Url;

use super::{
    notice::{StageNotice, TriggerCall},
    stage::{Stage, StageContext, StageFuture},
};
use spotter_config::{CameraConfig, CameraTls, ConfigChange, SourceConfig, TriggerSource};
use spotter_core::{CameraId, Clock, TriggerId, TriggerSignal};
use spotter_onvif::{
    OnvifCamera, OnvifLogin, OnvifMessage, OnvifSelector, OnvifUpdate, PropertyOperation,
    device_address, watch_events,
};
use spotter_page::{Trouble, TroubleKind};

/// Updates of a camera that wait.
const WAITING_MAX: usize = 64;
/// The most rules and topics of a camera that are remembered; further ones are not counted or logged.
const REMEMBERED_MAX: usize = 64;
/// For the ends of all subscriptions at a stop.
const STOP_WITHIN: Duration = Duration::from_secs(3);

/// See the module's documentation.
pub struct OnvifEvents {
    cameras: BTreeMap<CameraId, SubscribedCamera>,
    /// The camera of the last update: those behind it have the next turn.
    last: Option<CameraId>,
    clock: Arc<dyn Clock>,
}

/// A camera whose events are received.
struct SubscribedCamera {
    wanted: WantedEvents,
    /// Of each trigger: its rules, inputs and areas that are active, with topic and source. It is on while one of them is: one message
    /// that a rule is over does not end it.
    active: Vec<BTreeSet<String>>,
    /// Why no events arrive.
    trouble: Option<String>,
    /// Topics that no trigger wants.
    seen: BTreeSet<String>,
    /// Its end ends the subscription.
    updates: mpsc::Receiver<OnvifUpdate>,
    subscription: JoinHandle<()>,
}

/// What is received from a camera, and for which triggers.
#[derive(Clone, Debug, PartialEq)]
struct WantedEvents {
    camera: OnvifCamera,
    triggers: Vec<(TriggerId, OnvifSelector)>,
}

impl OnvifEvents {
    pub fn start(cameras: &[CameraConfig], clock: Arc<dyn Clock>) -> Self {
        let mut events = Self {
            cameras: BTreeMap::new(),
            last: None,
            clock,
        };
        events.change(&ConfigChange::between(&[], cameras));
        events
    }

    /// A camera keeps its subscription unless its login, its address or its triggers have changed.
    fn change(&mut self, change: &ConfigChange) {
        for (id, change) in change.cameras() {
            let wanted = change.camera().and_then(wanted_events);
            let subscribed = self.cameras.get(id).map(|camera| &camera.wanted);
            if subscribed == wanted.as_ref() {
                continue;
            }
            self.cameras.remove(id);
            if let Some(wanted) = wanted {
                let camera = SubscribedCamera::new(wanted, Arc::clone(&self.clock));
                self.cameras.insert(id.clone(), camera);
            }
        }
    }

    /// One line for each camera that does not send events.
    fn troubles(&self) -> impl Iterator<Item = Trouble> {
        self.cameras.iter().filter_map(|(id, camera)| {
            let reason = camera.trouble.as_ref()?;
            let text = format!("camera {id}: no ONVIF events: {reason}");
            Some(Trouble::new(TroubleKind::OnvifEvents, text))
        })
    }
}

impl Stage for OnvifEvents {
    fn next(&mut self) -> StageFuture<'_, Vec<StageNotice>> {
        Box::pin(poll_fn(|context| {
            for is_turn in [true, false] {
                for (id, camera) in &mut self.cameras {
                    if (Some(id) > self.last.as_ref()) == is_turn
                        && let Poll::Ready(Some(update)) = camera.updates.poll_recv(context)
                    {
                        self.last = Some(id.clone());
                        let calls = camera.on_update(id, update).into_iter();
                        return Poll::Ready(calls.map(StageNotice::Signalled).collect());
                    }
                }
            }
            Poll::Pending
        }))
    }

    fn apply(&mut self, change: &ConfigChange, _context: &mut StageContext<'_>) {
        self.change(change);
    }

    fn tick(&mut self, context: &mut StageContext<'_>) {
        context.status.troubles.extend(self.troubles());
    }

    /// Ends the subscriptions at the cameras.
    fn close(&mut self, _is_restart: bool) -> StageFuture<'_, Vec<StageNotice>> {
        let cameras = std::mem::take(&mut self.cameras).into_values();
        let ending: Vec<_> = cameras.map(|camera| camera.subscription).collect();
        Box::pin(async {
            let all = async {
                for subscription in ending {
                    // It panicked, and the log says so.
                    _ = subscription.await;
                }
            };
            // What remains expires by itself.
            _ = timeout(STOP_WITHIN, all).await;
            Vec::new()
        })
    }
}

impl SubscribedCamera {
    fn new(wanted: WantedEvents, clock: Arc<dyn Clock>) -> Self {
        let (sender, updates) = mpsc::channel(WAITING_MAX);
        Self {
            active: vec![BTreeSet::new(); wanted.triggers.len()],
            trouble: None,
            seen: BTreeSet::new(),
            updates,
            subscription: tokio::spawn(watch_events(wanted.camera.clone(), clock, sender)),
            wanted,
        }
    }

    fn on_update(&mut self, camera: &CameraId, update: OnvifUpdate) -> Vec<TriggerCall> {
        match update {
            OnvifUpdate::Connected => {
                tracing::info!(%camera, "ONVIF events arrive");
                // What is active is unknown: the camera says it again.
                self.active.fill(BTreeSet::new());
                self.trouble = None;
            }
            OnvifUpdate::Lost { reason } => {
                tracing::warn!(%camera, reason, "no ONVIF events, so their triggers do not become active; trying again");
                self.trouble = Some(reason);
            }
            OnvifUpdate::Message(message) => return self.on_message(camera, &message),
        }
        Vec::new()
    }

    fn on_message(&mut self, camera: &CameraId, message: &OnvifMessage) -> Vec<TriggerCall> {
        let topic = message.topic.as_str();
        let triggers = self.wanted.triggers.iter().zip(&mut self.active);
        let mut wanting = triggers
            .filter(|((_, selector), _)| selector.accepts(message))
            .peekable();
        if wanting.peek().is_none()
            && self.seen.len() < REMEMBERED_MAX
            && self.seen.insert(topic.to_owned())
        {
            tracing::debug!(%camera, topic, "no trigger has this ONVIF topic; ignoring its messages");
        }
        let calls = wanting.filter_map(|((id, selector), active)| {
            Some(TriggerCall {
                signal: signal(selector, active, message)?,
                camera: camera.clone(),
                trigger: id.clone(),
            })
        });
        calls.collect()
    }
}

/// `None`: the camera has no triggers with ONVIF.
fn wanted_events(camera: &CameraConfig) -> Option<WantedEvents> {
    let triggers = camera.triggers.iter().filter_map(|trigger| {
        let TriggerSource::Onvif(text) = &trigger.source else {
            return None;
        };
        Some((trigger.id.clone(), OnvifSelector::new(text)?))
    });
    let triggers: Vec<_> = triggers.collect();
    let camera = onvif_camera(camera).filter(|_| !triggers.is_empty())?;
    Some(WantedEvents { camera, triggers })
}

/// Its ONVIF service is on the host of its source unless `onvif_url` says otherwise; the login is that of the source.
fn onvif_camera(camera: &CameraConfig) -> Option<OnvifCamera> {
    let rtsp = match &camera.source {
        SourceConfig::Rtsp(rtsp) => Some(rtsp),
        SourceConfig::File { .. } | SourceConfig::Usb { .. } | SourceConfig::Test => None,
    };
    let of_source = || {
        let url = Url::parse(&rtsp?.url).ok()?;
        Some(format!("http://{}", url.host_str()?))
    };
    let address = camera.onvif_url.clone().or_else(of_source)?;
    let login = rtsp.and_then(|rtsp| {
        Some(OnvifLogin {
            user: rtsp.user.clone()?,
            password: rtsp.password.clone()?,
        })
    });
    Some(OnvifCamera {
        address: device_address(&address).ok()?,
        login,
        is_insecure: rtsp.is_some_and(|rtsp| rtsp.tls == CameraTls::Insecure),
    })
}

/// What a message of a camera means for a trigger, of which `active` is remembered. Pure.
fn signal(
    selector: &OnvifSelector,
    active: &mut BTreeSet<String>,
    message: &OnvifMessage,
) -> Option<TriggerSignal> {
    let source = message.source.iter();
    let source = source.map(|item| format!(" {}={}", item.name, item.value));
    let rule = message.topic.as_str().to_owned() + &source.collect::<String>();
    match selector.state(message) {
        Some(true) => {
            if active.len() < REMEMBERED_MAX {
                active.insert(rule);
            }
            Some(TriggerSignal::On)
        }
        Some(false) => {
            active.remove(&rule);
            active.is_empty().then_some(TriggerSignal::Off)
        }
        // What was before the subscription is no event.
        None if message.operation == PropertyOperation::Initialized => None,
        None => Some(TriggerSignal::Momentary),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spotter_config::{Environment, ONVIF_KINDS, of_text};
    use spotter_core::{SystemClock, testing::rate};
    use spotter_onvif::{OnvifItem, OnvifTopic};
    use spotter_scripted::onvif::{
        OnvifLoginScheme, OnvifLoginScript, OnvifScript, ScriptedOnvifCamera,
    };

    fn camera(lines: &str) -> CameraConfig {
        let text = format!(
            "allow_plain_secrets = true\nmqtt.url = \"mqtt://broker\"\n[camera.gate]\nprompt.person.detect = \"person\"\n{lines}"
        );
        let environment = Environment::new("box", |_| None);
        let loaded = of_text("site.toml", &text, &environment);
        let loaded = loaded.unwrap_or_else(|problems| panic!("{problems}"));
        loaded.config.cameras[0].clone()
    }

    #[test]
    fn service_is_at_the_host_and_login_of_the_source() {
        let source = "url = \"rtsp://192.0.2.7:8554/x\"\nuser = \"u\"\npassword = \"p\"\n";
        let motion = "trigger.m.onvif = \"motion\"\n";
        let wanted = |lines: &str| wanted_events(&camera(lines));
        let found = wanted(&format!("{source}{motion}")).unwrap();
        let address = |wanted: &WantedEvents| wanted.camera.address.to_string();
        assert_eq!(address(&found), "http://192.0.2.7/onvif/device_service");
        assert_eq!(found.camera.login.unwrap().password.reveal(), "p");
        assert!(!found.camera.is_insecure);
        let other = "onvif_url = \"https://cam:8443\"\ntls = { insecure = true }\n";
        let found = wanted(&format!("{source}{other}{motion}")).unwrap();
        assert_eq!(address(&found), "https://cam:8443/onvif/device_service");
        assert!(found.camera.is_insecure);
        let file = "url = \"file:///a.mp4\"\nonvif_url = \"http://[2001:db8::1]/o\"\n";
        let found = wanted(&format!("{file}{motion}")).unwrap();
        assert_eq!(address(&found), "http://[2001:db8::1]/o");
        assert_eq!(
            wanted(&format!("{source}trigger.h.mqtt = \"bell\"\n")),
            None
        );
        for kind in ONVIF_KINDS {
            assert!(OnvifSelector::new(kind).is_some(), "{kind}");
        }
    }

    fn message(rule: &str, data: &[(&str, &str)], operation: PropertyOperation) -> OnvifMessage {
        let item = |(name, value): &(&str, &str)| OnvifItem {
            name: (*name).to_owned(),
            value: (*value).to_owned(),
        };
        let is_active = data.first().and_then(|(_, value)| value.parse().ok());
        OnvifMessage {
            topic: OnvifTopic::new("tns1:RuleEngine/CellMotionDetector/Motion").unwrap(),
            is_active,
            operation,
            source: vec![item(&("Rule", rule))],
            data: data.iter().map(item).collect(),
        }
    }

    #[test]
    fn trigger_is_on_while_any_rule_of_the_camera_is() {
        let selector = OnvifSelector::new("motion").unwrap();
        let mut active = BTreeSet::new();
        let mut signal = |rule: &str, data: &[(&str, &str)], operation| {
            let message = message(rule, data, operation);
            assert!(selector.accepts(&message));
            signal(&selector, &mut active, &message)
        };
        let (on, off) = (&[("IsMotion", "true")][..], &[("IsMotion", "false")][..]);
        let changed = PropertyOperation::Changed;
        for (rule, data, expected) in [
            ("left", on, Some(TriggerSignal::On)),
            ("right", on, Some(TriggerSignal::On)),
            ("left", off, None),
            ("right", off, Some(TriggerSignal::Off)),
            ("right", off, Some(TriggerSignal::Off)),
        ] {
            assert_eq!(signal(rule, data, changed), expected);
        }
        let momentary = Some(TriggerSignal::Momentary);
        assert_eq!(signal("x", &[("ObjectId", "7")], changed), momentary);
        let initialized = PropertyOperation::Initialized;
        assert_eq!(signal("x", &[("ObjectId", "7")], initialized), None);
        assert_eq!(signal("x", on, initialized), Some(TriggerSignal::On));
        let deleted = signal("x", on, PropertyOperation::Deleted);
        assert_eq!(deleted, Some(TriggerSignal::Off));
    }

    #[tokio::test]
    async fn cameras_with_waiting_messages_take_turns() {
        let mut events = OnvifEvents::start(&[], Arc::new(SystemClock::new()));
        for name in ["a", "b", "c"] {
            let (sender, updates) = mpsc::channel(WAITING_MAX);
            for _ in 0..WAITING_MAX {
                let crossed = message("x", &[("ObjectId", "7")], PropertyOperation::Changed);
                sender.try_send(OnvifUpdate::Message(crossed)).unwrap();
            }
            let text = "url = \"rtsp://192.0.2.7/x\"\ntrigger.m.onvif = \"motion\"\n";
            let wanted = wanted_events(&camera(text)).unwrap();
            let id = CameraId::new(name).unwrap();
            let mut subscribed = SubscribedCamera::new(wanted, Arc::clone(&events.clock));
            subscribed.updates = updates;
            events.cameras.insert(id, subscribed);
        }
        for camera in ["a", "b", "c", "a", "b", "c"] {
            let notices = events.next().await;
            let [StageNotice::Signalled(call)] = &notices[..] else {
                panic!("one signal");
            };
            assert_eq!(call.camera.as_str(), camera);
        }
    }

    async fn until(what: &str, mut is_done: impl FnMut() -> bool) {
        for _ in 0..6000 {
            if is_done() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("a minute went by without {what}");
    }

    #[tokio::test]
    async fn camera_has_one_subscription_for_all_its_triggers() {
        let scripted = ScriptedOnvifCamera::start(OnvifScript {
            login: Some(OnvifLoginScript {
                scheme: OnvifLoginScheme::Md5(100),
                user: "u",
                password: "p",
            }),
            ..OnvifScript::default()
        });
        let lines = |password: &str| {
            format!(
                "url = \"rtsp://127.0.0.1/x\"\nuser = \"u\"\npassword = \"{password}\"\nonvif_url = \"{}\"\n\
                 trigger.m.onvif = \"motion\"\ntrigger.t.onvif = \"tns1:RuleEngine/CellMotionDetector/Motion\"\n",
                scripted.address()
            )
        };
        let clock = Arc::new(SystemClock::new());
        let [right, wrong] = ["p", "wrong"].map(|password| [camera(&lines(password))]);
        let mut events = OnvifEvents::start(&right, clock);
        until("a request for messages", || {
            scripted.count("PullMessages") > 0
        })
        .await;
        let mut faster = right.clone();
        faster[0].rate = rate(7.0);
        events.change(&ConfigChange::between(&right, &faster));
        for (is_active, expected) in [(true, TriggerSignal::On), (false, TriggerSignal::Off)] {
            scripted.motion(is_active);
            let calls = loop {
                let notices = events.next().await;
                if !notices.is_empty() {
                    break notices;
                }
            };
            let call = |notice: &StageNotice| match notice {
                StageNotice::Signalled(call) => (call.trigger.to_string(), call.signal),
                _ => panic!("another notice"),
            };
            let calls: Vec<_> = calls.iter().map(call).collect();
            assert_eq!(calls, ["m", "t"].map(|id| (id.to_owned(), expected)));
        }
        assert_eq!(scripted.count("CreatePullPointSubscription"), 1);
        assert_eq!(events.troubles().count(), 0);
        events.change(&ConfigChange::between(&right, &wrong));
        while events.troubles().count() == 0 {
            assert!(events.next().await.is_empty());
        }
        let trouble = events.troubles().next().unwrap().text;
        assert!(
            trouble.starts_with("camera gate: no ONVIF events: "),
            "{trouble}"
        );
        assert!(trouble.contains("rejected the login"), "{trouble}");
        until("the end of the first one", || scripted.subscriptions() == 0).await;
        events.close(false).await;
    }
}
