//! Requests over MQTT, each answered once.

use std::{path::Path, time::Duration};

use super::{
    Asker, Daemon,
    reload::{Next, Reloaded},
};
use spotter_core::{CameraId, Command, LogLevel, Outcome, Refusal, RefusalCode, Setting, Wanted};
use spotter_events::control::Known;
use spotter_mqtt as publish;
use spotter_mqtt::{Asked, Heard, Inbound, Reply, Update, Value, discovery::birth_topic};

/// What a request amounts to.
enum Done {
    /// It is settled.
    Now(Value),
    /// Its answer comes later.
    Later,
    /// It is settled, and another configuration is to be put in force.
    GoOnWith(Box<Next>),
}

impl Daemon {
    /// A message came from the broker. Returns a configuration to go on with.
    pub(super) async fn on_inbound(&mut self, message: Inbound, path: &Path) -> Option<Box<Next>> {
        let ha_status = birth_topic(&self.file.mqtt.ha);
        match publish::heard(&self.publisher.topics(), ha_status.as_deref(), &message) {
            Heard::Request(asked) => self.on_request(*asked, path).await,
            Heard::Old => {
                self.publisher.ignore_retained();
                let topic = &message.topic;
                if let Some(untold) = self.old_requests.tell(topic.clone(), self.clock.now()) {
                    let untold = (untold > 0).then_some(untold);
                    tracing::warn!(
                        topic,
                        untold,
                        "a retained command is not acted on; clear it on the broker"
                    );
                }
                None
            }
            Heard::HomeAssistant => {
                tracing::info!("Home Assistant has started; it is told everything again");
                self.announcer.home_assistant_started(self.clock.now());
                None
            }
            Heard::Other => None,
        }
    }

    /// Looks ended: questions may be settled by them.
    pub(super) fn on_outcomes(&mut self, outcomes: Vec<Outcome>) {
        for outcome in outcomes {
            for (asker, result) in self.asks.outcome(&outcome) {
                self.reply(asker, result);
            }
            self.answers.outcome(outcome);
        }
    }

    /// Once a second: what time alone changes.
    pub(super) async fn on_time(&mut self) {
        let now = self.clock.now();
        for (asker, result) in self.asks.tick(now) {
            self.reply(asker, result);
        }
        if self.force.tick(now) {
            self.apply().await;
        }
        if self.log_until.take_if(|until| *until <= now).is_some() {
            self.around.logging.levels.show(None);
            tracing::info!("the log is as usual again");
        }
    }

    async fn on_request(&mut self, asked: Asked, path: &Path) -> Option<Box<Next>> {
        let asker = Asker {
            head: asked.head,
            to: asked.reply_to,
        };
        if let Some(id) = &asker.head.id {
            match self.repeated.ask(id, self.clock.now()) {
                Known::New => {}
                Known::UnderWay => return None,
                Known::Answered(reply) => {
                    self.send(&reply, asker.to);
                    return None;
                }
            }
        }
        let (op, camera) = (&asker.head.op, asker.head.camera.as_deref());
        match &asked.command {
            Ok(_) => tracing::info!(op, camera, field = asker.head.field, "command"),
            Err(refusal) => tracing::debug!(op, camera, %refusal, "no command"),
        }
        let set = match &asked.command {
            Ok(Command::Set { camera, setting }) => Some((camera.clone(), setting.clone())),
            _ => None,
        };
        let done = match asked.command {
            Ok(command) => self.execute(command, &asker, path).await,
            Err(refusal) => Err(refusal),
        };
        if let Some((camera, setting)) = set {
            self.tell_setting(&camera, &setting);
        }
        match done {
            Ok(Done::Later) => None,
            Ok(Done::Now(value)) => {
                self.reply(asker, Ok(value));
                None
            }
            // Answered first: who asked may be at a broker that is left for another.
            Ok(Done::GoOnWith(next)) => {
                self.reply(asker, Ok(Value::Done));
                Some(next)
            }
            Err(refusal) => {
                self.reply(asker, Err(refusal));
                None
            }
        }
    }

