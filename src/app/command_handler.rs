//! Commands over MQTT: each is executed once and answered once.
//!
//! ```text
//!   Inbound ──parse──▶ command ─┬─ settled here ──────────────────▶ reply
//!                               ├─ changes cameras ──▶ Daemon applies them ──▶ reply
//!                               ├─ reload ──▶ Daemon reads the file ──▶ reply, then the change
//!                               └─ ask ──▶ PendingQuestions ──look──▶ reply
//! ```
//!
//! Belongs here: the state of commands. Does not belong here: what a message means (`spotter_mqtt`), which change is allowed
//! (`spotter_events`), and the change itself (`Daemon`).

use std::{sync::Arc, time::Duration};

use super::{
    Logging,
    answer_router::AnswerRouter,
    camera_supervisor::CameraSupervisor,
    config_store::ConfigStore,
    engine_supervisor::EngineSupervisor,
    node_reporter::NodeReporter,
    pending_questions::{PendingQuestions, SettledQuestion},
    triggers::Triggers,
};
use spotter_config::CameraConfig;
use spotter_control::{
    Command, LogLevel, Refusal, RefusalCode, RequestHistory, RequestStatus, RequestedInfo,
};
use spotter_core::{CameraId, Clock, LineId, LogThrottle, LookNews, Mono, PromptText, Setting};
use spotter_mqtt as publish;
use spotter_mqtt::{
    CommandRequest, Inbound, InboundKind, Publisher, Reply, ReplyTo, ReplyValue, RequestScope,
    Update, discovery::birth_topic,
};

/// Bound of the topics whose retained commands, and of the response topics, that are logged per minute.
const LOGGED_TOPICS_MAX: usize = 64;

/// The state of commands that are being executed or were executed in the last minutes.
pub struct CommandHandler {
    publisher: Publisher,
    clock: Arc<dyn Clock>,
    logging: Logging,
    questions: PendingQuestions<Requester>,
    /// Requests of the last minutes: a repeated request gets the first reply.
    recent: RequestHistory<RequestKey, Reply>,
    retained_topics: LogThrottle<String>,
    refused_reply_topics: LogThrottle<String>,
    /// The usual log level is restored then.
    log_level_until: Option<Mono>,
}

/// The sender of a command, and where it expects the reply.
#[derive(Clone, Debug)]
pub struct Requester {
    head: publish::RequestHead,
    to: Option<ReplyTo>,
}

/// A request that has an id. Two clients may choose the same one.
#[derive(Clone, Debug, PartialEq)]
struct RequestKey {
    reply_topic: Option<String>,
    id: String,
    op: String,
}

impl RequestKey {
    fn of(requester: &Requester) -> Option<Self> {
        Some(Self {
            reply_topic: requester.to.as_ref().map(|to| to.topic.clone()),
            id: requester.head.id.clone()?,
            op: requester.head.op.clone(),
        })
    }
}

/// The stages that a command reads and changes.
pub struct CommandContext<'a> {
    pub config: &'a mut ConfigStore,
    pub cameras: &'a CameraSupervisor,
    pub engines: &'a EngineSupervisor,
    pub triggers: &'a mut Triggers,
    pub answers: &'a mut AnswerRouter,
    pub reporter: &'a NodeReporter,
}

/// What the daemon has to do for a message.
pub enum CommandEffect {
    Nothing,
    /// Follow the triggers: a look of a camera is requested.
    LookRequested,
    HomeAssistantStarted,
    /// Apply the effective cameras to all stages, then [`CommandHandler::applied`].
    CamerasChanged(ChangingCommand),
    /// Reload the file and [`CommandHandler::reply`].
    Reload(Requester),
}

/// The reply to a command whose change is applied and not yet stored.
pub struct UnsentReply {
    requester: Requester,
    value: ReplyValue,
}

/// A command that changed the effective cameras and has no reply yet.
pub struct ChangingCommand {
    requester: Requester,
    command: Command,
}

