//! What people judge: how right the alarms of a prompt are, and which one is asked about next.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::{
    board::Board,
    events::{EventAnswer, EventAnswers, EventRefusal, filter, json, permit_of},
};
use spotter_config::CameraConfig;
use spotter_core::{CameraId, PromptId, Share};
use spotter_history::{HistoryError, HistoryReader, SeriesKey};
use spotter_quality::AnsweringModel;
use spotter_review::{JudgedPrompt, MinScoreReplays, PromptFigures, figures, summary};

/// Alarms that a person may be asked about at a time.
const WANTED_MAX: usize = 50;
const WANTED_USUAL: usize = 20;

/// Answers about marks. Nothing blocks but the threads of queries.
pub struct JudgingAnswers {
    board: Board,
    model: AnsweringModel,
    events: EventAnswers,
    replays: Arc<MinScoreReplays>,
    /// One replays at a time: the other queries go on.
    turn: Arc<Semaphore>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DrawRequest {
    camera: CameraId,
    prompt: PromptId,
    wanted: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct UseRequest {
    camera: CameraId,
    prompt: PromptId,
    target_percent: u8,
    min_score: Share,
}

/// A proposal that a person takes.
pub(crate) struct TakenProposal {
    /// What sets its `min_score`.
    pub command: Value,
    /// Of the alarms that come then.
    key: SeriesKey,
    target_percent: u8,
}

/// A prompt of a camera as it is now, for a thread that blocks.
#[derive(Clone)]
struct OwnedPrompt {
    camera: CameraConfig,
    prompt: PromptId,
    model: AnsweringModel,
}

impl OwnedPrompt {
    fn judged(&self) -> Option<JudgedPrompt<'_>> {
        let mut all = JudgedPrompt::all_of(&self.camera, &self.model);
        all.find(|judged| judged.prompt.id == self.prompt)
    }

    fn key(&self) -> EventAnswer<SeriesKey> {
        let judged = self.judged().ok_or(EventRefusal::UnknownPrompt)?;
        Ok(judged.key())
    }
}

impl JudgingAnswers {
    pub fn new(board: Board, model: AnsweringModel, events: EventAnswers) -> Self {
        let clock = events.clock();
        Self {
            board,
            model,
            events,
            replays: Arc::new(MinScoreReplays::new(clock)),
            turn: Arc::new(Semaphore::new(1)),
        }
    }

    /// All prompts that find objects, or one with all about it.
    pub(crate) async fn list(&self, query: Option<&str>) -> EventAnswer {
        if let Some(off) = self.events.off() {
            return Ok(off);
        }
        let query = filter(query)?;
        match (query.camera, query.prompt) {
            (Some(camera), Some(prompt)) => self.shown(&camera, &prompt, None).await,
            (None, None) => self.prompts().await,
            _ => Err(EventRefusal::Wrong(
                "name camera and prompt, or none".to_owned(),
            )),
        }
    }

    async fn prompts(&self) -> EventAnswer {
        let (cameras, model) = (self.board.cameras(), self.model.clone());
        let read = move |reader: &HistoryReader| {
            let judged = cameras
                .iter()
                .flat_map(|camera| JudgedPrompt::all_of(camera, &model));
            let summaries = judged.map(|judged| summary(reader, &judged));
            summaries.collect::<Result<Vec<_>, HistoryError>>()
        };
        let prompts = self.events.read(read).await?;
        Ok(json(&json!({"is_on": true, "prompts": prompts})))
    }

    /// Draws alarms by chance until as many wait as the body wants.
    pub(crate) async fn draw(&self, body: Value) -> EventAnswer {
        let history = self.events.history()?;
        let request: DrawRequest = read(body)?;
        let wanted = request.wanted.unwrap_or(WANTED_USUAL);
        if !(1..=WANTED_MAX).contains(&wanted) {
            let text = format!("wanted: {wanted} is not within 1 to {WANTED_MAX}");
            return Err(EventRefusal::Wrong(text));
        }
        let key = self.prompt(&request.camera, &request.prompt)?.key()?;
        let drawn = history.draw(key, wanted).await?;
        self.shown(&request.camera, &request.prompt, Some(drawn))
            .await
    }

    /// What takes a proposal; [`promise`](Self::promise) follows when it is done.
    pub(crate) async fn proposal(&self, body: Value) -> EventAnswer<TakenProposal> {
        self.events.history()?;
        let request: UseRequest = read(body)?;
        let (target_percent, min_score) = (request.target_percent, request.min_score);
        let mut changed = self.prompt(&request.camera, &request.prompt)?;
        let figures = self.figures(changed.clone()).await?;
        let figures = figures.ok_or(EventRefusal::UnknownPrompt)?;
        if !figures.proposes(target_percent, min_score.get()) {
            let text = format!(
                "min_score {} for {target_percent} of 100 is not among the present proposals; read them again",
                min_score.get()
            );
            return Err(EventRefusal::Conflict(text));
        }
        for prompt in &mut changed.camera.prompts {
            if prompt.id == request.prompt {
                prompt.min_score = min_score;
            }
        }
        Ok(TakenProposal {
            command: json!({
                "op": "set", "cam": request.camera, "prompt": request.prompt, "field": "min_score", "value": min_score,
            }),
            key: changed.key()?,
            target_percent,
        })
    }

    /// The `min_score` of the proposal is in force.
    pub(crate) async fn promise(&self, taken: TakenProposal) -> EventAnswer<()> {
        let history = self.events.history()?;
        Ok(history.promise(taken.key, taken.target_percent).await?)
    }

    fn prompt(&self, camera: &CameraId, prompt: &PromptId) -> EventAnswer<OwnedPrompt> {
        let camera = self.board.camera(camera.as_str());
        Ok(OwnedPrompt {
            camera: camera.ok_or(EventRefusal::UnknownPrompt)?,
            prompt: prompt.clone(),
            model: self.model.clone(),
        })
    }

    async fn shown(
        &self,
        camera: &CameraId,
        prompt: &PromptId,
        drawn_now: Option<usize>,
    ) -> EventAnswer {
        let prompt = self.prompt(camera, prompt)?;
        let figures = self.figures(prompt).await?;
        let mut shown = json!(figures.ok_or(EventRefusal::UnknownPrompt)?);
        shown["is_on"] = json!(true);
        if let Some(drawn_now) = drawn_now {
            shown["drawn_now"] = json!(drawn_now);
        }
        Ok(json(&shown))
    }

    async fn figures(&self, prompt: OwnedPrompt) -> EventAnswer<Option<PromptFigures>> {
        let turn = permit_of(&self.turn).await?;
        let (replays, now_ms) = (Arc::clone(&self.replays), self.events.now_ms());
        let read = move |reader: &HistoryReader| {
            // Held until the replays end, also when the client disconnects meanwhile.
            let _turn = turn;
            let judged = prompt.judged();
            judged
                .map(|judged| figures(reader, &judged, &replays, now_ms))
                .transpose()
        };
        self.events.read(read).await
    }
}

fn read<T: serde::de::DeserializeOwned>(body: Value) -> EventAnswer<T> {
    serde_json::from_value(body).map_err(|error| EventRefusal::Wrong(error.to_string()))
}