    async fn execute(
        &mut self,
        command: Command,
        asker: &Asker,
        path: &Path,
    ) -> Result<Done, Refusal> {
        match &command {
            Command::Set { .. }
            | Command::Look { .. }
            | Command::AddPrompt { .. }
            | Command::RemovePrompt { .. }
            | Command::ResetOverrides { .. } => self.change(&command).await.map(Done::Now),
            Command::Reload if self.swap.is_some() => {
                let text = "another configuration is being put in force; ask again when `config` has told of it";
                Err(Refusal::new(RefusalCode::Conflict, text))
            }
            Command::Reload => match self.reload(path).await {
                Reloaded::Unchanged => Ok(Done::Now(Value::Done)),
                Reloaded::Good(next) => Ok(Done::GoOnWith(next)),
                Reloaded::Refused(errors) => {
                    Err(Refusal::new(RefusalCode::Failed, errors.join("; ")))
                }
            },
            Command::Reconnect { camera } => {
                self.watched(camera)?;
                self.cameras.reconnect(camera).await;
                Ok(Done::Now(Value::Done))
            }
            Command::Ask { camera, question } => self.ask(camera, question, asker),
            Command::Snapshot { camera } => {
                self.watched(camera)?;
                self.has_model()?;
                self.answers.snapshot_next(camera);
                self.hurry(camera);
                Ok(Done::Now(Value::Done))
            }
            Command::Get { what } => Ok(Done::Now(match what {
                Wanted::Info => Value::Info(Box::new(self.info.clone())),
                Wanted::Settings => Value::Settings(self.force.settings()),
                Wanted::Overrides => Value::Overrides(self.force.differences()),
            })),
            Command::LogLevel { level, lasting } => self.log(*level, *lasting).map(Done::Now),
        }
    }

    /// A command that changes what is in force.
    async fn change(&mut self, command: &Command) -> Result<Value, Refusal> {
        self.force.command(command, self.clock.now())?;
        self.apply().await;
        Ok(match command {
            Command::Look { camera, .. } => {
                self.hurry(camera);
                Value::Done
            }
            Command::Set {
                camera,
                setting: Setting::Text(id, _),
            } => {
                let mut prompts = self.force.camera(camera)?.prompts.iter();
                let prompt = prompts.find(|prompt| prompt.id == *id);
                prompt.map_or(Value::Done, |prompt| Value::Revision(prompt.revision))
            }
            _ => Value::Done,
        })
    }

    fn ask(&mut self, camera: &CameraId, question: &str, asker: &Asker) -> Result<Done, Refusal> {
        self.watched(camera)?;
        self.has_model()?;
        let question = spotter_core::config::prompt_text(question)
            .map_err(|why| Refusal::new(RefusalCode::BadValue, format!("text: {why}")))?;
        let now = self.clock.now();
        let prompt = self.asks.ask(camera, question, asker.clone(), now)?;
        self.engines.sampler().ask_once(camera, prompt);
        Ok(Done::Later)
    }

    /// Shows more or less in the log for a while.
    fn log(&mut self, level: LogLevel, lasting: Duration) -> Result<Value, Refusal> {
        if !self.around.logging.levels.show(Some(level)) {
            let text = "the log's level cannot be changed";
            return Err(Refusal::new(RefusalCode::Failed, text));
        }
        let minutes = lasting.as_secs_f64() / 60.0;
        tracing::info!(?level, minutes, "the log shows another level for a while");
        self.log_until = Some(self.clock.now().after(lasting));
        Ok(Value::Done)
    }

    /// The camera is there and is to deliver to somebody.
    pub(super) fn watched(&self, camera: &CameraId) -> Result<(), Refusal> {
        let unavailable = |text| Err(Refusal::new(RefusalCode::Unavailable, text));
        if !self.force.camera(camera)?.enabled {
            return unavailable(format!("camera {camera} is switched off; enable it first"));
        }
        match self.cameras.engine_lost(camera) {
            Some(why) => unavailable(format!(
                "camera {camera} is off: {why}; it is opened again by itself"
            )),
            None => Ok(()),
        }
    }

    /// The next frame of the camera is looked at.
    fn hurry(&self, camera: &CameraId) {
        self.engines.sampler().hurry(camera);
    }

    /// The value as it is now, also when it is what it was: who asked for another shows it again.
    fn tell_setting(&self, camera: &CameraId, like: &Setting) {
        let settings = self.force.settings();
        let of = settings.into_iter().find(|(id, _)| id == camera);
        let mut settings = of.into_iter().flat_map(|(_, settings)| settings);
        if let Some(setting) = settings.find(|setting| setting.is_same_key(like)) {
            self.publisher.publish(Update::Setting {
                camera: camera.clone(),
                setting,
                again: true,
            });
        }
    }

    pub(super) fn reply(&mut self, asker: Asker, result: Result<Value, Refusal>) {
        let Asker { head, to } = asker;
        let id = head.id.clone();
        let at = self.clock.wall();
        let reply = Reply { head, result, at };
        self.send(&reply, to);
        if let Some(id) = id {
            self.repeated.answer(&id, reply);
        }
    }

    fn send(&self, reply: &Reply, to: Option<publish::ReplyTo>) {
        let payload = reply.to_json();
        self.publisher.publish(Update::Reply { to, payload });
    }
}