impl CommandContext<'_> {
    /// Refuses a command to a camera that is switched off.
    pub fn require_active(&self, camera: &CameraId) -> Result<(), Refusal> {
        match self.config.camera(camera)?.enabled {
            true => Ok(()),
            false => Err(Refusal::new(
                RefusalCode::Unavailable,
                format!("camera {camera} is switched off; enable it first"),
            )),
        }
    }
}

impl CommandHandler {
    pub fn new(publisher: Publisher, clock: Arc<dyn Clock>, logging: Logging) -> Self {
        Self {
            publisher,
            clock,
            logging,
            questions: PendingQuestions::default(),
            recent: RequestHistory::default(),
            retained_topics: LogThrottle::with_max_kinds(LOGGED_TOPICS_MAX),
            refused_reply_topics: LogThrottle::with_max_kinds(LOGGED_TOPICS_MAX),
            log_level_until: None,
        }
    }

    /// Executes a message from the broker as far as no other stage has to change.
    pub async fn receive(
        &mut self,
        message: &Inbound,
        context: CommandContext<'_>,
    ) -> CommandEffect {
        let ha_status = birth_topic(&context.config.file().mqtt.ha);
        match publish::parse_inbound(&self.publisher.topics(), ha_status.as_deref(), message) {
            InboundKind::Request(asked) if !is_for_this_node(&asked, &context) => {
                CommandEffect::Nothing
            }
            InboundKind::Request(asked) => self.execute(*asked, context).await,
            InboundKind::Old => {
                self.ignore_retained(&message.topic);
                CommandEffect::Nothing
            }
            InboundKind::HomeAssistant => CommandEffect::HomeAssistantStarted,
            InboundKind::Other => CommandEffect::Nothing,
        }
    }

    fn ignore_retained(&mut self, topic: &str) {
        self.publisher.ignore_retained();
        let suppressed = self
            .retained_topics
            .admit(topic.to_owned(), self.clock.now());
        if let Some(suppressed) = suppressed {
            let suppressed = (suppressed > 0).then_some(suppressed);
            tracing::warn!(
                topic,
                suppressed,
                "retained command ignored; clear the topic on the broker"
            );
        }
    }

    fn note_refused_topic(&mut self, topic: String) {
        let now = self.clock.now();
        if let Some(suppressed) = self.refused_reply_topics.admit(topic.clone(), now) {
            let suppressed = (suppressed > 0).then_some(suppressed);
            tracing::warn!(
                topic,
                suppressed,
                "response topic refused; the reply goes to the topic reply; allow the topic in mqtt.reply_topics"
            );
        }
    }

    async fn execute(
        &mut self,
        asked: CommandRequest,
        context: CommandContext<'_>,
    ) -> CommandEffect {
        let Some((requester, command)) = self.accept(asked, &context) else {
            return CommandEffect::Nothing;
        };
        let result = match &command {
            Command::SetMode { .. }
            | Command::Set { .. }
            | Command::Look { .. }
            | Command::AddPrompt { .. }
            | Command::RemovePrompt { .. }
            | Command::ResetOverrides { .. } => {
                return match self.change_cameras(&requester.head, &command, context) {
                    Ok(()) => CommandEffect::CamerasChanged(ChangingCommand { requester, command }),
                    Err(refusal) => {
                        self.reply(requester, Err(refusal));
                        CommandEffect::Nothing
                    }
                };
            }
            Command::Reload {} => return CommandEffect::Reload(requester),
            Command::Ask { camera, question } => {
                match self.ask(camera, question, &requester, &context) {
                    // Its answer is the reply.
                    Ok(()) => return CommandEffect::Nothing,
                    Err(refusal) => Err(refusal),
                }
            }
            Command::Snapshot { camera } => {
                let active = context.require_active(camera);
                if active.is_ok() {
                    context.answers.snapshot_next(camera);
                    context.engines.sampler().make_due(camera);
                    context.triggers.look_once(camera, self.clock.now());
                }
                self.reply(requester, active.map(|()| ReplyValue::Done));
                return CommandEffect::LookRequested;
            }
            Command::Reconnect { camera } => match context.require_active(camera) {
                Ok(()) => {
                    context.cameras.reconnect(camera).await;
                    Ok(ReplyValue::Done)
                }
                Err(refusal) => Err(refusal),
            },
            Command::ResetLine { camera, line } => {
                let known = context.config.camera(camera);
                let known = known.and_then(|camera| require_line(camera, line));
                known.map(|()| {
                    context.answers.reset_line(camera, line);
                    ReplyValue::Done
                })
            }
            Command::Get { what } => Ok(match what {
                RequestedInfo::Info => ReplyValue::Info(Box::new(context.reporter.info().clone())),
                RequestedInfo::Settings => ReplyValue::Settings(context.config.settings()),
                RequestedInfo::Overrides => ReplyValue::Overrides(context.config.differences()),
            }),
            Command::LogLevel { level, lasting } => self.set_log_level(*level, *lasting),
        };
        self.reply(requester, result);
        CommandEffect::Nothing
    }

