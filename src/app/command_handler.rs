//! Commands over MQTT and of the page: each is executed once and answered once.
//!
//! ```text
//!   Inbound, PageCommand ──parse──▶ command ─┬─ settled here, or by the stage that hears of it ──▶ reply
//!                               ├─ changes cameras ──▶ all stages apply the change ──stored──▶ reply
//!                               ├─ reload ──▶ the file is read ──▶ reply, then the change
//!                               ├─ mark ──▶ History ──stored──▶ reply
//!                               └─ ask ──▶ PendingQuestions ──look──▶ reply
//! ```
//!
//! Belongs here: the state of commands. Does not belong here: what a message means (`spotter_mqtt`), which change is allowed
//! (`spotter_control`), and the change itself (every stage).

use std::{collections::VecDeque, future::pending, time::Duration};

use tokio::time::{Instant, timeout_at};

use super::{
    command_sender::{CommandSender, page_reply},
    config_store::store_overrides,
    logging::Logging,
    node_reporter::NodeReporter,
    notice::{FoundFile, ReadFile, StageNotice},
    pending_marks::PendingMarks,
    pending_questions::{PendingQuestions, SettledQuestion},
    request_history::{RequestHistory, RequestStatus},
    shapes::{has_other_aspect, shapes_answer},
    stage::{Handles, Stage, StageContext, StageFuture},
    status,
};
use spotter_config::{CameraConfig, ConfigChange, question_of_keys};
use spotter_control::{
    ChangeResult, Command, ConfigStore, LogLevel, Refusal, RefusalCode, RequestedInfo,
};
use spotter_core::{CameraId, LineId, LogThrottle, MarkOrder, Mono};
use spotter_history::History;
use spotter_mqtt as publish;
use spotter_mqtt::{
    CommandRequest, Inbound, InboundKind, Reply, ReplyValue, RequestHead, RequestScope,
    discovery::birth_topic,
};
use spotter_page::{PageQuestion, PageRequest, Status, Trouble, TroubleKind};
use spotter_state::PendingWrite;

/// Topics that are logged per minute at most.
const LOGGED_TOPICS_MAX: usize = 64;
/// A disk that does not answer delays a reply for this time at most; the change is in force all the same.
const REPLY_WITHIN: Duration = Duration::from_secs(5);

/// The state of commands that are being executed or were executed in the last minutes.
pub struct CommandHandler {
    handles: Handles,
    reporter: NodeReporter,
    logging: Logging,
    questions: PendingQuestions<CommandSender>,
    /// Replies to commands whose change is on its way to the disk, in the order of the commands. All stages apply it before the next reply.
    unsent: VecDeque<UnsentReply>,
    /// Marks of events on their way to the disk.
    marks: PendingMarks,
    /// Looked at at once, when the sampler has the new rate.
    due: Vec<CameraId>,
    /// Requests of the last minutes: a repeated request gets the first reply.
    recent: RequestHistory,
    /// Topics of retained commands, and refused response topics.
    logged_topics: LogThrottle<String>,
    /// The usual log level is restored then.
    log_level_until: Option<Mono>,
}

struct UnsentReply {
    sender: CommandSender,
    value: ReplyValue,
    write: PendingWrite,
    /// Stored pictures may show what the command masks.
    can_mask: bool,
    deadline: Instant,
}

impl CommandHandler {
    pub fn new(reporter: NodeReporter, logging: Logging, handles: Handles) -> Self {
        Self {
            handles,
            reporter,
            logging,
            questions: PendingQuestions::default(),
            unsent: VecDeque::new(),
            marks: PendingMarks::default(),
            due: Vec::new(),
            recent: RequestHistory::default(),
            logged_topics: LogThrottle::with_max_kinds(LOGGED_TOPICS_MAX),
            log_level_until: None,
        }
    }

    /// A message from the broker.
    fn receive(&mut self, message: &Inbound, context: &mut StageContext<'_>) {
        let ha_status = birth_topic(&context.config.file().mqtt.ha);
        let topics = self.handles.publisher.topics();
        match publish::parse_inbound(&topics, ha_status.as_deref(), message) {
            InboundKind::Request(asked) if is_for_this_node(&asked, context.config) => {
                self.receive_request(*asked, context);
            }
            InboundKind::Old => {
                self.handles.publisher.ignore_retained();
                let text = "retained command ignored; clear the topic on the broker";
                self.warn_of_topic(&message.topic, text);
            }
            InboundKind::HomeAssistant => self.reporter.home_assistant_started(),
            InboundKind::Request(_) | InboundKind::Other => {}
        }
    }

