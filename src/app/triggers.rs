//! The triggers of the cameras: what their sources say, and what follows of it.
//!
//! ```text
//!   broker: topics of other programs ──▶ on_message ─┐
//!   the camera's ONVIF events ───────▶ Signalled ────┼─▶ TriggerSet ──▶ follow ──▶ sampler, CameraSupervisor, tracker
//!   calls of the local API ──────────▶ called ───────┤   (pure)    └──▶ topic `trigger`, page, metrics
//!   commands `look` and `snapshot` ──▶ look, look_once ─┘
//! ```
//!
//! Every source says the same: [`TriggerSignal`]. Belongs here: subscribing to the topics, publishing which triggers are active. Does not
//! belong here: when a trigger is active (`spotter_events::triggers`), what a payload means (`spotter_mqtt`), and what a camera without
//! an active trigger does not do (the stages that hear [`StageNotice::LookSwitched`]).

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    time::Duration,
};

use tokio::time::sleep;

use super::{
    notice::{StageNotice, TriggerCall},
    stage::{Handles, Stage, StageContext, StageFuture},
};
use spotter_api::RefusedCall;
use spotter_config::{CameraChange, CameraConfig, ConfigChange, MqttTrigger, TriggerSource};
use spotter_core::{CameraId, LookNews, Mono, TriggerId, TriggeredLooks};
use spotter_events::triggers::{TriggerSet, UnknownTrigger};
use spotter_mqtt::{Inbound, Update, trigger_signal};
use spotter_page::{Trouble, TroubleKind};

/// A look of a camera without frames is not requested longer than that.
const ONE_LOOK_LIMIT: Duration = Duration::from_secs(30);

/// The triggers of all cameras that this node watches.
pub struct Triggers {
    set: TriggerSet,
    handles: Handles,
    /// As published.
    shown: BTreeMap<(CameraId, TriggerId), bool>,
    /// Of the cameras with triggers, as the stages know it.
    followed: BTreeMap<CameraId, TriggeredLooks>,
    followed_at: Mono,
    /// Triggers whose payloads are not JSON: logged once.
    not_json: BTreeSet<(CameraId, TriggerId)>,
}

impl Triggers {
    /// Subscribes to the topics. Nothing is active yet, and nothing is published before [`follow`](Self::follow).
    pub fn start(cameras: &[CameraConfig], handles: Handles) -> Self {
        let triggers = Self {
            set: TriggerSet::new(cameras),
            handles,
            shown: BTreeMap::new(),
            followed: BTreeMap::new(),
            followed_at: Mono::default(),
            not_json: BTreeSet::new(),
        };
        triggers.subscribe(&BTreeSet::new());
        triggers
    }

    /// Waits until a trigger or requested looks end. Dropping the future loses nothing.
    async fn next_end(&self, now: Mono) {
        // The loop may have been busy at an end, which is then past.
        match self.set.next_end(self.followed_at) {
            Some(end) => sleep(end.since(now)).await,
            None => pending().await,
        }
    }

