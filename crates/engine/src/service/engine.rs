//! The engine with a model: looks in; answers with boxes, points and texts out.
//!
//! Belongs here: prompts to tokens, findings to answers. Not here: when a step runs (the scheduler's).

use std::{collections::HashMap, sync::Arc};

use super::{choices, open_look::OpenLook};
use crate::{
    model::{self, ModelConfig, ObjectBins, SequenceOutput, Tokenizer},
    scheduler::{
        backend::Backend,
        draft::DraftKey,
        request::{Ask, LookEvent, LookId, LookRequest, MeasuredView, Options, PromptResult},
        sequence::{Bounds, Sequence},
        still::{PictureMeasure, ReuseRule, ViewKey},
        worker::{DeviceError, Worker},
    },
};
use spotter_core::{
    Answer, AnswerBody, Clock, FoundObject, Look, LookNews, NormBox, NormPoint, Outcome, Prompt,
    ScoreSource, Task, WholeLook,
};

/// Why a look could not be answered.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The prompt's text cannot be turned into tokens.
    #[error("prompt {prompt}: {reason}")]
    Prompt { prompt: String, reason: String },
    /// A step of a GPU has room for a limited number of crops of each picture.
    #[error(
        "a picture of {width} x {height} pixels is too long: it needs {crops} crops, a step has room for {limit}; \
         crop it to a shape that is less long"
    )]
    Picture {
        width: usize,
        height: usize,
        crops: usize,
        limit: usize,
    },
    /// The device cannot go on: the engine must stop.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// News of a look inside an engine.
#[derive(Clone, Debug)]
pub enum EngineNews {
    /// A box or point of a prompt, before the answer is complete.
    Object(Arc<Prompt>, AnswerBody),
    Look(LookNews),
}

/// What an engine needs of a model beside its weights, which are on the device.
#[derive(Clone, Debug)]
pub struct EngineModel {
    pub config: ModelConfig,
    pub tokenizer: Tokenizer,
}

/// A model on a device, answering looks.
pub struct Engine {
    worker: Worker,
    config: ModelConfig,
    tokenizer: Tokenizer,
    bounds: Bounds,
    reuse: Option<ReuseRule>,
    inside: HashMap<LookId, OpenLook>,
}

impl Engine {
    /// Dimensions and tokenizer of the model.
    pub fn model(&self) -> (&ModelConfig, &Tokenizer) {
        (&self.config, &self.tokenizer)
    }

    /// An engine with the model that `backend` runs, whose answers end within `bounds`.
    pub fn new(
        backend: Box<dyn Backend>,
        model: EngineModel,
        bounds: Bounds,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let EngineModel { config, tokenizer } = model;
        Self {
            worker: Worker::new(backend, config.text.vocab_size, Options::default(), clock),
            config,
            tokenizer,
            bounds,
            reuse: None,
            inside: HashMap::new(),
        }
    }

    /// The loop with its counters.
    pub fn worker(&mut self) -> &mut Worker {
        &mut self.worker
    }

    /// Prepares a shape of steps for a faster launch, while nothing is inside. False when nothing is left to prepare.
    pub fn prepare_shape(&mut self) -> Result<bool, DeviceError> {
        self.worker.prepare_shape()
    }

    /// Works by other bounds and in another way from now on, with nothing remembered: for measurements of one device in
    /// several ways. Nothing may be inside. `bounds` may not ask for more than the device was built for.
    pub fn restart(&mut self, bounds: Bounds, options: Options) {
        self.bounds = bounds;
        self.reuse = options.reuse;
        self.worker.restart(options);
    }

    /// Answers one look while nothing else is inside; it has an outcome, which may be that it came too late. Nothing is
    /// remembered of it and nothing remembered is used, so it costs what the first look at a picture costs. Blocks for the whole
    /// work. After a fatal error the engine must not be used again.
    pub fn look(&mut self, look: Look) -> Result<WholeLook, EngineError> {
        let mut whole = WholeLook::new(&look);
        let id = self.submit_unremembered(look)?;
        while whole.outcome.is_none() {
            for (of, news) in self.turn()? {
                if let (EngineNews::Look(news), true) = (news, of == id) {
                    whole.add(news);
                }
            }
        }
        Ok(whole)
    }