    fn warn_of_topic(&mut self, topic: &str, text: &'static str) {
        let now = self.handles.clock.now();
        if let Some(suppressed) = self.logged_topics.admit(topic.to_owned(), now) {
            tracing::warn!(topic, suppressed, "{text}");
        }
    }

    fn receive_request(&mut self, asked: CommandRequest, context: &mut StageContext<'_>) {
        let requester = asked.requester;
        if let Some(topic) = asked.refused_reply_topic {
            let text = "response topic refused; the reply goes to the topic reply; allow the topic in mqtt.reply_topics";
            self.warn_of_topic(&topic, text);
        }
        let status = self.recent.register(&requester, context.now);
        let sender = CommandSender::Broker(requester);
        match status {
            RequestStatus::New => self.execute(asked.command, sender, context),
            RequestStatus::Running => {}
            RequestStatus::Answered(reply) => sender.send(&reply, &self.handles.publisher),
        }
    }

    /// A client of the page, unless it has given up.
    fn receive_of_page(&mut self, request: PageRequest, context: &mut StageContext<'_>) {
        let PageRequest { asked, reply } = request;
        if reply.is_closed() {
            return;
        }
        match asked {
            PageQuestion::Command(request) => {
                let mut head = RequestHead::default();
                let command = publish::parse_page_request(request, &mut head);
                self.execute(command, CommandSender::Page { head, reply }, context);
            }
            PageQuestion::Shapes(camera) => {
                let size = self.handles.board.stream_size(&camera);
                let shapes = context.config.shapes(&camera);
                let answer = shapes.map(|report| shapes_answer(report, size));
                // The client may have disconnected.
                _ = reply.try_send(page_reply(answer));
            }
        }
    }

    fn execute(
        &mut self,
        command: Result<Command, Refusal>,
        sender: CommandSender,
        context: &mut StageContext<'_>,
    ) {
        let head = sender.head();
        let (op, camera) = (&head.op, head.camera.as_deref());
        let result = match command {
            Ok(command) => {
                tracing::info!(op, camera, field = head.field, "command");
                self.result(command, &sender, context)
            }
            Err(refusal) => {
                tracing::debug!(op, camera, %refusal, "command refused");
                self.reporter.confirm(context.config, head);
                Err(refusal)
            }
        };
        if let Some(result) = result.transpose() {
            self.reply(sender, result);
        }
    }

    /// `None`: the reply follows.
    fn result(
        &mut self,
        command: Command,
        sender: &CommandSender,
        context: &mut StageContext<'_>,
    ) -> Result<Option<ReplyValue>, Refusal> {
        match command {
            // When the file is read.
            Command::Reload {} => {
                context.say(StageNotice::ReloadAsked(Some(sender.clone())));
                return Ok(None);
            }
            // The answer is the reply.
            Command::Ask { camera, question } => {
                require_active(context.config, &camera)?;
                let (config, now) = (&*context.config, context.now);
                let camera = config.camera(&camera)?;
                let asked = question_of_keys(&question, camera, &config.adapter_ids());
                let prompt = self.questions.prompt(asked.map_err(Refusal::bad_value)?)?;
                let fits = config.prompt_rule().test(&prompt);
                fits.map_err(Refusal::bad_value)?;
                self.questions.ask(camera, &prompt, sender.clone(), now)?;
                self.handles.sampler.ask_once(&camera.id, prompt);
                return Ok(None);
            }
            // When it is stored.
            Command::Mark {
                camera,
                event,
                mark,
            } => {
                if let Some(camera) = camera {
                    context.config.camera(&camera)?;
                }
                let history = self.handles.history.as_ref();
                let picture = None;
                let order = MarkOrder {
                    event,
                    mark,
                    picture,
                };
                self.marks.mark(history, order, sender.clone())?;
                return Ok(None);
            }
            // The stages settle these when they hear of them.
            Command::Snapshot { camera } => {
                require_active(context.config, &camera)?;
                self.handles.sampler.make_due(&camera);
                context.say(StageNotice::SnapshotAsked(camera));
            }
            Command::Reconnect { camera } => {
                require_active(context.config, &camera)?;
                context.say(StageNotice::ReconnectAsked(camera));
            }
            Command::ResetLine { camera, line } => {
                require_line(context.config.camera(&camera)?, &line)?;
                context.say(StageNotice::LineReset(camera, line));
            }
            Command::Get { what } => {
                let config = &*context.config;
                return Ok(Some(match what {
                    RequestedInfo::Info => ReplyValue::Info(Box::new(self.reporter.info().clone())),
                    RequestedInfo::Settings => ReplyValue::Settings(config.all_settings()),
                    RequestedInfo::Overrides => {
                        ReplyValue::Overrides(config.overrides().cloned().collect())
                    }
                }));
            }
            Command::LogLevel { level, lasting } => self.set_log_level(level, lasting)?,
            // When the change is applied and stored.
            mut of_cameras => {
                if let Command::SetShapes { camera, size, .. } = &mut of_cameras {
                    let stream = self.handles.board.stream_size(camera);
                    *size = size.or(stream.map(|(width, height)| [width, height]));
                }
                self.change_cameras(&of_cameras, sender, context)?;
                return Ok(None);
            }
        }
        Ok(Some(ReplyValue::Done))
    }

