//! The triggers of the cameras: what their sources say, and what follows of it.
//!
//! ```text
//!   broker: topics of other programs ──▶ on_message ─┐
//!   the camera's ONVIF events ──TriggerSender──next──┼─▶ TriggerSet ──▶ follow ──▶ sampler, CameraSupervisor, tracker
//!   calls of the local API ──────────▶ called ───────┤   (pure)    └──▶ topic `trigger`, page, metrics
//!   commands `look` and `snapshot` ──▶ look, look_once ─┘
//! ```
//!
//! Every source says the same: [`TriggerSignal`]. Belongs here: subscribing to the topics, publishing which triggers are active. Does not
//! belong here: when a trigger is active (`spotter_events::triggers`), what a payload means (`spotter_mqtt`), and what a camera without
//! an active trigger does not do (`Daemon::follow_triggers`).

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    sync::Arc,
    time::Duration,
};

use tokio::{sync::mpsc, time::sleep};

use super::onvif_events::OnvifEvents;
use spotter_config::{CameraConfig, ConfigChange, MqttTrigger, TriggerSource};
use spotter_core::{
    CameraId, Clock, LookNews, Mono, TriggerId, TriggerReport, TriggerSignal, TriggeredLooks,
};
use spotter_events::triggers::{TriggerSet, UnknownTrigger};
use spotter_mqtt::{Inbound, Publisher, Update, trigger_signal};

/// Signals that wait for the daemon's loop; beyond this number they are dropped.
const WAITING_MAX: usize = 64;
/// A look of a camera without frames is not requested longer than that.
const ONE_LOOK_LIMIT: Duration = Duration::from_secs(30);

/// A signal of a source that runs beside the daemon's loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriggerCall {
    pub camera: CameraId,
    pub trigger: TriggerId,
    pub signal: TriggerSignal,
}

/// Where such a source sends its signals. It never waits: a source with an end repeats what it says, and a signal of a moment among 64
/// others that wait changes nothing.
#[derive(Clone, Debug)]
pub struct TriggerSender(mpsc::Sender<TriggerCall>);

impl TriggerSender {
    pub fn new(sender: mpsc::Sender<TriggerCall>) -> Self {
        Self(sender)
    }

    /// Drops the signal and logs it when too many wait.
    pub fn send(&self, call: TriggerCall) {
        if let Err(error) = self.0.try_send(call) {
            tracing::warn!(%error, "signal of a trigger dropped");
        }
    }
}

/// The triggers of all cameras that this node watches.
pub struct Triggers {
    set: TriggerSet,
    publisher: Publisher,
    onvif: OnvifEvents,
    calls: mpsc::Receiver<TriggerCall>,
    /// As published.
    shown: BTreeMap<(CameraId, TriggerId), bool>,
    /// Of the cameras with triggers, as the stages know it.
    followed: BTreeMap<CameraId, TriggeredLooks>,
    followed_at: Mono,
    /// Triggers whose payloads are not JSON: logged once.
    not_json: BTreeSet<(CameraId, TriggerId)>,
}

/// These looks of a camera are taken from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookSwitch {
    pub camera: CameraId,
    pub looks: TriggeredLooks,
}

impl Triggers {
    /// Subscribes to the topics and at the cameras. Nothing is active yet, and nothing is published before [`follow`](Self::follow).
    pub fn start(cameras: &[CameraConfig], publisher: Publisher, clock: &Arc<dyn Clock>) -> Self {
        let (sender, calls) = mpsc::channel(WAITING_MAX);
        let sender = TriggerSender::new(sender);
        let triggers = Self {
            set: TriggerSet::new(cameras),
            publisher,
            onvif: OnvifEvents::start(cameras, sender, Arc::clone(clock)),
            calls,
            shown: BTreeMap::new(),
            followed: BTreeMap::new(),
            followed_at: Mono::default(),
            not_json: BTreeSet::new(),
        };
        triggers.subscribe(&BTreeSet::new());
        triggers
    }

    /// The next signal of a source that runs beside the daemon's loop, for [`signal`](Self::signal); `None` when a trigger or requested looks
    /// end before: the caller then [follows](Self::follow). Dropping the future loses nothing.
    pub async fn next(&mut self, now: Mono) -> Option<TriggerCall> {
        // The loop may have been busy at an end, which is then past.
        let end = self.set.next_end(self.followed_at);
        let ended = async {
            match end {
                Some(end) => sleep(end.since(now)).await,
                None => pending().await,
            }
        };
        tokio::select! {
            Some(call) = self.calls.recv() => Some(call),
            () = ended => None,
        }
    }

    /// Other cameras, or other triggers of them: [`follow`](Self::follow) then returns and publishes all of those.
    pub fn apply(&mut self, change: &ConfigChange) {
        let unheard = self.set.apply(change).into_iter();
        // The broker may have sent what is retained there for another camera, or for this one before it was elsewhere.
        let again = unheard.filter_map(|source| match source {
            TriggerSource::Mqtt(mqtt) => mqtt.off.and(Some(mqtt.topic)),
            TriggerSource::Onvif(_) | TriggerSource::Http => None,
        });
        let again = again.collect();
        self.onvif.apply(change);
        for (camera, _) in change.cameras() {
            self.shown.retain(|(of, _), _| of != camera);
            self.followed.remove(camera);
            self.not_json.retain(|(of, _)| of != camera);
        }
        self.subscribe(&again);
    }

    /// To all topics; of those in `again`, what is retained is wanted once more.
    fn subscribe(&self, again: &BTreeSet<String>) {
        let topics = self.topics().map(|(.., mqtt)| mqtt.topic.clone());
        let topics: BTreeSet<String> = topics.collect();
        self.publisher
            .listen_to_triggers(topics.into_iter().collect(), again);
    }