    /// A command that is to be executed. `None`: it has its reply, or will have it.
    fn accept(
        &mut self,
        asked: CommandRequest,
        context: &CommandContext<'_>,
    ) -> Option<(Requester, Command)> {
        let requester = Requester {
            head: asked.head,
            to: asked.reply_to,
        };
        if let Some(topic) = asked.refused_reply_topic {
            self.note_refused_topic(topic);
        }
        if let Some(key) = RequestKey::of(&requester) {
            match self.recent.register(key, self.clock.now()) {
                RequestStatus::New => {}
                RequestStatus::Running => return None,
                RequestStatus::Answered(reply) => {
                    self.send(&reply, requester.to);
                    return None;
                }
            }
        }
        let (op, camera) = (&requester.head.op, requester.head.camera.as_deref());
        match asked.command {
            Ok(command) => {
                tracing::info!(op, camera, field = requester.head.field, "command");
                Some((requester, command))
            }
            Err(refusal) => {
                tracing::debug!(op, camera, %refusal, "command refused");
                if refusal.code == RefusalCode::UnknownMode {
                    context.reporter.confirm_mode(context.config);
                }
                context
                    .reporter
                    .confirm_setting(context.config, &requester.head);
                self.reply(requester, Err(refusal));
                None
            }
        }
    }

    /// Changes the effective cameras. When it is refused, the value that remains is published again for entities of Home Assistant.
    fn change_cameras(
        &self,
        head: &publish::RequestHead,
        command: &Command,
        context: CommandContext<'_>,
    ) -> Result<(), Refusal> {
        let CommandContext {
            config, reporter, ..
        } = context;
        let now = self.clock.now();
        let changed = match command {
            Command::SetMode { mode } => config.switch_mode(mode.as_ref(), now, self.clock.wall()),
            other => config.execute(other, now),
        };
        if changed.is_err() {
            match command {
                Command::SetMode { .. } => reporter.confirm_mode(config),
                Command::Set { .. } => reporter.confirm_setting(config, head),
                _ => {}
            }
        }
        changed
    }

    /// Completes a command whose change is applied to all stages, but for its reply.
    pub fn applied(&self, change: ChangingCommand, context: CommandContext<'_>) -> UnsentReply {
        let ChangingCommand { requester, command } = change;
        let mut value = ReplyValue::Done;
        match &command {
            // Now that the sampler has the rate.
            Command::Look {
                camera, lasting, ..
            } => {
                context.engines.sampler().make_due(camera);
                context.triggers.look(camera, *lasting, self.clock.now());
            }
            Command::Set { camera, setting } => {
                if let (Setting::Text(id, _), Ok(camera)) = (setting, context.config.camera(camera))
                {
                    let mut prompts = camera.prompts.iter();
                    let prompt = prompts.find(|prompt| prompt.id == *id);
                    value = prompt.map_or(value, |prompt| ReplyValue::Revision(prompt.revision));
                }
                let reporter = context.reporter;
                reporter.confirm_setting(context.config, &requester.head);
            }
            Command::SetMode { .. } => context.reporter.confirm_mode(context.config),
            _ => {}
        }
        UnsentReply { requester, value }
    }