    /// Other cameras, or other triggers of them: [`follow`](Self::follow) then returns and publishes all of those.
    fn change(&mut self, change: &ConfigChange) {
        let unheard = self.set.apply(change).into_iter();
        // The broker may have sent what is retained there for another camera, or for this one before it was elsewhere.
        let again = unheard.filter_map(|source| match source {
            TriggerSource::Mqtt(mqtt) => mqtt.off.and(Some(mqtt.topic)),
            TriggerSource::Onvif(_) | TriggerSource::Http => None,
        });
        let again = again.collect();
        // Settings leave triggers as they are, and a look that is under way is not begun again.
        let others = change.cameras();
        for (camera, _) in others.filter(|(_, change)| !matches!(change, CameraChange::Settings(_)))
        {
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
        self.handles
            .publisher
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
    fn signal(&mut self, call: &TriggerCall, now: Mono) -> Result<(), UnknownTrigger> {
        tracing::debug!(camera = %call.camera, trigger = %call.trigger, signal = ?call.signal, "trigger");
        self.set
            .signal(&call.camera, &call.trigger, call.signal, now)
    }

    /// A call of the API for a trigger. The caller then [follows](Self::follow).
    fn called(&mut self, call: &TriggerCall, now: Mono) -> Result<(), UnknownTrigger> {
        let is_other = self.set.sources().any(|(camera, trigger, source)| {
            camera == &call.camera && trigger == &call.trigger && *source != TriggerSource::Http
        });
        if is_other {
            return Err(UnknownTrigger(format!(
                "trigger {} of camera {} has another source; calls need http = true",
                call.trigger, call.camera
            )));
        }
        self.signal(call, now)
    }

    /// A look has news. True at the end of one that a command requested: the caller then [follows](Self::follow).
    fn on_look(&mut self, news: &LookNews) -> bool {
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
    fn on_message(&mut self, message: &Inbound, now: Mono) -> bool {
        let topic = message.topic.as_str();
        let its = self.topics().filter(|(.., mqtt)| mqtt.topic == topic);
        let its = its.map(|(camera, trigger, mqtt)| {
            let signal = trigger_signal(mqtt, message);
            (camera.clone(), trigger.clone(), signal)
        });
        let mut is_signal = false;
        for (camera, trigger, signal) in Vec::from_iter(its) {
            match signal {
                Ok(None) => {}
                Ok(Some(signal)) => {
                    is_signal = true;
                    let call = TriggerCall {
                        camera,
                        trigger,
                        signal,
                    };
                    // Known: it is the set's own.
                    _ = self.signal(&call, now);
                }
                Err(error) if self.not_json.insert((camera.clone(), trigger.clone())) => {
                    tracing::warn!(%camera, %trigger, topic, %error, "the trigger has a key, and the message is not JSON; ignoring such messages");
                }
                Err(_) => {}
            }
        }
        is_signal
    }

    /// Publishes what changed. The sampler and the other stages get which looks begin or end.
    fn follow(&mut self, now: Mono) -> Vec<StageNotice> {
        self.followed_at = now;
        let mut switches = Vec::new();
        for (camera, reports) in self.set.reports(now) {
            for report in &reports {
                let key = (camera.clone(), report.id.clone());
                let is_active = report.is_active;
                if self.shown.insert(key, is_active) != Some(is_active) {
                    self.handles.publisher.publish(Update::Trigger {
                        camera: camera.clone(),
                        trigger: report.id.clone(),
                        is_active,
                    });
                }
            }
        }
        for (camera, looks) in self.set.looks(now) {
            if self.followed.insert(camera.clone(), looks) != Some(looks) {
                self.handles.sampler.trigger(camera, looks);
                switches.push(StageNotice::LookSwitched(camera.clone(), looks));
            }
        }
        switches
    }

    /// One line for each topic that the broker does not let this node read.
    fn troubles(&self) -> Vec<Trouble> {
        let rejected = self.handles.publisher.rejected_filters();
        let is_rejected = |mqtt: &MqttTrigger| rejected.contains(&mqtt.topic);
        let topics = self.topics().filter(|(.., mqtt)| is_rejected(mqtt));
        let topics = topics
            .map(|(camera, trigger, mqtt)| {
                let topic = &mqtt.topic;
                let text = format!("camera {camera}: trigger {trigger}: the broker rejected the subscription to {topic}; allow this client to read it");
                Trouble::new(TroubleKind::TriggerRejected, text)
            });
        topics.collect()
    }
}

impl Stage for Triggers {
    fn next(&mut self) -> StageFuture<'_, Vec<StageNotice>> {
        Box::pin(async {
            self.next_end(self.handles.clock.now()).await;
            self.follow(self.handles.clock.now())
        })
    }

    fn hear(&mut self, notice: &mut StageNotice, context: &mut StageContext<'_>) {
        let now = context.now;
        let is_news = match notice {
            // That none is active yet.
            StageNotice::Started => true,
            StageNotice::Looks(news) => {
                let ended = news.iter().filter(|news| self.on_look(news)).count();
                ended > 0
            }
            StageNotice::Received(message) => self.on_message(message, now),
            // The trigger may have been removed meanwhile.
            StageNotice::Signalled(call) => self.signal(call, now).is_ok(),
            StageNotice::LooksAsked(camera, lasting) => {
                self.set.request_looks(camera, now.after(*lasting));
                true
            }
            StageNotice::SnapshotAsked(camera) => {
                self.set.request_one_look(camera, now.after(ONE_LOOK_LIMIT));
                true
            }
            StageNotice::TriggerCalled(request) => request.take().is_some_and(|request| {
                let call = TriggerCall {
                    camera: request.camera,
                    trigger: request.trigger,
                    signal: request.signal,
                };
                let result = self.called(&call, now).map_err(RefusedCall::from);
                let is_signal = result.is_ok();
                // The client may have disconnected.
                _ = request.reply.send(result);
                is_signal
            }),
            _ => false,
        };
        if is_news {
            context.say_all(self.follow(now));
        }
    }

    /// After the topics of the triggers are known to be in use.
    fn apply(&mut self, change: &ConfigChange, context: &mut StageContext<'_>) {
        self.change(change);
        context.say_all(self.follow(context.now));
    }

    fn tick(&mut self, context: &mut StageContext<'_>) {
        for (id, reports) in self.set.reports(context.now) {
            let mut cameras = context.status.cameras.iter_mut();
            if let Some(camera) = cameras.find(|camera| camera.id == id.as_str()) {
                camera.triggers = reports;
            }
        }
        context.status.troubles.extend(self.troubles());
    }
}

#[cfg(test)]
mod tests;