    fn topics(&self) -> impl Iterator<Item = (&CameraId, &TriggerId, &MqttTrigger)> {
        let sources = self.set.sources();
        sources.filter_map(|(camera, trigger, source)| match source {
            TriggerSource::Mqtt(mqtt) => Some((camera, trigger, mqtt)),
            TriggerSource::Onvif(_) | TriggerSource::Http => None,
        })
    }

    /// The source of a trigger says something. The caller then [follows](Self::follow).
    pub fn signal(&mut self, call: &TriggerCall, now: Mono) -> Result<(), UnknownTrigger> {
        let TriggerCall {
            camera,
            trigger,
            signal,
        } = call;
        tracing::debug!(%camera, %trigger, ?signal, "trigger");
        self.set.signal(camera, trigger, *signal, now)
    }

    /// A call of the API for a trigger. The caller then [follows](Self::follow).
    pub fn called(&mut self, call: &TriggerCall, now: Mono) -> Result<(), UnknownTrigger> {
        let is_other = self.set.sources().any(|(camera, trigger, source)| {
            camera == &call.camera && trigger == &call.trigger && *source != TriggerSource::Http
        });
        if is_other {
            let TriggerCall {
                camera, trigger, ..
            } = call;
            return Err(UnknownTrigger(format!(
                "trigger {trigger} of camera {camera} has another source; calls need http = true"
            )));
        }
        self.signal(call, now)
    }

    /// A command requests the looks of a camera for a time. The caller then [follows](Self::follow).
    pub fn look(&mut self, camera: &CameraId, lasting: Duration, now: Mono) {
        self.set.request_looks(camera, now.after(lasting));
    }

    /// A command requests one look of a camera. The caller then [follows](Self::follow).
    pub fn look_once(&mut self, camera: &CameraId, now: Mono) {
        self.set.request_one_look(camera, now.after(ONE_LOOK_LIMIT));
    }

    /// A look has news. True at the end of one that a command requested: the caller then [follows](Self::follow).
    pub fn on_look(&mut self, news: &LookNews) -> bool {
        let Some(end) = self.set.on_look(news) else {
            return false;
        };
        if !end.is_answered {
            // The stages get the request again.
            self.followed.remove(&end.camera);
        }
        true
    }

    /// A message on a subscribed topic. True when it is a signal of a trigger: the caller then [follows](Self::follow).
    pub fn on_message(&mut self, message: &Inbound, now: Mono) -> bool {
        let mut calls = Vec::new();
        let mut not_json = Vec::new();
        for (camera, trigger, mqtt) in self.topics().filter(|(.., m)| m.topic == message.topic) {
            let (camera, trigger) = (camera.clone(), trigger.clone());
            match trigger_signal(mqtt, message) {
                Ok(Some(signal)) => calls.push(TriggerCall {
                    camera,
                    trigger,
                    signal,
                }),
                Ok(None) => {}
                Err(error) => not_json.push((camera, trigger, error)),
            }
        }
        for (camera, trigger, error) in not_json {
            let topic = message.topic.as_str();
            if self.not_json.insert((camera.clone(), trigger.clone())) {
                tracing::warn!(%camera, %trigger, topic, %error, "the trigger has a key, and the message is not JSON; ignoring such messages");
            }
        }
        for call in &calls {
            // Known: they are the set's own.
            _ = self.signal(call, now);
        }
        !calls.is_empty()
    }

    /// Publishes what changed, and returns the cameras whose looks begin or end. After each signal, and when [`next`](Self::next) says so.
    pub fn follow(&mut self, now: Mono) -> Vec<LookSwitch> {
        self.followed_at = now;
        let mut switches = Vec::new();
        for (camera, reports) in self.set.reports(now) {
            for report in &reports {
                let key = (camera.clone(), report.id.clone());
                let is_active = report.is_active;
                if self.shown.insert(key, is_active) != Some(is_active) {
                    self.publisher.publish(Update::Trigger {
                        camera: camera.clone(),
                        trigger: report.id.clone(),
                        is_active,
                    });
                }
            }
        }
        for (camera, looks) in self.set.looks(now) {
            if self.followed.insert(camera.clone(), looks) != Some(looks) {
                switches.push(LookSwitch {
                    camera: camera.clone(),
                    looks,
                });
            }
        }
        switches
    }

    /// The cameras with triggers, with all of them.
    pub fn reports(&self, now: Mono) -> Vec<(CameraId, Vec<TriggerReport>)> {
        let reports = self.set.reports(now);
        reports
            .map(|(camera, reports)| (camera.clone(), reports))
            .collect()
    }

    /// Ends the subscriptions at the cameras.
    pub async fn stop(&mut self) {
        self.onvif.stop().await;
    }

    /// One line for each topic that the broker does not let this node read, and for each camera that does not send its events.
    pub fn troubles(&self) -> Vec<String> {
        let rejected = self.publisher.rejected_filters();
        let is_rejected = |mqtt: &MqttTrigger| rejected.contains(&mqtt.topic);
        let topics = self.topics().filter(|(.., mqtt)| is_rejected(mqtt));
        let topics = topics
            .map(|(camera, trigger, mqtt)| {
                let topic = &mqtt.topic;
                format!("camera {camera}: trigger {trigger}: the broker rejected the subscription to {topic}; allow this client to read it")
            });
        topics.chain(self.onvif.troubles()).collect()
    }
}

#[cfg(test)]
mod tests;