    /// Replies to a command whose change is stored.
    pub fn confirm(&mut self, reply: UnsentReply) {
        self.reply(reply.requester, Ok(reply.value));
    }

    fn ask(
        &mut self,
        camera: &CameraId,
        question: &PromptText,
        requester: &Requester,
        context: &CommandContext<'_>,
    ) -> Result<(), Refusal> {
        context.require_active(camera)?;
        let now = self.clock.now();
        let prompt =
            self.questions
                .ask(camera, question.as_str().to_owned(), requester.clone(), now)?;
        context.engines.sampler().ask_once(camera, prompt);
        Ok(())
    }

    fn set_log_level(&mut self, level: LogLevel, lasting: Duration) -> Result<ReplyValue, Refusal> {
        if !self.logging.levels.show(Some(level)) {
            let text = "this process cannot change its log level";
            return Err(Refusal::new(RefusalCode::Failed, text));
        }
        let minutes = lasting.as_secs_f64() / 60.0;
        tracing::info!(?level, minutes, "log level changed for a limited time");
        self.log_level_until = Some(self.clock.now().after(lasting));
        Ok(ReplyValue::Done)
    }

    /// Replies to the questions that news of a look settle.
    pub fn on_look(&mut self, news: &LookNews) {
        let settled = self.questions.look(news);
        self.reply_all(settled);
    }

    /// Refuses the questions to cameras whose engine is lost: their looks may be lost with it.
    pub fn engine_lost(&mut self, cameras: &[CameraId], reason: &str) {
        let refused = self.questions.refuse(cameras, reason);
        self.reply_all(refused);
    }

    /// Refuses questions that waited too long, and restores the log level. Once a second.
    pub fn tick(&mut self, now: Mono) {
        let refused = self.questions.tick(now);
        self.reply_all(refused);
        if self
            .log_level_until
            .take_if(|until| *until <= now)
            .is_some()
        {
            self.logging.levels.show(None);
            tracing::info!("log level restored");
        }
    }

    fn reply_all(&mut self, settled: Vec<SettledQuestion<Requester>>) {
        for (requester, result) in settled {
            self.reply(requester, result);
        }
    }

    pub fn reply(&mut self, requester: Requester, result: Result<ReplyValue, Refusal>) {
        let key = RequestKey::of(&requester);
        let Requester { head, to } = requester;
        let at = self.clock.wall();
        let reply = Reply { head, result, at };
        self.send(&reply, to);
        if let Some(key) = key {
            self.recent.answer(&key, reply);
        }
    }

    fn send(&self, reply: &Reply, to: Option<ReplyTo>) {
        let payload = reply.to_json();
        self.publisher.publish(Update::Reply { to, payload });
    }
}

/// Refuses a command to a line that the camera does not have.
fn require_line(camera: &CameraConfig, line: &LineId) -> Result<(), Refusal> {
    let has_line = camera.lines.iter().any(|known| known.id == *line);
    has_line.then_some(()).ok_or_else(|| {
        let text = format!("camera {} has no line {line}", camera.id);
        Refusal::new(RefusalCode::UnknownLine, text)
    })
}

/// A request to the whole fleet is for the node that has the camera; the others are silent.
fn is_for_this_node(asked: &CommandRequest, context: &CommandContext<'_>) -> bool {
    asked.scope == RequestScope::Node
        || asked.head.camera.as_deref().is_some_and(|camera| {
            let mut own = context.config.cameras().iter();
            own.any(|known| known.id.as_str() == camera)
        })
}

#[cfg(test)]
mod tests;