    fn change_cameras(
        &mut self,
        command: &Command,
        sender: &CommandSender,
        context: &mut StageContext<'_>,
    ) -> Result<(), Refusal> {
        let (now, wall) = (context.now, context.wall);
        let changed = context.config.execute(command, now, wall);
        // Also a value that remains: the sender shows the one that it set.
        self.reporter.confirm(context.config, sender.head());
        let value = match changed? {
            ChangeResult::Done => ReplyValue::Done,
            ChangeResult::Revision(revision) => ReplyValue::Revision(revision),
            ChangeResult::ShapesVersion(version) => ReplyValue::ShapesVersion(version),
        };
        context.cameras_changed();
        if let Command::Look {
            camera, lasting, ..
        } = command
        {
            context.say(StageNotice::LooksAsked(camera.clone(), *lasting));
            self.due.push(camera.clone());
        }
        store_overrides(context.config, &self.handles.state);
        self.unsent.push_back(UnsentReply {
            sender: sender.clone(),
            value,
            write: self.handles.state.pending(),
            can_mask: can_mask(command),
            deadline: Instant::now() + REPLY_WITHIN,
        });
        Ok(())
    }

    fn set_log_level(&mut self, level: LogLevel, lasting: Duration) -> Result<(), Refusal> {
        if !self.logging.levels.show(Some(level)) {
            let text = "this process cannot change its log level";
            return Err(Refusal::new(RefusalCode::Failed, text));
        }
        let minutes = lasting.as_secs_f64() / 60.0;
        tracing::info!(?level, minutes, "log level changed for a limited time");
        self.log_level_until = Some(self.handles.clock.now().after(lasting));
        Ok(())
    }

    /// Replies to the next command that is stored, or of which it is known that the disk fails. Dropping the future loses nothing.
    async fn reply_next(&mut self) {
        let history = self.handles.history.as_ref();
        let (sender, result) = tokio::select! {
            settled = next_stored(&mut self.unsent, history) => settled,
            settled = self.marks.next() => settled,
        };
        self.reply(sender, result);
    }

    /// Replies to the commands that asked for it.
    fn file_is_read(&mut self, read: &mut ReadFile) {
        let result = match &read.found {
            FoundFile::Rejected(errors) => {
                Err(Refusal::new(RefusalCode::Failed, errors.join("; ")))
            }
            _ => Ok(ReplyValue::Done),
        };
        for sender in std::mem::take(&mut read.senders) {
            self.reply(sender, result.clone());
        }
    }

    fn reply_all(&mut self, settled: Vec<SettledQuestion<CommandSender>>) {
        for (sender, result) in settled {
            self.reply(sender, result);
        }
    }

    fn reply(&mut self, sender: CommandSender, result: Result<ReplyValue, Refusal>) {
        let reply = Reply {
            head: sender.head().clone(),
            result,
            at: self.handles.clock.wall(),
        };
        if let CommandSender::Broker(requester) = &sender {
            self.recent.answer(requester, &reply);
        }
        sender.send(&reply, &self.handles.publisher);
    }
}

async fn next_stored(
    unsent: &mut VecDeque<UnsentReply>,
    history: Option<&History>,
) -> SettledQuestion<CommandSender> {
    let Some(oldest) = unsent.front_mut() else {
        return pending().await;
    };
    let masking_history = history.filter(|_| oldest.can_mask);
    let stored = async {
        oldest.write.finished().await;
        // A mask that grew is saved when no stored picture shows what it hides.
        if let Some(history) = masking_history {
            history.removed().await;
        }
    };
    let in_time = timeout_at(oldest.deadline, stored).await.is_ok();
    let is_removing = masking_history.is_some_and(|history| !in_time && history.is_removing());
    let Some(UnsentReply { sender, value, .. }) = unsent.pop_front() else {
        return pending().await;
    };
    let text = "the change is in force; stored pictures that show what is masked now are still being removed";
    let result = match is_removing {
        true => Err(Refusal::new(RefusalCode::Failed, text)),
        false => Ok(value),
    };
    (sender, result)
}