    /// Takes a look of which nothing is remembered, and for which nothing remembered is used.
    pub fn submit_unremembered(&mut self, look: Look) -> Result<LookId, EngineError> {
        let mut request = self.request(&look, false)?;
        (request.camera, request.measured) = (None, None);
        request.asks.iter_mut().for_each(|ask| ask.draft = None);
        let id = self.worker.admit(request);
        self.inside.insert(id, OpenLook::new(look));
        Ok(id)
    }

    /// Takes a look; its news come from later turns. With `objects` there is news of every object as it is found. Does not block.
    pub fn submit(&mut self, look: Look, objects: bool) -> Result<LookId, EngineError> {
        let request = self.request(&look, objects)?;
        let id = self.worker.admit(request);
        self.inside.insert(id, OpenLook::new(look));
        Ok(id)
    }

    fn request(&self, look: &Look, objects: bool) -> Result<LookRequest, EngineError> {
        let (width, height) = (look.frame.picture.width(), look.frame.picture.height());
        let vision = &self.config.vision;
        let (crops, limit) = (
            model::tiling(width, height, vision).crops(),
            vision.max_crops + 1,
        );
        if crops > limit {
            return Err(EngineError::Picture {
                width,
                height,
                crops,
                limit,
            });
        }
        let asks = look
            .prompts
            .iter()
            .map(|prompt| self.ask(look, prompt))
            .collect::<Result<Vec<Ask>, EngineError>>()?;
        Ok(LookRequest {
            camera: Some(look.frame.camera.clone()),
            measured: self.measured(look),
            picture: Some(look.frame.picture.clone()),
            start_by: look.start_by,
            answer_by: look.answer_by,
            asks,
            objects,
        })
    }

    /// What the look's picture is compared by. One that is only on a GPU is not compared: the engine's thread would wait for its copy.
    fn measured(&self, look: &Look) -> Option<MeasuredView> {
        let picture = &look.frame.picture;
        let rule = self.reuse.filter(|_| picture.is_on_host())?;
        Some(MeasuredView {
            view: ViewKey(look.frame.camera.clone()),
            measure: PictureMeasure::of(picture, &self.config.vision, rule.detail),
        })
    }

    /// Cancels the look; no news of it will come.
    pub fn cancel(&mut self, look: LookId) {
        self.worker.cancel(look);
        self.inside.remove(&look);
    }

    /// One turn of the loop; waits for at most one step of the device. An error is fatal.
    pub fn turn(&mut self) -> Result<Vec<(LookId, EngineNews)>, EngineError> {
        let events = self.worker.turn()?;
        Ok(events.into_iter().filter_map(|e| self.news(e)).collect())
    }

    /// True when no look is inside.
    pub fn is_idle(&self) -> bool {
        self.worker.is_idle()
    }

    fn ask(&self, look: &Look, prompt: &Prompt) -> Result<Ask, EngineError> {
        let family = self.config.family;
        let asked = family
            .prompt(&prompt.task, &self.config, &self.tokenizer)
            .map_err(|e| prompt_error(prompt, &e))?;
        let allowed = match &prompt.task {
            Task::Query { choices, .. } => {
                choices::allowed(choices, &self.tokenizer).map_err(|e| prompt_error(prompt, &e))?
            }
            _ => None,
        };
        let mut bounds = self.bounds;
        if let Some(allowed) = &allowed {
            // A choice ends where its text ends; the limit is for answers that may go on for ever.
            bounds.max_tokens = allowed.longest;
        }
        let mut sequence = Sequence::new(asked.grammar, asked.inputs, bounds);
        if let Some(allowed) = allowed {
            sequence = sequence.choices(Arc::new(allowed.tree));
        }
        Ok(Ask {
            sequence,
            draft: Some(DraftKey::new(&look.frame.camera, prompt)),
        })
    }