/// Masks may be larger with it.
fn can_mask(command: &Command) -> bool {
    matches!(
        command,
        Command::SetShapes { .. } | Command::ResetOverrides { .. }
    )
}

/// Refuses a command to a camera that is switched off.
fn require_active(config: &ConfigStore, camera: &CameraId) -> Result<(), Refusal> {
    match config.camera(camera)?.enabled {
        true => Ok(()),
        false => Err(Refusal::new(
            RefusalCode::Unavailable,
            format!("camera {camera} is switched off; enable it first"),
        )),
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
fn is_for_this_node(asked: &CommandRequest, config: &ConfigStore) -> bool {
    let camera = asked.requester.head.camera.as_deref();
    let mut own = config.cameras().iter().map(|own| own.id.as_str());
    asked.scope == RequestScope::Node || camera.is_some_and(|camera| own.any(|id| id == camera))
}

/// Of cameras whose streams have another form than the pictures on which their shapes were drawn.
fn report_other_aspects(context: &mut StageContext<'_>) {
    let Status {
        cameras, troubles, ..
    } = &mut context.status;
    for (camera, drawn) in context.config.drawn_sizes() {
        let status = cameras
            .iter_mut()
            .find(|status| status.id == camera.as_str());
        let Some((status, size)) = status.and_then(|it| it.stream.size.map(|size| (it, size)))
        else {
            continue;
        };
        if has_other_aspect(drawn, size) {
            status.drawn_size = Some(drawn);
            let ([width, height], (now_width, now_height)) = (drawn, size);
            troubles.push(Trouble::new(
                TroubleKind::OtherAspect,
                format!(
                    "camera {camera}: its stream is {now_width} x {now_height} now; its shapes were drawn on {width} x {height}, which is of another form"
                ),
            ));
        }
    }
}

impl Stage for CommandHandler {
    /// A change is stored.
    fn next(&mut self) -> StageFuture<'_, Vec<StageNotice>> {
        Box::pin(async {
            self.reply_next().await;
            Vec::new()
        })
    }

    fn hear(&mut self, notice: &mut StageNotice, context: &mut StageContext<'_>) {
        let reporter = &mut self.reporter;
        match notice {
            StageNotice::Received(message) => self.receive(message, context),
            StageNotice::PageAsked(request) => {
                if let Some(request) = request.take() {
                    self.receive_of_page(request, context);
                }
            }
            StageNotice::Looks(news) => {
                for news in news {
                    let settled = self.questions.look(news);
                    self.reply_all(settled);
                }
            }
            // The looks may be lost with it.
            StageNotice::EngineLost(loss) => {
                let refused = self.questions.refuse(&loss.cameras, &loss.reason);
                self.reply_all(refused);
            }
            StageNotice::EnginesChanged(running) => reporter.gpus_changed(running.gpus.clone()),
            StageNotice::FileRead(read) => self.file_is_read(read),
            StageNotice::ConfigReported(errors) => {
                reporter.report_config(context.config, std::mem::take(errors));
            }
            StageNotice::Moved(cameras) => reporter.cameras_moved(cameras),
            _ => {}
        }
    }

    fn apply(&mut self, change: &ConfigChange, context: &mut StageContext<'_>) {
        store_overrides(context.config, &self.handles.state);
        self.reporter.apply(change, context.config);
        for camera in self.due.drain(..) {
            self.handles.sampler.make_due(&camera);
        }
    }

    fn tick(&mut self, context: &mut StageContext<'_>) {
        let refused = self.questions.tick(context.now);
        self.reply_all(refused);
        let is_over = |until: &mut Mono| *until <= context.now;
        if self.log_level_until.take_if(is_over).is_some() {
            self.logging.levels.show(None);
            tracing::info!("log level restored");
        }
        self.reporter.tick(context.now);
        context.status.config = status::config(self.reporter.config());
        let rejected = status::config_trouble(self.reporter.config());
        context.status.troubles.extend(rejected);
        report_other_aspects(context);
    }

    fn finish(&mut self) -> StageFuture<'_, Vec<StageNotice>> {
        Box::pin(async {
            while !self.unsent.is_empty() || !self.marks.is_empty() {
                self.reply_next().await;
            }
            Vec::new()
        })
    }
}