    fn news(&mut self, event: LookEvent) -> Option<(LookId, EngineNews)> {
        let (id, news) = match event {
            LookEvent::Object(id, index, object) => {
                let prompt = Arc::clone(self.inside.get(&id)?.prompts().get(index)?);
                let body = objects(&prompt.task, &[object])?;
                return Some((id, EngineNews::Object(prompt, body)));
            }
            LookEvent::Answer {
                look: id,
                prompt,
                result,
                model_size,
            } => (id, self.answered(id, prompt, result, model_size)?),
            LookEvent::ShortAnswered { look: id } => {
                let frame = self.inside.get(&id)?.frame().clone();
                (id, LookNews::ShortAnswered(frame))
            }
            LookEvent::Answered { look: id } => {
                let frame = self.inside.remove(&id)?.frame().clone();
                (id, LookNews::Ended(Outcome::Answered(frame)))
            }
            LookEvent::Late { look: id } => {
                let look = self.inside.remove(&id)?.unanswered();
                (id, LookNews::Ended(Outcome::Late(look)))
            }
            LookEvent::Failed { look: id, why } => {
                let open = self.inside.remove(&id)?;
                let text = format!("look with {} prompts: {why}", open.prompts().len());
                let outcome = Outcome::Failed(open.unanswered(), text);
                (id, LookNews::Ended(outcome))
            }
        };
        Some((id, EngineNews::Look(news)))
    }

    /// A prompt is answered. A look with an answer that is no text fails.
    fn answered(
        &mut self,
        id: LookId,
        prompt: usize,
        result: PromptResult,
        model_size: (u32, u32),
    ) -> Option<LookNews> {
        let asked = Arc::clone(self.inside.get(&id)?.prompts().get(prompt)?);
        let error = match self.answer(&asked, result) {
            Ok(answer) => {
                let open = self.inside.get_mut(&id)?;
                open.answer(prompt)?;
                return Some(LookNews::Answer {
                    frame: open.frame().clone(),
                    model_size,
                    answer,
                });
            }
            Err(error) => error,
        };
        self.worker.cancel(id);
        let look = self.inside.remove(&id)?.unanswered();
        Some(LookNews::Ended(Outcome::Failed(look, error.to_string())))
    }

    fn answer(&self, prompt: &Arc<Prompt>, finding: PromptResult) -> Result<Answer, EngineError> {
        let PromptResult {
            found,
            marks,
            unchanged,
        } = finding;
        let body = match objects(&prompt.task, &found.objects) {
            Some(body) => body,
            None => self.text(prompt, &found)?,
        };
        Ok(Answer {
            prompt: Arc::clone(prompt),
            body,
            truncated: found.truncated,
            unchanged,
            marks,
        })
    }

    fn text(&self, prompt: &Prompt, found: &SequenceOutput) -> Result<AnswerBody, EngineError> {
        let text = self.tokenizer.decode(&found.tokens);
        Ok(AnswerBody::Text {
            text: text
                .map_err(|e| prompt_error(prompt, &e))?
                .trim()
                .to_owned(),
            // The end is a decision too, so the shortest answer has one.
            score: (found.log_probability / (found.tokens.len() + 1) as f64).exp(),
        })
    }
}

fn prompt_error(prompt: &Prompt, reason: &dyn std::error::Error) -> EngineError {
    EngineError::Prompt {
        prompt: prompt.id.to_string(),
        reason: reason.to_string(),
    }
}

/// Objects as places in the picture; `None` for tasks whose answer is a text.
fn objects(task: &Task, objects: &[ObjectBins]) -> Option<AnswerBody> {
    let objects = objects.iter();
    match task {
        Task::Detect { .. } => {
            let boxes = objects.filter_map(|object| Some(scored(place(object)?, object)));
            Some(AnswerBody::Boxes(boxes.collect()))
        }
        Task::Point { .. } => {
            let point = |o: &ObjectBins| {
                let [x, y] = [o.x_bin, o.y_bin].map(model::coord_from_bin);
                scored(NormPoint::new(x, y), o)
            };
            Some(AnswerBody::Points(objects.map(point).collect()))
        }
        Task::Query { .. } | Task::Caption { .. } => None,
    }
}

/// The box, clamped to the picture.
fn place(object: &ObjectBins) -> Option<NormBox> {
    let (width, height) = object.size_bins?;
    let [x, y] = [object.x_bin, object.y_bin].map(model::coord_from_bin);
    let [width, height] = [width, height].map(model::size_from_bin);
    Some(NormBox::from_centre(x, y, width, height))
}

fn scored<T>(place: T, object: &ObjectBins) -> FoundObject<T> {
    FoundObject {
        place,
        score: f64::from(object.probability),
        source: ScoreSource::TokenProb,
        sharpness: f64::from(object.sharpness),
    }
}
